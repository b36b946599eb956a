"""Mistakes to plant in sweeps."""

from tests.mutants.mutant import Mutant

SWEEP, PAGE = "tests/sweep/test_sweep.py::test_", "tests/sweep/test_page.py::test_"

MUTANTS = [
    Mutant(
        "take a result for that of a cell with other options",
        "sims/sweep/grid.py",
        "known = [FORMAT, version, command, dict(options), seed, dict(files)]",
        "known = [FORMAT, version, command, list(options), seed, dict(files)]",
        (SWEEP + "a_result_of_a_changed_file_is_not_mistaken_for_the_present_one",),
    ),
    Mutant(
        "take a result for that of a file with another content",
        "sims/sweep/grid.py",
        "seed, dict(files)]",
        "seed, list(files)]",
        (SWEEP + "a_file_that_an_option_names_counts_by_its_content",),
    ),
    Mutant(
        "take a spoilt result for a whole one",
        "sims/sweep/store.py",
        "is_whole = result.format == FORMAT and result.id == id and result.digest == digest(bytes(result.came))",
        "is_whole = result.format == FORMAT and result.id == id",
        (SWEEP + "a_result_that_is_not_whole_is_told_and_run_again",),
    ),
    Mutant(
        "take the result of another cell",
        "sims/sweep/store.py",
        "result.format == FORMAT and result.id == id and",
        "result.format == FORMAT and",
        (SWEEP + "a_result_that_is_not_whole_is_told_and_run_again",),
    ),
    Mutant(
        "take a result of another format",
        "sims/sweep/store.py",
        "is_whole = result.format == FORMAT and",
        "is_whole =",
        (SWEEP + "a_result_that_is_not_whole_is_told_and_run_again",),
    ),
    Mutant(
        "write a result where it will stand",
        "sims/sweep/store.py",
        '    beside = path.with_name(path.name + ".new")\n',
        "    beside = path\n",
        (SWEEP + "a_file_is_replaced_when_all_of_it_is_on_disk",),
    ),
    Mutant(
        "let the time that a run took into its digest",
        "cli/sweep_cells.py",
        'del told["wall_s"], told["config"]',
        'del told["config"]',
        (SWEEP + "the_same_cell_has_the_same_digest_in_processes_of_their_own",),
    ),
    Mutant(
        "keep a failure that is past",
        "sims/sweep/store.py",
        '        (self._failed / f"{result.id}.json").unlink(missing_ok=True)\n',
        "",
        (SWEEP + "what_failed_is_tried_again_and_forgotten_when_it_comes_to_something",),
    ),
    Mutant(
        "take a run that broke a law for a result",
        "cli/sweep_cells.py",
        "        if report.problems:\n",
        "        if False:\n",
        (SWEEP + "a_cell_that_fails_is_kept_apart_and_the_others_go_on",),
    ),
    Mutant(
        "leave out an option that has an effect in another cell only",
        "cli/sweep_cells.py",
        "has_effect |= options.keys()",
        "has_effect &= options.keys()",
        (SWEEP + "every_combination_and_seed_is_run_and_what_has_no_effect_is_left_out",),
    ),
    Mutant(
        "let options that never have an effect pass",
        "cli/sweep_cells.py",
        "            if name not in has_effect:\n",
        "            if False:\n",
        (SWEEP + "what_cannot_be_is_named_and_nothing_is_run",),
    ),
    Mutant(
        "explore the same seeds in every campaign",
        "cli/sweep_cells.py",
        'step = ctx.params["seeds"] if',
        "step = 0 if",
        (SWEEP + "campaigns_are_swept_one_after_the_other",),
    ),
    Mutant(
        "let two sweeps work in one folder",
        "sims/sweep/store.py",
        "fcntl.LOCK_EX | fcntl.LOCK_NB",
        "fcntl.LOCK_SH | fcntl.LOCK_NB",
        (SWEEP + "two_sweeps_cannot_work_in_one_folder",),
    ),
    Mutant(
        "let a command line end the page's data",
        "sims/sweep/page.py",
        '.replace("</", "<\\\\/")',
        "",
        (PAGE + "what_values_say_stays_text",),
    ),
]

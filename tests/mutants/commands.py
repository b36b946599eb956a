"""Mistakes to plant in what commands say, how they end, and what is installed."""

from tests.mutants.engine import mutant
from tests.mutants.mutant import Mutant

SIMULATE, DESCRIBE, SIM = "sims/simulate.py", "sims/describe.py", "cli/sim.py"
ACCOUNTS = "sims/accounts.py"
PACKAGE = "tests/test_package.py::test_"
ENDINGS, OUTPUTS, CONFIG = "cli/endings.py", "cli/outputs.py", "server/config.py"

MUTANTS = [
    # how it ends
    mutant(
        "end well though a law was broken",
        SIM,
        "        ctx.exit(BROKEN)\n",
        "        ctx.exit(0)\n",
        "cli/sim::a_wrong_output_makes_the_exit_status_1_and_names_request_and_seed",
        "cli/sim::the_verdict_says_what_was_shown_and_what_was_not",
    ),
    mutant(
        "end well after ctrl-c",
        SIM,
        "        ctx.exit(INTERRUPTED)\n",
        "        pass\n",
        "cli/sim::ctrl_c_gives_the_report_of_what_was",
    ),
    mutant(
        "take what cannot be used for a broken law",
        ENDINGS,
        "UNUSABLE = 2\n",
        "UNUSABLE = 1\n",
        "cli/endings::there_is_one_convention_and_no_traceback",
    ),
    mutant(
        "show the traceback of our own faults",
        ENDINGS,
        "        except Exception as error:\n            raise Broken",
        "        except ArithmeticError as error:\n            raise Broken",
        "cli/endings::there_is_one_convention_and_no_traceback",
    ),
    mutant(
        "say that all is well where the output was closed",
        ENDINGS,
        "            ctx.exit(UNREAD)\n",
        "            ctx.exit(0)\n",
        "cli/endings::who_closes_our_output_is_no_failure_of_ours",
    ),
    mutant(
        "empty an output before there is anything to write",
        OUTPUTS,
        'return Path(path).open("ab")',
        'return Path(path).open("wb")',
        "cli/sim::an_output_that_was_there_stays_until_there_is_a_new_one",
    ),
    mutant(
        "find out at the end that an output takes nothing",
        OUTPUTS,
        '            os.write(self._file.fileno(), b"")  # a device may say already here that it takes nothing\n',
        "            pass\n",
        "cli/sim::wrong_values_are_refused_with_what_is_allowed",
    ),
    # what it says
    mutant(
        "call a run good of which nothing completed",
        ACCOUNTS,
        "        requests.completed\n        or run.is_broken_off\n",
        "        True\n        or run.is_broken_off\n",
        "cli/sim::the_verdict_says_what_was_shown_and_what_was_not",
        "sims/simulate::each_way_of_leaving_at_each_point",
    ),
    mutant(
        "count a client that saw nothing as compared",
        "sims/reference.py",
        "        seen = [one for one in seen if one.tokens or _is_whole(one)]\n",
        "        seen = list(seen)\n",
        "sims/simulate::each_way_of_leaving_at_each_point",
    ),
    mutant(
        "be silent about requests that were refused",
        DESCRIBE,
        '            (requests.refused, "were refused"),\n',
        "",
        "cli/sim::the_verdict_says_what_was_shown_and_what_was_not",
    ),
    mutant(
        "lose the requests that were never submitted",
        ACCOUNTS,
        "        never_submitted=workload.num_requests - submitted,\n",
        "        never_submitted=0,\n",
        "cli/sim::the_verdict_says_what_was_shown_and_what_was_not",
    ),
    mutant(
        "hold drafts against drafts",
        SIMULATE,
        "engine=msgspec.structs.replace(config.engine, speculative=NO_DRAFTS),",
        "engine=config.engine,",
        "cli/sim::no_baseline_unless_there_is_something_to_gain",
    ),
    mutant(
        "let clients leave recordings unasked",
        "cli/sim_config.py",
        "0.0 if is_recorded else 0.3",
        "0.3",
        "cli/sim::recordings_are_not_left_unless_asked",
    ),
    mutant(
        "run again something else than a report says",
        "cli/sim_config.py",
        "node / option.unit",
        "node",
        "cli/sim::what_a_report_was_made_with_is_run_again",
    ),
    mutant(
        "tell every seed's failure as one of its own",
        "sims/explore/campaign.py",
        "                if known.kind == found.kind:\n",
        "                if False:\n",
        "explore/campaign::a_kind_of_failure_is_told_once_with_the_traceback_of_what_died",
    ),
    mutant(
        "reserve memory for more than a model can use",
        "cli/generate.py",
        "min(len(request.prompt) + request.max_tokens, max_model_len)",
        "len(request.prompt) + request.max_tokens",
        "cli/real_model::memory_is_what_the_model_can_use",
    ),
    mutant(
        "show the text that ends a generation",
        "cli/telling.py",
        "    text = TextOfTokens(stops)\n",
        "    text = TextOfTokens(())\n",
        "cli/real_model::a_stop_text_ends_it_before_that_text",
    ),
    # the configuration
    mutant(
        "stop at the first mistake",
        CONFIG,
        "            if not _remove(table, error, is_whole=not is_new):\n",
        "            if True:\n",
        "server/config::every_mistake_is_told_at_once",
    ),
    mutant(
        "take a number that is none",
        CONFIG,
        "isinstance(value, float) and not math.isfinite(value)",
        "False",
        "server/config::every_mistake_is_told_at_once",
    ),
    mutant(
        "log what was asked",
        "server/service.py",
        '        _log.info("%s", generation.account)\n',
        "        prompt = generation.job.requests[0].prompt\n"
        '        _log.info("%s of %s", generation.account, b"".join(map(self._tokenizer.token_bytes, prompt)))\n',
        "server/config::a_request_is_logged_without_its_text",
    ),
    # what is installed
    Mutant(
        "give a second copy in a checkout",
        "outrider/checkout.py",
        '        module = import_module(spec.name.partition(".")[2])\n',
        '        module = type(import_module("types"))(spec.name)\n',
        (PACKAGE + "a_checkout_gives_the_same_objects_under_both_names",),
    ),
    Mutant(
        "leave imports in a wheel as they are in the checkout",
        "hatch_build.py",
        'rf"\\1{OUTRIDER}.\\2\\3"',
        'rf"\\1\\2\\3"',
        (
            PACKAGE + "an_installed_package_imports_nothing_from_the_top_level",
            PACKAGE + "imports_are_rewritten_where_they_stand",
        ),
    ),
]

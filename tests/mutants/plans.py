"""Mistakes in what the planner counts, costs and advises."""

from tests.mutants.engine import mutant

REPLAY, GAIN, TALLY, ANSWERS, COUNTED, MODELS = (
    f"plans/{name}.py" for name in ("replay", "gain", "tally", "answers", "counted", "model_replay")
)

MUTANTS = [
    mutant(
        "take the earliest occurrence for the latest",
        "plans/lookup.py",
        '        if occurrence == "latest":\n',
        '        if occurrence != "latest":\n',
        "plans/lookup::drafts_at_all_positions_are_those_of_a_drafter_at_each",
    ),
    mutant(
        "let a draft copy the suffix that it was found by",
        "plans/lookup.py",
        "np.where(starts >= 0, starts + n, -1)",
        "np.where(starts >= 0, starts, -1)",
        "plans/lookup::drafts_at_all_positions_are_those_of_a_drafter_at_each",
    ),
    mutant(
        "forget the token that every round gives of its own",
        REPLAY,
        "        by_accepted[num_accepted] += 1\n        t += num_accepted + 1\n",
        "        by_accepted[num_accepted] += 1\n        t += max(num_accepted, 1)\n",
        "plans/replay::rounds_are_counted_by_hand",
        "plans/replay::every_method_and_size_is_that_of_a_drafter_round_by_round",
    ),
    mutant(
        "let a request draft from its own answer as a finished one",
        REPLAY,
        "        found = np.zeros((len(self.configs), 2, NUM_LENGTHS), np.int64)\n",
        "        found = np.zeros((len(self.configs), 2, NUM_LENGTHS), np.int64)\n"
        "        if self._finished is not None:\n"
        "            self._finished.add(None, completion)\n"
        "            self._finished.take_in(len(completion))\n",
        "plans/replay::every_method_and_size_is_that_of_a_drafter_round_by_round",
    ),
    mutant(
        "take a sibling's child for a child of the accepted node",
        REPLAY,
        "        if parent == node and at + depth",
        "        if parent >= node and at + depth",
        "plans/replay::every_method_and_size_is_that_of_a_drafter_round_by_round",
    ),
    mutant(
        "cost a batch's rows as one sequence's",
        GAIN,
        "            pass_s = cost.pass_s(batch * rows, batch, context)\n",
        "            pass_s = cost.pass_s(rows, batch, context)\n",
        "plans/gain::a_speedup_is_tokens_a_round_times_the_plain_pass_over_the_round",
        "plans/plan::an_answer_is_that_worked_by_hand",
    ),
    mutant(
        "take given rates for unconditional ones",
        GAIN,
        "1 + np.cumprod(self.rates[:size]).sum()",
        "1 + np.array(self.rates[:size]).sum()",
        "plans/gain::given_rates_are_of_tokens_whose_forerunners_were_accepted",
    ),
    mutant(
        "weigh requests by their place in a part of the log",
        TALLY,
        "default_rng(self._block)",
        "default_rng(self.num_requests)",
        "plans/gain::parts_of_a_log_add_up_to_the_whole_to_the_last_bit",
    ),
    mutant(
        "recommend what may be chance",
        ANSWERS,
        "        if (self.value if self.low is None else self.low) > 1:\n",
        "        if self.value > 1:\n",
        "plans/plan::what_may_be_chance_is_not_recommended",
    ),
    mutant(
        "count a request of a category in every category",
        COUNTED,
        "self.categories.setdefault(name, Tally()).add(number, recording, rounds)\n",
        "self.categories.setdefault(name, self.whole).add(number, recording, rounds)\n",
        "plans/plan::categories_are_kept_apart_and_sum_up",
    ),
    mutant(
        "take ids that the tokenizer does not have",
        "plans/logs.py",
        "        if not is_text and max([*prompt, *completion]) >= bound:\n",
        "        if not is_text and max([*prompt, *completion]) > bound:\n",
        "plans/plan::a_log_is_read_with_what_cannot_be_used_counted",
    ),
    mutant(
        "take times that fall for a cost",
        "plans/measured.py",
        "        if curve[after] < (1 - _NOISE) * curve[before]:\n",
        "        if curve[after] < 0.01 * curve[before]:\n",
        "plans/measured::a_small_dip_is_noise_and_flattened_a_large_one_is_refused",
    ),
    mutant(
        "let a longer context make passes faster",
        "plans/measured.py",
        "            if found.min() >= 0 and left @ left",
        "            if left @ left",
        "plans/measured::a_cost_never_falls_with_the_context",
    ),
    mutant(
        "say nothing of unknown tokens",
        "plans/tokens.py",
        "        if share > _MOST_UNKNOWN:\n",
        "        if share > 1:\n",
        "plans/plan::a_tokenizer_that_does_not_know_the_log_is_told",
    ),
    mutant(
        "measure a size's first rounds, while caches settle",
        "sims/rounds.py",
        "between[NUM_WARM:]",
        "between[:NUM_TIMED]",
        "sims/rounds::the_first_rounds_of_a_size_are_left_out",
    ),
    mutant(
        "measure rounds whose drafts are as short as what was last copied",
        "sims/rounds.py",
        '        occurrence="earliest",\n',
        '        occurrence="latest",\n',
        "sims/rounds::a_round_takes_what_its_pass_takes_where_nothing_else_takes_time",
    ),
    mutant(
        "draft after a context that lacks its last token",
        MODELS,
        "            proposer.feed([Chunk([ids[n - 1]], n - 1, range(n), 1) for n in lengths])\n",
        "            proposer.feed([Chunk([ids[n - 2]], n - 1, range(n), 1) for n in lengths])\n",
        "plans/models::rounds_are_those_of_the_loop_that_wrote_the_text",
    ),
    mutant(
        "let drafted nodes write over the recorded tokens that follow",
        MODELS,
        "_BLOCK_TOKENS = 1\n",
        "_BLOCK_TOKENS = 16\n",
        "plans/models::rounds_are_those_of_the_loop_that_wrote_the_text",
    ),
    mutant(
        "count a chain on after a token that is wrong",
        MODELS,
        "if right[place] == layer and",
        "if right[place] <= layer and",
        "plans/models::rounds_are_those_of_the_loop_that_wrote_the_text",
    ),
    mutant(
        "take the nodes of a tree in the order of its layers for the best ones",
        MODELS,
        "key=lambda node: (-values[node], depths[node]))",
        "key=lambda node: (depths[node], node))",
        "plans/models::rounds_are_those_of_the_loop_that_wrote_the_text",
    ),
    mutant(
        "take the words of a draft vocabulary for the target's",
        MODELS,
        "token = word if proposer.vocabulary is None else",
        "token = word if proposer.vocabulary is not None else",
        "plans/models::rounds_are_those_of_the_loop_that_wrote_the_text",
    ),
    mutant(
        "draw the first requests of a log more often than the last",
        "plans/sample.py",
        "            place = int(self._rng.integers(self._num_offered))\n",
        "            place = int(self._rng.integers(2 * self._num_offered))\n",
        "plans/models::every_request_is_as_likely_to_be_drawn",
    ),
    mutant(
        "make drafts of a model in a batch at the price of one sequence",
        MODELS,
        "np.array([batch * float(n) for n in widths])",
        "np.array([float(n) for n in widths])",
        "plans/models::a_layer_of_drafts_costs_a_step_of_every_sequence_and_followed_node",
    ),
    mutant(
        "take a layer of drafts for all of them",
        "sims/rounds.py",
        "return max(0.0, own - text) / speculative.k",
        "return max(0.0, own - text)",
        "sims/rounds::a_layer_of_drafts_takes_what_its_laws_take",
    ),
    mutant(
        "plan with ids that are noise to the target",
        "plans/plan.py",
        "        if is_of_ids:\n",
        "        if not is_of_ids:\n",
        "plans/models::a_log_of_noise_and_one_without_a_request_to_run_are_refused",
    ),
]

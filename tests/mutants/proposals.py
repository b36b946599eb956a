"""Mistakes to plant where a model's drafts go through the engine."""

from tests.mutants.engine import ENGINE, SCHEDULING, mutant
from tests.mutants.mutant import Mutant

CORE, SEQUENCE, REQUEST = (f"scheduler/{name}.py" for name in ("core", "sequence", "request"))
PROPOSAL, ADAPTIVE = "scheduler/proposal.py", "scheduler/adaptive.py"
RUNNER, STEP_PARTS = "actors/runner.py", "actors/step_parts.py"
EVERY = "actors/trees::every_configuration_gives_the_text_of_the_one_sequence_loop"

MUTANTS = [
    mutant(
        "share what the proposer has not written",
        SCHEDULING,
        "sequence.covered if sequence.has_draft_state else None",
        "None",
        "actors/trees::an_answer_that_comes_back_as_a_prompt_finds_the_proposers_state",
    ),
    mutant(
        "share with a proposer what none was fed",
        SEQUENCE,
        'return (self.request.cache_salt, "proposer") if self.has_draft_state else self.request.cache_salt',
        "return self.request.cache_salt",
        "actors/trees::what_no_proposer_was_fed_is_found_by_none",
    ),
    mutant(
        "leave the generator of drafts where it was before the round",
        CORE,
        "            sequence.draft_rng.state = draft.rng_state\n",
        "            pass\n",
        EVERY,
    ),
    mutant(
        "think that a proposer which failed was fed",
        CORE,
        "            if sequence.seq in proposals:\n                sequence.covered = len(sequence.context)\n",
        "            sequence.covered = len(sequence.context)\n",
        "actors/trees::a_proposer_that_fails_costs_speed_and_never_text",
    ),
    mutant(
        "go without a draft that the text depends on",
        RUNNER,
        "                if any(ask.is_needed for ask in message.asks):\n",
        "                if False:\n",
        "actors/trees::a_draft_that_the_text_depends_on_is_made_again",
    ),
    mutant(
        "let a failing proposer take the runner down",
        RUNNER,
        "                if any(ask.is_needed for ask in message.asks):\n",
        "                if True:\n",
        "actors/trees::a_proposer_that_fails_costs_speed_and_never_text",
    ),
    mutant(
        "feed prefill to the target only",
        STEP_PARTS,
        "is_proposed_for = sequence.has_draft_state and sequence.covered >= sequence.cached",
        "is_proposed_for = False",
        "actors/trees::a_prefix_hit_brings_the_proposers_state",
    ),
    mutant(
        "make no room for nodes side by side",
        REQUEST,
        "    return num_slots + max(max_nodes(shape, num_layers) - num_layers for num_layers in layers)\n",
        "    return num_slots\n",
        "actors/trees::a_tree_that_the_pool_cannot_hold_whole_is_refused_and_one_that_may_be_cut_is_not",
    ),
    mutant(
        "hang the nodes of a cut tree where they hung before",
        PROPOSAL,
        "            parents = [number[self.parents[node]] for node in nodes]\n",
        "            parents = [self.parents[node] for node in nodes]\n",
        "scheduler/adaptive::a_tree_is_cut_to_nodes_that_keep_their_parents",
    ),
    mutant(
        "take a proposer at its word for ever",
        ADAPTIVE,
        "                rates[grade].learn(is_emitted)\n",
        "                if grade >= 0:\n                    rates[grade].learn(is_emitted)\n",
        "scheduler/adaptive::a_proposer_is_taken_at_its_word_until_it_is_known_better",
    ),
    mutant(
        "grade a node by its whole path",
        ADAPTIVE,
        "int(_NUM_GRADES * value / before)",
        "int(_NUM_GRADES * value)",
        "scheduler/adaptive::all_siblings_are_judged_and_only_those_on_the_path",
    ),
    mutant(
        "give the verifier a law of the round before",
        RUNNER,
        "        laws, self._laws = self._laws, {}\n",
        "        laws = self.__dict__.setdefault('_first_laws', self._laws)\n        self._laws = {}\n",
        EVERY,
    ),
    mutant(
        "judge a round without a draft by the rule of its drafts",
        STEP_PARTS,
        'speculative.rule if drafted else "match",',
        "speculative.rule,",
        "actors/trees::a_request_for_one_token_needs_no_draft",
    ),
    *(
        mutant(name, "models/paying_nodes.py", old, new, f"models/paying_nodes::{test}")
        for name, old, new, test in (
            (
                "count no layer of the proposer's",
                "layers = [min(shape.depth, n) for n",
                "layers = [0 for n",
                "layers_of_the_proposer_cost_too",
            ),
            (
                "take the first nodes for the best",
                "sorted(drafted.values or (), reverse=True)",
                "sorted(drafted.values or ())",
                "the_best_nodes_are_counted_first",
            ),
            (
                "ask the proposer itself",
                "_expected(shape, copy(proposer), copy(target))",
                "_expected(shape, proposer, copy(target))",
                "the_proposer_that_is_asked_stays_as_it_is",
            ),
        )
    ),
    mutant(
        "let the others have the nodes that are not known",
        ENGINE,
        "self.config = config = _with_paying_nodes(",
        "self.config = _with_paying_nodes(",
        "actors/trees::as_many_nodes_as_pay_are_found_once_and_told",
    ),
    *(
        Mutant(name, path, old, new, (f"tests/actors/test_ahead.py::test_{test}",))
        for name, path, old, new, test in (
            (
                "never have a model draft again that was not worth it",
                "scheduler/core.py",
                "is_long_ago = self._num_steps_unasked >= _DRAFTED_AHEAD_EVERY\n",
                "is_long_ago = False\n",
                "a_model_that_costs_more_than_it_brings_is_asked_once_in_a_while",
            ),
            (
                "learn nothing from what a model drafted",
                "scheduler/sequence.py",
                "            self.lead.learn(had_text, max(0.0, lead))\n",
                "",
                "a_model_that_is_wrong_is_given_up_though_it_is_cheap",
            ),
            (
                "have the model draft whatever text promises",
                "scheduler/sequence.py",
                "had_text, self.had_text = self.had_text, bool(text.tokens)",
                "had_text = False",
                "the_model_is_not_asked_where_text_promises_more",
            ),
            (
                "draft ahead after what was there before the pass",
                "actors/runner.py",
                "_order(ask, [] if result is None else result.tokens)",
                "_order(ask)",
                "what_is_drafted_ahead_is_what_would_be_drafted_after",
            ),
            (
                "draft ahead where there is no block for the last token",
                "actors/runner.py",
                "has_room = not proposer.keeps_state or",
                "has_room = True or",
                "what_is_drafted_ahead_is_what_would_be_drafted_after",
            ),
            (
                "draft ahead past the end of the request",
                "actors/runner.py",
                "ask.max_depth - len(emitted)",
                "ask.max_depth",
                "what_is_drafted_ahead_is_what_would_be_drafted_after",
            ),
            (
                "take all for fed that a draft ahead may not have fed",
                "scheduler/sequence.py",
                "            self.covered = self.cached\n",
                "            self.covered = len(self.context)\n",
                "what_is_drafted_ahead_is_what_would_be_drafted_after",
            ),
            (
                "keep a draft ahead for the round after the next",
                "scheduler/sequence.py",
                "- 1\n        self.proposal = self.set_aside = self.ahead = None\n",
                "- 1\n        self.proposal = self.set_aside = None\n",
                "a_draft_made_ahead_is_for_the_next_round_and_no_other",
            ),
            (
                "let a draft that fails beside a pass take the pass with it",
                "actors/runner.py",
                "            return [], told(error)\n        return [_tree",
                "            raise\n        return [_tree",
                "a_draft_that_fails_beside_a_pass_costs_no_token",
            ),
        )
    ),
]

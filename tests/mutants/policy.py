"""Mistakes to plant in a sequence's rounds and in the policy."""

from tests.mutants.engine import SCHEDULING, mutant

CORE, SEQUENCE, WAITING = (f"scheduler/{name}.py" for name in ("core", "sequence", "waiting"))

MUTANTS = [
    # the round
    mutant(
        "do not tell the drafter what was emitted",
        SEQUENCE,
        "            self.drafter.append(kept)\n",
        "            pass\n",
        "known_failures/texts::each_row_of_a_mixed_batch_gets_its_own_draft",
    ),
    mutant(
        "draft from the prompt's uncached part only",
        SEQUENCE,
        "        self.drafter.append(self.context[start:end])\n",
        "        self.drafter.append([-1] * (end - start))\n",
        "known_failures/texts::a_prompt_from_the_prefix_cache_is_drafted_from_all_the_same",
    ),
    mutant(
        "leave the last round's draft in place",
        SEQUENCE,
        "        self.cached = len(self.context) - 1\n        self.proposal = None\n",
        "        self.cached = len(self.context) - 1\n",
        "scheduler/plan::a_draft_stays_the_same_until_its_round_is_settled",
        "known_failures/texts::each_row_of_a_mixed_batch_gets_its_own_draft",
    ),
    mutant(
        "start the generator over when a sequence is computed again",
        SEQUENCE,
        "        self.cached = self.covered = 0\n        self.proposal = None\n",
        "        self.cached = self.covered = 0\n        self.proposal = None\n"
        "        self.rng = stream(self.request.seed)\n",
        "actors/faults::a_pass_that_raises_is_computed_again_and_no_client_sees_it",
        "scheduler/admission::a_victim_keeps_its_tokens_its_generator_and_its_drafter_and_nothing_else",
    ),
    mutant(
        "leave the generator where it was before the round",
        SCHEDULING,
        "                sequence.rng.state = outcome.rng_state\n",
        "            pass\n",
        "actors/lossless::a_fixed_mix_whatever_the_measures",
    ),
    mutant(
        "draw choice 0 for every choice",
        SEQUENCE,
        " = stream(request.seed, request.choice)",
        " = stream(request.seed)",
        "actors/lossless::any_mix_of_requests_under_any_engine",
    ),
    mutant(
        "see the length before the stop id",
        SEQUENCE,
        "        if not self.stops.isdisjoint(kept):\n",
        "        if reason is None and not self.stops.isdisjoint(kept):\n",
        "known_failures/texts::a_stop_id_is_seen_before_the_length",
    ),
    mutant(
        "keep what a round emitted after the end",
        SEQUENCE,
        "            kept = kept[: end + 1]\n",
        "            kept = kept[: end + 2]\n",
        "known_failures/texts::an_eos_inside_an_accepted_run_ends_the_text",
    ),
    mutant(
        "count the bonus token of a settled round as accepted",
        CORE,
        "        num_accepted = min(len(tokens) - 1, len(emitted))\n",
        "        num_accepted = len(emitted)\n",
        "known_failures/texts::the_accept_rate_does_not_count_the_bonus_token_or_what_was_cut",
    ),
    mutant(
        "count as accepted what was cut behind an eos",
        CORE,
        "        num_accepted = min(len(tokens) - 1, len(emitted))\n",
        "        num_accepted = len(tokens) - 1\n",
        "known_failures/texts::the_accept_rate_does_not_count_the_bonus_token_or_what_was_cut",
    ),
    mutant(
        "blind the penalties to what was emitted",
        SCHEDULING,
        "            output=sequence.context[sequence.prompt_len :] if sequence.looks_back else (),\n",
        "            output=(),\n",
        "known_failures/texts::penalties_have_their_effect_with_drafts",
    ),
    mutant(
        "draft past the end of the request",
        SEQUENCE,
        "self.drafter.propose(min(self.speculative.k, most_layers))",
        "self.drafter.propose(self.speculative.k)",
        "scheduler/plan::drafts_never_run_past_the_end",
        "known_failures/texts::drafts_do_not_run_past_the_length_limit",
    ),
    # the policy
    mutant(
        "let a victim keep what it was planned for",
        SCHEDULING,
        "                self.core.put_off(put_off)\n                return plan\n",
        "                self.core.put_off(put_off)\n                return plan\n"
        "            plan = plan._replace(feeds=self.core.plan(10**6).feeds)\n"
        "            if plan.feeds:\n                for victim in plan.victims:\n"
        "                    self.core.preempt(victim)\n                    self._releases.append(victim.seq)\n"
        "                await self._ask_settle([])\n                return Plan(plan.feeds, [])\n",
        "known_failures/blocks::nothing_of_a_preempted_round_is_applied_later",
    ),
    mutant(
        "let a victim keep its length",
        SEQUENCE,
        "        self.cached = self.covered = 0\n        self.proposal = None\n",
        "        self.proposal = None\n",
        "scheduler/admission::a_victim_keeps_its_tokens_its_generator_and_its_drafter_and_nothing_else",
        "known_failures/blocks::nothing_of_a_preempted_round_is_applied_later",
    ),
    mutant(
        "preempt the first in rank",
        CORE,
        "        *others, first = sorted(self.running.values(), key=_last_to_run, reverse=True)\n",
        "        *others, first = sorted(self.running.values(), key=_last_to_run)\n",
        "scheduler/admission::victims_are_the_last_to_come",
    ),
    mutant(
        "shrink drafts that a sampled text depends on",
        SEQUENCE,
        "self.may_drop_draft = not depends_on_drafts(request, self.speculative)",
        "self.may_drop_draft = True",
        "scheduler/plan::a_sampled_round_keeps_its_draft_and_the_last_in_rank_gives_way",
        "scheduler/adaptive::a_draft_that_the_text_depends_on_is_never_cut",
    ),
    mutant(
        "do not count drafts against the budget",
        CORE,
        "        return self.num_pending + self.draft.num_nodes\n",
        "        return self.num_pending\n",
        "scheduler/plan::drafts_count_against_the_budget_and_the_chunk_gets_the_rest",
    ),
    mutant(
        "feed the last of a context without its round",
        CORE,
        "        num_fed = min(room, num_pending - 1)\n",
        "        num_fed = min(room, num_pending)\n",
        "scheduler/plan::the_last_token_of_a_context_is_fed_only_together_with_the_draft",
    ),
    mutant(
        "overlook the room in the last block",
        CORE,
        "        room = (blocks_for(sequence.cached, size) + available) * size - sequence.cached\n",
        "        room = available * size\n",
        "scheduler/plan::room_in_the_last_block_is_used_before_a_new_one_is_asked_for",
    ),
    mutant(
        "serve rounds in excess of the budget in the order of arrival",
        CORE,
        "        feeds.sort(key=lambda planned: (planned.sequence.last_served, planned.sequence.rank))\n",
        "",
        "scheduler/plan::rounds_in_excess_of_the_budget_take_turns",
    ),
    mutant(
        "admit more than may run",
        CORE,
        "        num_places = self.config.max_running - len(running)\n",
        "        num_places = self.config.max_running\n",
        "scheduler/admission::first_come_first_served",
    ),
    mutant(
        "overlook priorities",
        SEQUENCE,
        "        return (self.request.priority, self.seq)\n",
        "        return (0, self.seq)\n",
        "scheduler/admission::a_lower_priority_number_goes_first_and_equals_go_by_arrival",
    ),
    mutant(
        "let a cancelled request come up in the queue",
        WAITING,
        "            if sequence.seq in self._members:\n                return sequence\n",
        "            if True:\n                return sequence\n",
        "scheduler/admission::taking_from_the_middle_of_the_queue_leaves_the_order_of_the_others",
    ),
    mutant(
        "take no turns among those served together",
        CORE,
        "            self._num_served += 1\n            planned.sequence.last_served = self._num_served\n",
        "            planned.sequence.last_served = self._num_served\n        self._num_served += 1\n",
        "scheduler/plan::rounds_in_excess_of_the_budget_take_turns",
    ),
    mutant(
        "plan rounds for the paused",
        CORE,
        "        decodes = [s for s in unpaused if s.state is State.DECODE]\n",
        "        decodes = [s for s in self.running.values() if s.state is State.DECODE]\n",
        "scheduler/plan::a_pause_takes_a_sequence_out_of_the_pass",
    ),
    mutant(
        "charge the paused to the token budget",
        CORE,
        "                    if not s.is_paused and s.request.priority <= priority\n",
        "                    if s.request.priority <= priority\n",
        "scheduler/admission::a_paused_one_takes_nothing_of_the_token_budget",
        "actors/streams::those_who_do_not_read_hold_no_place_that_others_wait_for",
    ),
    mutant(
        "let the paused hold their places",
        CORE,
        "    return sequence.is_paused or sequence.request.priority > other.request.priority\n",
        "    return sequence.request.priority > other.request.priority\n",
        "scheduler/admission::the_paused_give_way_to_those_who_wait_for_a_place",
        "actors/streams::those_who_do_not_read_hold_no_place_that_others_wait_for",
    ),
]

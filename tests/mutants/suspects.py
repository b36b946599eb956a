"""Mistakes to plant in how the one that makes passes raise is found."""

from tests.mutants.engine import ENGINE, SCHEDULING, mutant

SUSPECTS = "actors/suspects.py"
ALONE = "actors/suspects::requests_whose_passes_raise_fail_alone_with_the_cause"
LATER = "actors/suspects::so_does_one_that_raises_only_later"

MUTANTS = [
    mutant(
        "try all suspects at once",
        SUSPECTS,
        "        if not suspects:\n            return plan, []\n",
        "        if True:\n            return plan, []\n",
        ALONE,
    ),
    mutant(
        "blame nobody",
        SCHEDULING,
        "            if cause is not None:\n",
        "            if False:\n",
        ALONE,
    ),
    mutant(
        "clear a suspect by the first chunk of its prompt",
        SUSPECTS,
        "if case is not None and (alone.is_round or alone.sequence.cached + alone.num_tokens >= case.end):",
        "if case is not None:",
        LATER,
    ),
    mutant(
        "blame whoever is alone when a pass raises",
        SUSPECTS,
        "_NUM_PROOFS = 4",
        "_NUM_PROOFS = 1",
        "actors/faults::a_pass_that_raises_is_computed_again_and_no_client_sees_it",
    ),
    mutant(
        "end the engine rather than fail the one to blame",
        ENGINE,
        "        return actor is self._runner and actor.is_at_it and self._scheduler.could_blame()\n",
        "        return False\n",
        "actors/suspects::an_idle_engine_outlives_several_one_after_the_other",
    ),
    mutant(
        "count crashes that one request is to blame for",
        SCHEDULING,
        "        if self._num_blamed <= self._config.max_restarts:\n            self._forgive()\n",
        "",
        "actors/suspects::an_idle_engine_outlives_several_one_after_the_other",
    ),
    mutant(
        "blame one request after the other for a model that is broken",
        SCHEDULING,
        "        if self._num_blamed <= self._config.max_restarts:\n",
        "        if True:\n",
        "actors/suspects::a_model_that_is_broken_for_good_is_given_up",
    ),
    mutant(
        "count crashes of suspects though others' passes come back",
        SCHEDULING,
        "        if self._suspects.came_back(plan.feeds):\n            self._forgive()\n",
        "        self._suspects.came_back(plan.feeds)\n",
        ALONE,
    ),
    mutant(
        "keep the case of a sequence that has ended",
        SCHEDULING,
        "        self._suspects.forget(seq)\n",
        "",
        "actors/suspects::a_suspect_may_leave",
    ),
]

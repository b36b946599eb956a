"""Mistakes to plant in fleets and sweeps."""

from tests.mutants.mutant import Mutant

ROUTING, FLEET = "tests/fleet/test_routing.py::test_", "tests/fleet/test_fleet.py::test_"

MUTANTS = [
    Mutant(
        "pass on again what a client has",
        "sims/fleet/delivery.py",
        "            return False\n        if index > num:",
        "            return True\n        if index > num:",
        (ROUTING + "whatever_attempts_there_are_every_token_is_passed_on_once_and_in_order",),
    ),
    Mutant(
        "believe a replica that says something else",
        "sims/fleet/delivery.py",
        "if self._delivered[index] != token:",
        "if False:",
        (ROUTING + "an_attempt_that_says_something_else_or_leaves_a_gap_is_found",),
    ),
    Mutant(
        "take a request that its replica took along for one that has ended",
        "sims/fleet/stream.py",
        "            and stream.error == engine.failure\n",
        "            and False\n",
        (FLEET + "no_token_is_lost_or_repeated_whoever_crashes",),
    ),
    Mutant(
        "send again what its client has left",
        "sims/fleet/door.py",
        "        if not routed.is_between:  # its client has left\n            return\n",
        "",
        (FLEET + "a_client_may_leave_between_two_replicas",),
    ),
    Mutant(
        "forget what was sent since a replica told of its queue",
        "sims/fleet/routing.py",
        "while sent and sent[0][0] <= time_s:",
        "while sent:",
        (ROUTING + "least_tokens_counts_what_it_sent_since_it_was_told",),
    ),
    Mutant(
        "believe in the cache of a replica that is gone",
        "sims/fleet/routing.py",
        "        self._known[replica].clear()\n",
        "",
        (ROUTING + "prefix_goes_where_the_prompt_has_been_unless_the_queue_costs_more",),
    ),
    Mutant(
        "drain a replica while it is at something",
        "sims/fleet/replica.py",
        "                if not len(self._still_open()):\n                    return\n",
        "                self._crash = self._drain\n                return\n",
        (FLEET + "a_drained_replica_loses_nothing",),
    ),
]

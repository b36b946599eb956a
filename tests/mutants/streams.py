"""More mistakes to plant in streams, names and books of the actors."""

from tests.mutants.engine import ACTOR, BLOCKS, ENGINE, SCHEDULING, STREAM, mutant

MUTANTS = [
    mutant(
        "pause who does not read only when a round has come too many",
        STREAM,
        "        self._is_paused = len(self._buffer) + self._largest_round > self._capacity\n",
        "        self._is_paused = len(self._buffer) > self._capacity\n",
        "actors/streams::a_client_that_does_not_read_pauses_its_own_sequence_and_no_other",
    ),
    mutant(
        "throw away what a client that leaves too late has not read",
        STREAM,
        "        self.finish_reason = reason\n        self.error = error\n",
        "        self.finish_reason = reason\n        self.error = error\n        self._buffer.clear()\n",
        "actors/lossless::a_fixed_mix_whatever_the_measures",
        "actors/lifetime::by_its_end",
    ),
    mutant(
        "keep what a client that has left did not read",
        STREAM,
        "        self._buffer.clear()\n",
        "",
        "actors/leaving::what_was_there_and_not_read_does_not_follow_either",
    ),
    mutant(
        "give a name that a client took",
        ENGINE,
        '            request_id += "-"\n',
        "            break\n",
        "actors/submit::a_name_that_a_client_took_is_not_given_to_another",
    ),
    mutant(
        "let one more wait than may",
        ENGINE,
        "num_open + num_requests > config.max_running + config.max_waiting",
        "num_open >= config.max_running + config.max_waiting + num_requests",
        "actors/submit",
    ),
    mutant(
        "never check all of the pool",
        BLOCKS,
        "self.num_checks % self._config.audit_every == 0",
        "self.num_checks % self._config.audit_every == -1",
        "actors/crashes::a_block_manager_that_crashes_ends_the_open_streams_and_the_engine_goes_on",
    ),
    mutant(
        "remember cancels of what has ended",
        SCHEDULING,
        "elif seq > self._last_seq:",
        "else:",
        "actors/garbage::nothing_is_remembered_of_cancels_that_came_too_late",
    ),
    mutant(
        "take any answer for the one that was asked for",
        ACTOR,
        "        if not isinstance(answer, kind):\n",
        "        if False:\n",
        "actors/crashes::an_answer_of_another_kind_than_was_asked_for_is_an_error",
    ),
]

"""More mistakes to plant in streams, names and books of the actors."""

from tests.mutants.engine import ACTOR, BLOCKS, ENGINE, SCHEDULING, STREAM, mutant

MUTANTS = [
    mutant(
        "pause who does not read only when a round has come too many",
        STREAM,
        "        self._is_paused = self._num_unread + self._largest_round > self._capacity\n",
        "        self._is_paused = self._num_unread > self._capacity\n",
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
        "        self._buffer.clear()\n        self._num_taken = self._num_unread = 0\n",
        "",
        "actors/leaving::what_was_there_and_not_read_does_not_follow_either",
    ),
    mutant(
        "hand over all of a round that was read in part",
        STREAM,
        "            first, self._num_taken = first.past(self._num_taken), 0\n",
        "            self._num_taken = 0\n",
        "actors/streams::rounds_go_on_where_a_reader_of_tokens_has_stopped",
    ),
    mutant(
        "take each token read for a round",
        STREAM,
        "        self._num_unread -= len(first.ids)\n",
        "        self._num_unread -= 1\n",
        "actors/streams::who_reads_rounds_is_paused_and_leaves_like_who_reads_tokens",
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

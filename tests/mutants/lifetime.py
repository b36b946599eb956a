"""Mistakes to plant in how an engine begins and ends, and in what a stream promises its one reader."""

from tests.mutants.engine import BLOCKS, ENGINE, RUNNER, SCHEDULING, STREAM, SUPERVISOR, mutant

CANCELLED = "actors/strikes::cancelled_tasks_end_the_engine_within_a_pass"
OF_ITSELF = "actors/strikes::a_model_that_raises_what_is_otherwise_sent_is_computed_again"

MUTANTS = [
    mutant(
        "count a restart once for each sequence that starts over",
        SCHEDULING,
        "        for sequence in list(self.core.running.values()):\n            self.core.preempt(sequence)\n",
        "        for sequence in list(self.core.running.values()):\n            self.core.preempt(sequence)\n"
        "            self._runner.num_restarts += 1\n",
        "explore/faults::restarts_of_the_runner_are_counted_and_no_others",
    ),
    mutant(
        "count no restart of the runner",
        RUNNER,
        "        self.num_restarts += 1\n",
        "        pass\n",
        "explore/faults::restarts_of_the_runner_are_counted_and_no_others",
    ),
    mutant(
        "check everything but the prefix index",
        BLOCKS,
        "self._audit(self.ledger.check, self.ledger.pool.check_index)",
        "self._audit(self.ledger.check)",
        "actors/crashes::a_check_of_everything_walks_the_prefix_index",
    ),
    mutant(
        "take a cancel that was sent for a crash",
        SUPERVISOR,
        "            return task.cancelling() > 0\n",
        "            return False\n",
        CANCELLED,
    ),
    mutant(
        "take a cancel that nobody sent for one that was",
        SUPERVISOR,
        "            return task.cancelling() > 0\n",
        "            return True\n",
        OF_ITSELF,
    ),
    mutant(
        "take a GeneratorExit that nobody sent for one that was",
        SUPERVISOR,
        "                return asyncio.current_task() is not task\n",
        "                return True\n",
        OF_ITSELF,
    ),
    mutant(
        "survive errors only, and not all that can be raised",
        SUPERVISOR,
        "            except BaseException as error:\n                if _was_sent(error, task):\n",
        "            except Exception as error:\n                if _was_sent(error, task):\n",
        OF_ITSELF,
    ),
    mutant(
        "leave the other actors running when one has ended",
        ENGINE,
        "            other.cancel()\n",
        "            pass\n",
        CANCELLED,
        "actors/lifetime::with_nothing_open",
    ),
    mutant(
        "leave the streams open when a task of the engine is cancelled",
        ENGINE,
        "        if self.failure is not None:\n            self._scheduler.end_all(",
        "        if error is not None:\n            self._scheduler.end_all(",
        CANCELLED,
    ),
    mutant(
        "wait for the scheduler to find out that the runner is gone",
        ENGINE,
        "            task.add_done_callback(self._end)\n",
        "            if actor is self._scheduler:\n                task.add_done_callback(self._end)\n",
        CANCELLED,
        "actors/strikes::a_paused_stream_ends_when_a_runner_is_given_up_between_two_passes",
    ),
    mutant(
        "swallow a cancel during the engine's end",
        ENGINE,
        "            raise cancelled_again\n",
        "            pass\n",
        "actors/strikes::a_cancel_during_the_end_of_the_engine_goes_on_after_it",
    ),
    mutant(
        "take requests while closing",
        ENGINE,
        "        self._is_open = False\n        if not self._is_over:\n",
        "        if not self._is_over:\n",
        "actors/strikes::a_request_that_comes_while_the_engine_closes_is_refused",
    ),
    mutant(
        "take messages from any thread",
        ENGINE,
        "        if _running_loop() is not self._loop:\n",
        "        if False:\n",
        "actors/loops::another_thread_is_refused_and_loses_nothing",
    ),
    mutant(
        "enter an engine twice",
        ENGINE,
        "        if self._loop is not None:\n",
        "        if False:\n",
        "actors/loops::it_runs_once",
    ),
    mutant(
        "let anyone read a stream beside its reader",
        STREAM,
        "            if self._has_reader and not self._has_left:\n",
        "            if False:\n",
        "actors/streams::a_stream_has_one_reader",
    ),
    mutant(
        "let a reader that is refused cancel the other",
        STREAM,
        '                raise RuntimeError(f"stream {self.id} has a reader already: one at a time")\n',
        "                self.leave()\n"
        '                raise RuntimeError(f"stream {self.id} has a reader already: one at a time")\n',
        "actors/streams::a_stream_has_one_reader",
    ),
    mutant(
        "let a reader go without the reason when another task has left",
        STREAM,
        "                if self._has_left:  # by another task\n                    await self._until_end()\n",
        "                if self._has_left:\n                    return\n",
        "actors/streams::a_loop_that_another_task_ends_leaves_the_reason",
    ),
    mutant(
        "resume a paused stream only when its buffer is empty",
        STREAM,
        "2 * unread <= self._capacity",
        "unread == 0",
        "actors/streams::a_paused_sequence_goes_on_when_half_is_read",
    ),
    mutant(
        "count all of a round that is given out in part",
        STREAM,
        "min(accepted, num_pushed, num_left)",
        "min(accepted, num_pushed)",
        "actors/streams::what_speculation_did_follows_the_tokens_that_are_given_out",
    ),
    mutant(
        "leave the available blocks as they were before a restart",
        SCHEDULING,
        "        self._available = self._config.num_blocks\n        self._streams",
        "        self._streams",
        "actors/crashes::after_a_restart_there_is_room_for_as_many_as_before",
    ),
    mutant(
        "leave the available blocks as they were before the runner's crash",
        SCHEDULING,
        "ForgetAll(), Settled)\n        self._available = answer.available\n",
        "ForgetAll(), Settled)\n        del answer\n",
        "actors/faults::a_crash_leaves_room_for_all_who_ran",
    ),
    mutant(
        "tell a client no cause of a restart",
        SCHEDULING,
        '"error", f"the scheduler was restarted: {self.last_crash}"',
        '"error", "the scheduler was restarted"',
        "actors/crashes::a_block_manager_that_crashes_ends_the_open_streams_and_the_engine_goes_on",
    ),
    mutant(
        "let a pass wait for the process's other threads",
        RUNNER,
        ", limiter=anyio.CapacityLimiter(1)",
        "",
        "actors/isolation::passes_wait_for_no_thread_of_the_program",
    ),
    mutant(
        "work on the model itself",
        RUNNER,
        "        self._model, self._proposer = copy.copy(self._model), copy.copy(self._proposer)\n",
        "        self._model = copy.copy(self._model) if hasattr(self, '_is_bound') else self._model\n"
        "        self._is_bound = True\n",
        "actors/isolation::one_model_may_serve_several_engines",
    ),
]

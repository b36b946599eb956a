"""Mistakes to plant in the actors, and in the life of blocks between them."""

from tests.mutants.mutant import Mutant

SCHEDULING, STREAM, RUNNER, BLOCKS = (f"actors/{name}.py" for name in ("scheduling", "stream", "runner", "blocks"))
ACTOR, ENGINE, MAILBOX, SUPERVISOR = (f"actors/{name}.py" for name in ("actor", "engine", "mailbox", "supervisor"))
LEDGER, EXECUTION = "kvpool/ledger.py", "models/execution.py"


def mutant(name: str, path: str, old: str, new: str, *tests: str) -> Mutant:
    """`tests` are `folder/file::test`, under tests/ and without `test_`, or `folder/file` for all of a file's."""
    return Mutant(name, path, old, new, tuple(map(_node, tests)))


def _node(short: str) -> str:
    place, _, test = short.partition("::")
    folder, _, file = place.partition("/")
    return f"tests/{folder}/test_{file}.py" + (f"::test_{test}" if test else "")


MUTANTS = [
    # the fence
    mutant(
        "give a cancelled sequence's blocks back while its pass runs",
        SCHEDULING,
        "            done = await self.ask(self._runner, Step(self.counters.num_steps, feeds, ahead), StepDone)\n",
        "            step = self.ask(self._runner, Step(self.counters.num_steps, feeds, ahead), StepDone)\n"
        "            asyncio = __import__('asyncio')\n"
        "            asking = asyncio.ensure_future(step)\n"
        "            while not asking.done():\n"
        "                await asyncio.sleep(0.1)\n"
        "                self._take_cancels()\n"
        "                await self._give_back()\n"
        "            done = await asking\n",
        "known_failures/blocks::blocks_of_one_cancelled_during_a_pass_come_back_once_and_after_it",
    ),
    mutant(
        "apply the late output of a cancelled sequence",
        SCHEDULING,
        "            if sequence.seq not in live:\n",
        "            if False:\n",
        "actors/cancel::cancel_in_the_pass_that_would_have_been_the_last",
    ),
    mutant(
        "publish a pass before hearing who left during it",
        SCHEDULING,
        "        self._take_cancels()\n        return plan, done\n",
        "        return plan, done\n",
        "actors/cancel::what_a_cancel_wasted_and_where_it_struck_are_counted",
    ),
    mutant(
        "index a prompt when its pass is scheduled",
        SCHEDULING,
        "        self.counters.num_steps += 1\n",
        "        self.counters.num_steps += 1\n"
        "        early = [(p.sequence.seq, p.ids[: p.num_pending]) for p in plan.feeds]\n"
        "        await self.ask(self._blocks, Settle(early, []), Settled)\n",
        "known_failures/blocks::a_block_is_not_shared_before_the_pass_that_fills_it_has_returned",
    ),
    mutant(
        "close the streams before their blocks are back",
        SCHEDULING,
        "        if self._releases:\n            await self._ask_settle([])\n        self._close_streams()\n",
        "        self._close_streams()\n        if self._releases:\n            await self._ask_settle([])\n",
        "actors/streams::a_paused_client_may_leave",
    ),
    mutant(
        "skip the rollback where all of a draft is rejected",
        LEDGER,
        "        num_released = shorten(self.pool, sequence.table, length)\n",
        "        num_released = 0 if len(tokens) == 1 else shorten(self.pool, sequence.table, length)\n",
        "known_failures/blocks::what_was_taken_for_drafts_is_back_after_every_round",
    ),
    mutant(
        "keep the room of rejected drafts reserved",
        LEDGER,
        "        sequence.cached = sequence.reserved = length\n",
        "        sequence.cached = length\n",
        "known_failures/blocks::what_was_taken_for_drafts_is_back_after_every_round",
    ),
    mutant(
        "keep the prefix index when the model's memory is lost",
        LEDGER,
        "            self.release(seq)\n        self.pool.forget_all()\n",
        "            self.release(seq)\n",
        "actors/faults::a_pass_that_raises_is_computed_again_and_no_client_sees_it",
    ),
    mutant(
        "share prefixes over salts",
        "scheduler/core.py",
        "Candidate(sequence.seq, sequence.context, sequence.salt,",
        "Candidate(sequence.seq, sequence.context, None,",
        "known_failures/blocks::prefixes_are_shared_within_a_salt_only",
    ),
    # messages
    mutant(
        "let control wait behind work",
        MAILBOX,
        "        self._control.append(envelope)\n",
        "        self._work.append(envelope)\n",
        "actors/mailbox::control_overtakes_work_and_each_lane_keeps_its_order",
        "actors/cancel::cancel_in_the_tick_of_the_submit_takes_nothing",
    ),
    mutant(
        "drop what a full mailbox cannot take",
        MAILBOX,
        "        while len(self._work) >= self._capacity:\n",
        "        while len(self._work) >= self._capacity:\n            return\n",
        "actors/mailbox",
    ),
    mutant(
        "lose the turn of a sender that is cancelled on it",
        MAILBOX,
        "                    self._wake_writer()  # the turn was given and not used: pass it on\n",
        "                    pass\n",
        "actors/mailbox::a_sender_cancelled_on_its_turn_passes_the_turn_on",
    ),
    mutant(
        "wake no sender when a message is taken",
        MAILBOX,
        "            envelope = self._work.popleft()\n            self._wake_writer()\n",
        "            envelope = self._work.popleft()\n",
        "actors/mailbox::a_full_lane_makes_the_sender_wait_and_control_does_not",
    ),
    mutant(
        "lose an answer",
        ACTOR,
        "            self._in_hand = None\n            self._answer(envelope, answer)\n",
        "            self._in_hand = None\n            if type(answer).__name__ != 'Reserved':\n"
        "                self._answer(envelope, answer)\n",
        "actors/lossless::a_fixed_mix_whatever_the_measures",
    ),
    mutant(
        "forget the cancel of a request that is not seen yet",
        SCHEDULING,
        "                    self._cancelled_unseen.add(seq)\n",
        "                    pass\n",
        "actors/cancel::cancel_in_the_tick_of_the_submit_takes_nothing",
    ),
    mutant(
        "pass over messages that the scheduler does not know",
        SCHEDULING,
        '                raise TypeError(f"{self.name} does not know {type(message).__name__}")\n',
        "                pass\n",
        "actors/messages::a_message_the_scheduler_does_not_know_is_an_error_and_not_passed_over",
    ),
    # clients
    mutant(
        "do not check whether an id is in use",
        ENGINE,
        "        if request_id in self._streams:\n",
        "        if False:\n",
        "actors/submit::an_id_is_taken_until_its_request_has_ended",
    ),
    mutant(
        "keep an id taken after its request has ended",
        STREAM,
        "        del self._by_id[stream.id]\n",
        "",
        "actors/cancel::an_id_can_be_used_again_as_soon_as_cancel_returns",
    ),
    mutant(
        "let a client leave its loop without cancelling",
        STREAM,
        "            self._has_reader = False\n            self.leave()\n",
        "            self._has_reader = False\n",
        "actors/leaving::leaving_cancels_the_request_and_wastes_one_step_at_most",
    ),
    mutant(
        "return from a cancel at once",
        STREAM,
        "        self.leave()\n        await self._until_end()\n",
        "        self.leave()\n",
        "actors/cancel::cancel_is_legal_at_every_instant_and_returns_when_nothing_is_held",
    ),
    mutant(
        "hand tokens to a client that has left",
        STREAM,
        "        if not self._has_left:\n            num_tokens",
        "        if True:\n            num_tokens",
        "actors/cancel::cancel_is_legal_at_every_instant_and_returns_when_nothing_is_held",
    ),
    mutant(
        "never pause who does not read",
        STREAM,
        "        return not self._is_paused\n",
        "        return True\n",
        "actors/streams::a_client_that_does_not_read_pauses_its_own_sequence_and_no_other",
    ),
    mutant(
        "never let a paused sequence go on",
        STREAM,
        "            self._send(Resume(self.seq))\n",
        "",
        "actors/streams::a_client_that_does_not_read_pauses_its_own_sequence_and_no_other",
    ),
    mutant(
        "tie a stream to itself",
        STREAM,
        "        self._ended: asyncio.Event | None = None  # made by who waits for it\n",
        "        self._ended: asyncio.Event | None = None\n        self._self = self\n",
        "actors/garbage::of_what_has_ended_nothing_is_alive",
    ),
    # failure and the end
    mutant(
        "go on with the crashed pass's memory, bound anew",
        RUNNER,
        "        self._model, self._proposer = copy.copy(self._model), copy.copy(self._proposer)\n",
        "",
        "actors/faults::a_late_pass_writes_into_no_block_that_somebody_else_has_by_then",
    ),
    mutant(
        "go on with the crashed pass's memory",
        RUNNER,
        '        """Go on with fresh memory."""\n        self._bind_copy()\n',
        '        """Go on with fresh memory."""\n',
        "actors/faults::a_late_pass_writes_into_no_block_that_somebody_else_has_by_then",
    ),
    mutant(
        "wait for a pass for ever",
        RUNNER,
        "timeout(self._config.pass_timeout_s)",
        "timeout(None)",
        "actors/faults::a_pass_that_hangs_is_given_up_and_what_it_writes_late_is_read_by_nobody",
    ),
    mutant(
        "go on with the lengths that were cached before the crash",
        SCHEDULING,
        "        for sequence in list(self.core.running.values()):\n            self.core.preempt(sequence)\n",
        "",
        "actors/faults::a_pass_that_raises_is_computed_again_and_no_client_sees_it",
    ),
    mutant(
        "fail a whole pass for one row of nonsense",
        EXECUTION,
        "    except SpecError:\n        pass\n",
        "    except SpecError:\n        raise\n",
        "actors/faults::rows_of_nonsense_fail_their_own_request_and_no_other",
    ),
    mutant(
        "restart once more than may be",
        SUPERVISOR,
        "        return len(self._crashes) > self._max_restarts\n",
        "        return len(self._crashes) > self._max_restarts + 1\n",
        "actors/faults::a_model_that_raises_too_often_ends_every_stream_and_the_engine",
    ),
    mutant(
        "never forget a crash",
        SUPERVISOR,
        "        while self._crashes[0] <= now - self._period_s:\n            self._crashes.popleft()\n",
        "",
        "actors/crashes::crashes_of_the_block_manager_far_enough_apart_are_never_too_many",
    ),
    mutant(
        "tell nobody of a crash that nobody waited on",
        ACTOR,
        "            if self._untold is not None and _fail(envelope, self._untold):\n",
        "            if False:\n",
        "actors/crashes::a_runner_that_dies_between_two_messages_is_noticed",
    ),
    mutant(
        "restart the scheduler without the block manager",
        ENGINE,
        "(self._scheduler, (self._blocks,)))",
        "(self._scheduler, ()))",
        "actors/crashes::a_scheduler_that_crashes_ends_the_open_streams_and_the_engine_goes_on",
    ),
    mutant(
        "keep the blocks when the engine gives up",
        ENGINE,
        "            self._blocks.restart()\n",
        "",
        "actors/faults::a_model_that_raises_too_often_ends_every_stream_and_the_engine",
    ),
    mutant(
        "take in a request whose stream has ended with all others",
        SCHEDULING,
        "            case Submit(seq, _) if not self._streams.is_open(seq):",
        "            case Submit(seq, _) if False:",
        "actors/crashes::a_scheduler_that_crashes_ends_the_open_streams_and_the_engine_goes_on",
    ),
    mutant(
        "serve to the end what came in as the engine stopped",
        SCHEDULING,
        "                if self._is_stopping or seq in self._cancelled_unseen:\n",
        "                if seq in self._cancelled_unseen:\n",
        "actors/lifetime::before_anything_was_taken_in",
    ),
    mutant(
        "stop with a request in the mailbox",
        SCHEDULING,
        " or self._ending or len(self.mailbox):\n",
        " or self._ending:\n",
        "actors/lifetime::with_a_request_that_came_during_the_last_pass",
    ),
    mutant(
        "let a second cancel of the task end the engine's end",
        ENGINE,
        "                    cancelled_again = cancelled\n",
        "                    raise\n",
        "actors/lifetime::by_cancelling_the_task_that_is_in_it_however_often",
    ),
    mutant(
        "answer messages that the block manager does not know",
        BLOCKS,
        "            case _:\n                return await super().handle(message)\n",
        "            case _:\n                return message\n",
        "actors/messages::the_block_manager_refuses_what_it_does_not_know",
    ),
    mutant(
        "hand out the counters themselves",
        SCHEDULING,
        "self.counters.copied()",
        "self.counters",
        "actors/streams::numbers_read_earlier_do_not_change",
    ),
    mutant(
        "look for a sender that has been passed over among those who wait",
        MAILBOX,
        "                if turn in self._writers:\n",
        "                if turn.cancelled():\n",
        "actors/mailbox::a_sender_cancelled_just_before_a_message_is_taken_is_cancelled_and_nothing_else",
    ),
]

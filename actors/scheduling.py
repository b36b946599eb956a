"""The scheduler: the owner of every sequence's state and drafter, and the one who drives the steps."""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as SequenceOf
from itertools import repeat
from typing import Literal

import anyio.lowlevel

from actors.actor import Actor, ActorCrashed, Tap
from actors.blocks import BlockManager
from actors.messages import (
    Admit,
    Admitted,
    Cancel,
    ForgetAll,
    Message,
    Outcome,
    Propose,
    Proposed,
    Reserve,
    Reserved,
    Resume,
    Settle,
    Settled,
    Step,
    StepDone,
    Stop,
    Submit,
)
from actors.runner import ModelRunner
from actors.snapshot import SequenceView, view
from actors.stats import Counters, Load
from actors.step_parts import draft_ask, feed, proposal
from actors.stream import OpenStreams
from actors.suspects import Suspects
from scheduler import EngineConfig, FinishReason, PassCost, Plan, Planned, Scheduler, Sequence, State


class SchedulerActor(Actor):
    """Takes Submit, Cancel, Resume and Stop from clients; asks the block manager and the runner, step by step."""

    def __init__(
        self,
        config: EngineConfig,
        max_model_len: int,
        streams: OpenStreams,
        blocks: BlockManager,
        runner: ModelRunner,
        tap: Tap | None,
        pass_cost: PassCost | None,
        forgive: Callable[[], None],
    ) -> None:
        super().__init__("scheduler", tap)
        self._pass_cost = pass_cost
        self._config = config
        self._max_model_len = max_model_len
        self._streams = streams
        self._blocks = blocks
        self._runner = runner
        self.counters = Counters()
        self.core = Scheduler(config, pass_cost)
        self._suspects = Suspects()
        self._forgive = forgive
        self._num_blamed = 0  # since a pass last came back
        self._live: dict[int, Sequence] = {}
        self._ending: list[tuple[int, FinishReason, str | None]] = []
        self._releases: list[int] = []
        self._available = config.num_blocks
        self._in_pass: frozenset[int] = frozenset()
        self._last_seq = -1
        self._cancelled_unseen: set[int] = set()
        self._is_stopping = False

    async def run(self) -> None:
        """Tick until stopped and nothing is open."""
        while not self._is_stopping or self._live or self._ending or len(self.mailbox):
            await self.tick()

    async def tick(self) -> None:
        """Do one step: take messages, plan, run the pass, settle what came back, publish."""
        while (envelope := self.mailbox.take()) is not None:
            self._take(envelope.message)
        await self._give_back()
        plan = await self._plan()
        if not plan.feeds:
            if plan.is_catching_up:
                await anyio.lowlevel.checkpoint()
            elif not self._is_stopping:
                await self.mailbox.wait()
            return
        passed = await self._pass(plan)
        if passed is not None:
            await self._settle(*passed)

    # what others may see of it, between two messages

    @property
    def num_running(self) -> int:
        """Sequences that are admitted and have not ended."""
        return len(self.core.running)

    def load(self) -> Load:
        """Count what there is to do, with a copy of the counters."""
        running, parked = self.core.running.values(), self.core.parked
        num_paused = len(parked) + sum(sequence.is_paused for sequence in running)
        counters = self.counters.copied()
        counters.num_restarts = self._runner.num_restarts
        return Load(len(running), num_paused, len(parked), counters)

    def running_seqs(self) -> list[int]:
        """List who may hold blocks."""
        return list(self.core.running)

    def views(self, num_blocks: Mapping[int, int], most: int, first: int) -> tuple[list[SequenceView], int]:
        """Describe at most so many of the sequences that have not ended, from one on, and tell how many there are."""
        live = self.core.live()
        shown = live[first : first + most]
        return [view(sequence, num_blocks.get(sequence.seq, 0)) for sequence in shown], len(live)

    # messages from clients

    def _take(self, message: Message) -> None:
        match message:
            case Submit(seq, _) if not self._streams.is_open(seq):  # it has ended, with all others, on its way here
                self._last_seq = seq
                self._cancelled_unseen.discard(seq)
            case Submit(seq, request):
                speculative = request.speculative or self._config.speculative
                sequence = Sequence(
                    seq,
                    request,
                    speculative,
                    self._max_model_len,
                    self.core.finished,
                    keeps_draft_state=self._runner.keeps_draft_state,
                    is_adaptive=self.core.is_adaptive,
                )
                self._live[seq] = sequence
                self._last_seq = seq
                self.core.submit(sequence)
                self.counters.num_submitted += 1
                if self._is_stopping or seq in self._cancelled_unseen:
                    self._cancelled_unseen.discard(seq)
                    self._cancel(sequence)
            case Cancel(seq):
                if (found := self._live.get(seq)) is not None:
                    self._cancel(found)
                elif seq > self._last_seq:  # it has overtaken the request it is about
                    self._cancelled_unseen.add(seq)
            case Resume(seq):
                if (found := self._live.get(seq)) is not None:
                    self.core.resume(found)
            case Stop():
                self._is_stopping = True
                for sequence in list(self._live.values()):
                    self._cancel(sequence)
            case _:
                raise TypeError(f"{self.name} does not know {type(message).__name__}")

    def _cancel(self, sequence: Sequence) -> None:
        phase = str(sequence.state) + ("_pass" if sequence.seq in self._in_pass else "")
        by_phase = self.counters.cancels_by_phase
        by_phase[phase] = by_phase.get(phase, 0) + 1
        self.counters.num_cancelled += 1
        self._end(sequence, State.CANCELLED, "cancelled")

    def _fail(self, sequence: Sequence, why: str) -> None:
        self.counters.num_failed += 1
        self._end(sequence, State.FAILED, "error", why)

    def _end(self, sequence: Sequence, state: State, reason: FinishReason, error: str | None = None) -> None:
        """Let a sequence end. Its stream closes only when its blocks are back."""
        self.core.end(sequence, state)
        self._let_go(sequence.seq, reason, error)

    def _let_go(self, seq: int, reason: FinishReason, error: str | None) -> None:
        del self._live[seq]
        self._suspects.forget(seq)
        self._releases.append(seq)
        self._ending.append((seq, reason, error))

    # the phases of a step

    async def _give_back(self) -> None:
        """Return the blocks of those that ended between passes."""
        if self._releases:
            await self._ask_settle([])
        self._close_streams()

    async def _plan(self) -> Plan:
        """Admit, plan, and preempt until there is a pass that fits, or nothing to run."""
        while True:
            await self._admit()
            plan = self.core.plan(self._available)
            if not plan.victims:
                plan, put_off = self._suspects.narrow(plan)
                self.core.put_off(put_off)
                return plan
            for victim in plan.victims:
                self._preempt(victim)
                self._releases.append(victim.seq)
            await self._ask_settle([])

    async def _admit(self) -> None:
        entry = self.core.candidates(self._available)
        if entry is None:
            return
        answer = await self.ask(self._blocks, Admit(*entry), Admitted)
        self._available = answer.available
        for seq in answer.preempted:
            self._preempt(self._live[seq])
        for candidate, cached in zip(entry.candidates, answer.cached, strict=True):
            sequence = self._live[candidate.seq]
            self.core.admitted(sequence, cached)
            if sequence.num_preemptions == 0 and cached is not None:
                self.counters.num_prompt_tokens += sequence.prompt_len
                self.counters.num_cached_tokens += cached
                self._streams.admitted(sequence.seq, cached)

    def _preempt(self, sequence: Sequence) -> None:
        self.core.preempt(sequence)
        self.counters.num_preemptions += 1

    async def _pass(self, plan: Plan) -> tuple[Plan, StepDone] | None:
        """Reserve the blocks, draft, and run the pass; None where the runner crashed and all is computed again."""
        asks = [(planned.sequence.seq, planned.num_tokens) for planned in plan.feeds]
        reserved = await self.ask(self._blocks, Reserve(asks), Reserved)
        self._available = reserved.available
        self.counters.num_steps += 1
        self._in_pass = frozenset(seq for seq, _ in asks)
        num_tokens = 0
        try:
            plan = await self._draft(plan, reserved.tables)
            feeds = list(map(feed, plan.feeds, reserved.tables, repeat(self._config.block_tokens)))
            num_tokens = sum(len(fed.ids) for fed in feeds)
            self.counters.num_fed_tokens += num_tokens
            ahead = [
                draft_ask(planned, table)
                for planned, table in zip(plan.feeds, reserved.tables, strict=True)
                if planned.sequence.wants_ahead and planned.ends_context and planned.sequence.num_layers_ahead
            ]
            done = await self.ask(self._runner, Step(self.counters.num_steps, feeds, ahead), StepDone)
        except ActorCrashed as crash:
            cause = self._suspects.raised(plan.feeds, is_in_need=crash.is_excess) if crash.is_of_this else None
            if cause is not None:
                self._blame(cause, f"passes of this request alone fail: {crash}")
            self._take_cancels()
            self.counters.num_wasted_tokens += num_tokens
            await self._recompute_all()
            return None
        self._num_blamed = 0
        if self._suspects.came_back(plan.feeds):
            self._forgive()
        self._take_cancels()
        return plan, done

    async def _draft(self, plan: Plan, tables: list[list[int]]) -> Plan:
        """Have a model make the drafts that are due, for all sequences in one message."""
        if not self._runner.has_proposer:
            return plan
        asks = [
            draft_ask(planned, table) for planned, table in zip(plan.feeds, tables, strict=True) if planned.draft.is_due
        ]
        if not asks:
            return plan
        proposed = await self.ask(self._runner, Propose(self.counters.num_steps, asks), Proposed)
        if proposed.error is not None:
            self.counters.num_failed_proposals += 1
        return self.core.drafted(plan, {tree.seq: proposal(tree) for tree in proposed.trees})

    def could_blame(self) -> bool:
        """Tell whether the pass under way, should it raise, could be laid to one request: the supervisor asks."""
        return self._suspects.could_blame(self._in_pass)

    def _blame(self, sequence: Sequence, why: str) -> None:
        """Fail the one whose passes raise; where no pass comes back after several of them, it is not they."""
        self._fail(sequence, why)
        self._num_blamed += 1
        if self._num_blamed <= self._config.max_restarts:
            self._forgive()

    def _take_cancels(self) -> None:
        """Hear who left during the pass before anything is published: their late output is dropped."""
        while (envelope := self.mailbox.take_control()) is not None:
            self._take(envelope.message)
        self._in_pass = frozenset()

    async def _recompute_all(self) -> None:
        """Start every running sequence over: the runner's memory is gone, the tokens and generators are here."""
        for sequence in list(self.core.running.values()):
            self.core.preempt(sequence)
        answer = await self.ask(self._blocks, ForgetAll(), Settled)
        self._available = answer.available

    async def _settle(self, plan: Plan, done: StepDone) -> None:
        """Keep what was verified, give back what was not, then tell the clients."""
        counters, live, settle = self.counters, self._live, self.core.settle
        commits: list[tuple[int, SequenceOf[int], int | None]] = []
        published: list[tuple[Planned, Outcome, list[int]]] = []
        has_fed_proposer = done.proposer_error is None
        if not has_fed_proposer:
            counters.num_failed_proposals += 1
        ahead = {tree.seq: proposal(tree) for tree in done.trees}
        for planned, outcome in zip(plan.feeds, done.outcomes, strict=True):
            sequence = planned.sequence
            if sequence.seq not in live:
                counters.num_wasted_tokens += planned.num_tokens
                continue
            if outcome.error is not None:
                self._fail(sequence, outcome.error)
                continue
            if planned.is_round:
                sequence.rng.state = outcome.rng_state
            drafted = ahead.get(sequence.seq)
            settled = settle(planned, outcome.tokens, drafted, has_fed_proposer=has_fed_proposer)
            commits.append((sequence.seq, settled.verified, sequence.covered if sequence.has_draft_state else None))
            if planned.is_round:
                counters.add_round(planned.draft, settled.num_accepted)
                published.append((planned, outcome, settled.emitted))
            if settled.finish_reason is not None:
                counters.num_finished[settled.finish_reason] += 1
                self._let_go(sequence.seq, settled.finish_reason, None)
        await self._ask_settle(commits)
        push = self._streams.push
        for planned, outcome, tokens in published:
            counters.num_emitted_tokens += len(tokens)
            sequence, logprobs = planned.sequence, outcome.logprobs
            if logprobs is not None:
                logprobs = logprobs[: len(tokens)]
            num_drafted, num_accepted = planned.draft.num_nodes, len(outcome.tokens) - 1
            sequence.is_paused = not push(sequence.seq, tokens, logprobs, num_drafted, num_accepted)
        self._close_streams()

    async def _ask_settle(self, commits: list[tuple[int, SequenceOf[int], int | None]]) -> None:
        releases, self._releases = self._releases, []
        answer = await self.ask(self._blocks, Settle(commits, releases), Settled)
        self._available = answer.available

    def _close_streams(self) -> None:
        ending, self._ending = self._ending, []
        for seq, reason, error in ending:
            self._streams.end(seq, reason, error)

    # failure

    def restart(self) -> None:
        """Lose every sequence; their streams end with an error. Only ever together with the block manager."""
        self.end_all("error", f"the scheduler was restarted: {self.last_crash}")

    def end_all(self, finish_reason: Literal["cancelled", "error"], why: str) -> None:
        """End every open stream, and forget all that was under way."""
        if finish_reason == "error":
            self.counters.num_failed += len(self._live)
        else:
            self.counters.num_cancelled += len(self._live)
        self.core = Scheduler(self._config, self._pass_cost)
        self._suspects = Suspects()
        self._live.clear()
        self._ending.clear()
        self._releases.clear()
        self._cancelled_unseen.clear()
        self._available = self._config.num_blocks
        self._streams.end_all(finish_reason, why)

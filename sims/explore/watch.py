"""The observer of a run: it sees every message and checks the laws between any two callbacks, outside the engine.

What it finds is raised in the loop and not in an actor, so no supervisor can take it for a crash.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from actors import Engine, Tap
from actors.actor import Actor, ActorCrashed, ActorGivenUp
from actors.messages import (
    Admit,
    Admitted,
    Cancel,
    ForgetAll,
    Message,
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
from actors.runner import RunPass
from scheduler import Sequence, State
from sims.explore.coverage import ENDED, UNSEEN, Coverage
from sims.explore.expected import Expected, expected, fits
from sims.explore.insides import Insides
from sims.explore.invariants import (
    CRASH,
    FENCE,
    LOSSLESS,
    PROGRESS,
    Prefixes,
    Violation,
    check_available,
    check_conservation,
    check_fence,
    check_lengths,
    traceback_of,
)
from sims.explore.pace import Pace
from sims.explore.scenario import Scenario
from sims.faults import Nth

T = TypeVar("T")

MAX_CALLBACKS = 200_000
"""A run that takes more goes nowhere: the largest scenarios take a tenth."""

_ANSWERS = Admitted | Proposed | Reserved | Settled | StepDone
_FOLLOW_UPS = ("ActorCrashed", "ActorGivenUp")

Note = Callable[[float, str, str], None]
"""Told of what happens apart from messages: time, who, what."""

Listener = Callable[[Message, tuple[int, ...]], None]


class Watch:
    """Follows one run of a scenario. `log` is told of every message, `note` of what else happens to whom."""

    def __init__(self, scenario: Scenario, log: Tap | None = None, note: Note | None = None) -> None:
        self.coverage = Coverage()
        self.agenda = Nth((fault.kind, fault.nth) for fault in scenario.faults)
        self.listeners: list[Listener] = []
        """Called with every message and the sequences that it is about."""
        self.num_messages = 0
        self.num_callbacks = 0
        self.num_scheduler_deaths = 0
        self.raised_alone: Counter[int] = Counter()
        """Passes that a sequence was alone in and that raised."""
        self._num_poisoned = 0
        self.was_struck = False
        """A task of the engine was cancelled from outside."""
        self.is_at_rest = False
        """Everyone has gone, and the engine holds nothing: all that follows is its end."""
        self._is_attached = False
        self._scenario = scenario
        self._log = log
        self._note = note
        self._violation: Violation | None = None
        self._sequences: dict[int, Sequence] = {}
        self._wanted: dict[int, Expected] = {}
        self._asked: Message | None = None
        self._step: Step | None = None
        self._pass: object = None
        self._mark: object = None
        self._is_memory_lost = False  # the runner died, and the prefix index has yet to be cleared
        self._is_pool_lost = False  # the block manager died, and the scheduler has yet to hear of it
        self._pace = Pace(scenario.engine)
        self._num_crashes = 0
        self._tracebacks: dict[str, str] = {}
        self._prefixes = Prefixes(scenario.engine.block_tokens)
        for client in scenario.clients:
            for request in (client.request, client.again):
                if request is not None and fits(scenario, request):
                    context = request.prompt + expected(scenario, request).tokens
                    has_proposer = (request.speculative or scenario.engine.speculative).draft.needs_proposer
                    salt = (request.cache_salt, "proposer") if has_proposer else request.cache_salt
                    self._prefixes.allow(salt, context)

    def attach(self, engine: Engine) -> None:
        """Open up an engine that has not started."""
        self.insides = Insides(engine)
        self._is_attached = True
        for actor in self.insides.actors:
            self._follow(actor)

    def note(self, who: str, what: str) -> None:
        """Pass on what happens apart from messages."""
        if self._note is not None:
            self._note(asyncio.get_running_loop().time(), who, what)

    def found(self, violation: Violation) -> None:
        """Remember a violation, the first one; it is raised before the next callback."""
        self._violation = self._violation or violation

    # between callbacks

    def look(self) -> None:
        """Check everything that may have changed. Raises Violation."""
        self.num_callbacks += 1
        if not self._is_attached:
            return
        if self._violation is not None:
            raise self._violation
        if self.num_callbacks > MAX_CALLBACKS:
            raise Violation(PROGRESS, f"no end after {MAX_CALLBACKS} callbacks")
        blocks = self.insides.blocks
        mark = (self.num_messages, blocks.num_checks, id(blocks.ledger))
        if mark != self._mark:
            self._mark = mark
            self._check_blocks()

    def _check_blocks(self) -> None:
        if self._is_pool_lost:
            return
        check_conservation(self.insides)
        if self._step is not None and not self.insides.is_over:
            check_fence(self.insides, self._step)
        self._prefixes.check(self.insides, is_memory_there=not self._is_memory_lost)

    # every message

    def __call__(self, time_s: float, sender: str, receiver: str, message: Message) -> None:
        """Take in a message as it is handed over."""
        self.num_messages += 1
        if self._log is not None:
            self._log(time_s, sender, receiver, message)
        self._sequences.update(self.insides.live)
        seqs = self._about(message)
        self._count(message, seqs)
        try:
            self._check_message(message)
        except Violation as violation:
            self.found(violation)
        for listener in self.listeners:
            listener(message, seqs)

    def _about(self, message: Message) -> tuple[int, ...]:
        if isinstance(message, _ANSWERS):
            assert self._asked is not None, "an answer without a question"
            message = self._asked
        match message:
            case Submit(seq) | Cancel(seq) | Resume(seq):
                return (seq,)
            case Admit(candidates):
                return tuple(candidate.seq for candidate in candidates)
            case Reserve(asks):
                return tuple(seq for seq, _ in asks)
            case Propose(_, asks):
                return tuple(ask.seq for ask in asks)
            case Step(_, feeds):
                return tuple(feed.seq for feed in feeds)
            case Settle(commits, releases):
                return tuple(dict.fromkeys([*(seq for seq, _, _ in commits), *releases]))
            case Stop():
                return self.insides.open_seqs
            case _:
                return tuple(self.insides.live)

    def _count(self, message: Message, seqs: tuple[int, ...]) -> None:
        coverage = self.coverage
        name = type(message).__name__
        for seq in seqs:
            coverage.count(coverage.pairs, self._state(seq), name)
        if isinstance(message, Cancel):
            stage = "between" if self._asked is None else type(self._asked).__name__
            coverage.count(coverage.cancels, self._state(message.seq), stage)

    def _state(self, seq: int) -> str:
        sequence = self._sequences.get(seq)
        if sequence is None:  # taken in and cancelled at once, or not taken in
            return UNSEEN if seq > self.insides.last_seq else State.CANCELLED
        is_there = seq in self.insides.live or sequence.state in ENDED
        return str(sequence.state if is_there else State.FAILED)

    def _check_message(self, message: Message) -> None:
        if isinstance(message, _ANSWERS):
            asked, self._asked = self._asked, None
            match message:
                case Admitted(cached, preempted):
                    assert isinstance(asked, Admit), "an answer to another question"
                    admitted = zip(asked.candidates, cached, strict=True)
                    came_in = [self._sequences[candidate.seq] for candidate, found in admitted if found is not None]
                    self._pace.admitted(came_in, [self._sequences[seq] for seq in preempted])
                case StepDone():
                    self._step = None
                case Settled():
                    self._is_memory_lost = self._is_memory_lost and not isinstance(asked, ForgetAll)
                    if not self._is_pool_lost:
                        check_lengths(self.insides)
                    self._check_contexts(asked)
            return
        match message:
            case Submit(seq, request):
                self._wanted[seq] = expected(self._scenario, request)
                return
            case Cancel(seq):
                self._pace.leaves(seq, is_in_pass=self._step is not None)
                return
            case Resume() | Stop():
                return
            case Reserve() if not self._is_pool_lost:
                check_available(self.insides)
            case Step():
                self._step = message
                num_fed = {feed.seq: len(feed.ids) for feed in message.feeds}
                insides = self.insides
                self._pace.step(
                    message.number,
                    num_fed,
                    insides.core,
                    insides.pool.num_available,
                    is_trial=insides.has_suspects,
                )
            case ForgetAll() if self._pass is None:  # the step was answered by news of a crash
                self._step = None
        self._asked = message

    def _check_contexts(self, settle: Message | None) -> None:
        """See that what was emitted is the beginning of what the one-sequence loop gives."""
        for seq, _, _ in settle.commits if isinstance(settle, Settle) else ():
            sequence = self._sequences[seq]
            wanted = self._wanted[seq].tokens
            emitted = sequence.context[sequence.prompt_len :]
            if emitted != wanted[: len(emitted)]:
                raise Violation(LOSSLESS, f"sequence {seq} emitted {emitted}, alone it gives {wanted}")

    # passes and deaths

    def watched_passes(self, run_pass: RunPass) -> RunPass:
        """Carry out passes, and see that one that was given up touches nothing any more."""

        async def run(work: Callable[[], T], num_tokens: int, num_layers: int = 0) -> T:
            mine = self._pass = object()

            def watched() -> T:
                is_late = self._pass is not mine
                before = self.insides.written.copy(), self.insides.proposed.copy()
                result = work()
                if is_late:
                    self.note("runner", "a pass that was given up completes")
                    if self.insides.engine.failure is None and (
                        (before[0] != self.insides.written).any() or (before[1] != self.insides.proposed).any()
                    ):
                        violation = Violation(FENCE, "a pass that was given up wrote to memory that is in use")
                        self.found(violation)
                return result

            try:
                return await run_pass(watched, num_tokens, num_layers)
            finally:
                self._pass = None

        return run

    def strike(self, name: str) -> None:
        """Cancel the task of an actor, as somebody outside may."""
        self.note(name, "its task is cancelled from outside")
        self.was_struck = True
        self.coverage.count(
            self.coverage.strikes, name, "between" if self._asked is None else type(self._asked).__name__
        )
        self.insides.tasks[name].cancel()

    def _follow(self, actor: Actor) -> None:
        disown, live = actor.disown, actor.run

        def follow(error: ActorCrashed | ActorGivenUp) -> None:
            self._died(actor, error)
            disown(error)

        async def run() -> None:
            try:
                await live()
            except Exception as error:
                self._tracebacks[actor.name] = traceback_of(error)
                raise

        actor.disown = follow  # type: ignore[method-assign]
        actor.run = run  # type: ignore[method-assign]

    def _died(self, actor: Actor, error: ActorCrashed | ActorGivenUp) -> None:
        is_for_good = isinstance(error, ActorGivenUp)
        self.note(actor.name, f"dies{' for good' if is_for_good else ''}: {error}")
        cause = str(error).split(": ")[1]
        if cause not in _FOLLOW_UPS:
            self._num_crashes += 1
            struck = self.agenda.struck
            is_planted = cause == "Injected" or (cause == "TimeoutError" and struck["hang"])
            is_planted = is_planted or ("was promised room" in str(error) and struck["out_of_blocks"])
            is_planted = is_planted or cause == "Poisoned"
            self._num_poisoned += cause == "Poisoned"
            is_planted = is_planted or self.was_struck  # what is left in its mailbox is about blocks that are back
            num_planted = struck.total() + self._num_poisoned + len(self._scenario.bad_proposals)
            if not is_planted or (self._num_crashes > num_planted and not self.was_struck):
                self.found(Violation(CRASH, str(error), self._tracebacks.pop(actor.name, "")))
        if is_for_good:
            self.coverage.count(self.coverage.faults, "given_up")
            if self._num_crashes <= self._scenario.engine.max_restarts:
                self.found(Violation(CRASH, f"{actor.name} was given up after {self._num_crashes} crashes"))
            self.num_scheduler_deaths += 1  # the scheduler ends with it
        insides = self.insides
        if actor is insides.scheduler:  # and the pool with it
            self.num_scheduler_deaths += 1
            self._asked = self._step = None
            self._is_pool_lost = self._is_memory_lost = False
        elif actor is insides.runner:
            match self._step or self._asked:
                case Step(_, [alone]) | Propose(_, [alone]):
                    self.raised_alone[alone.seq] += 1
            self._step = None
            self._is_memory_lost = True
        else:
            self._step = None
            self._is_pool_lost = True

"""The facade: submit requests, read streams, look at the numbers."""

import asyncio
from types import TracebackType
from typing import Self

import anyio
import msgspec

from actors.actor import Actor, Tap, told
from actors.blocks import BlockManager
from actors.mailbox import Envelope
from actors.messages import Cancel, Message, Stop, Submit
from actors.runner import ModelRunner, RunPass, in_thread
from actors.scheduling import SchedulerActor
from actors.snapshot import Snapshot
from actors.stats import EngineStats
from actors.stream import OpenStreams, Stream
from actors.supervisor import Supervisor
from models import Model, Proposer, with_paying_nodes
from scheduler import EngineConfig, PassCost, Request, RequestError, check_request, own_copy
from spec import MAX_NODES, SpecConfig


class EngineFailed(RuntimeError):
    """The engine gave up; every stream has ended and every block is back."""


class EngineFull(RuntimeError):
    """As many requests wait as may; try again later."""


class Engine:
    """Scheduler, block manager and model runner over one model.

        async with Engine(model, EngineConfig(...)) as engine:
            stream = engine.submit(Request(prompt=[1, 2, 3]))
            async for token in stream:
                ...

    Leaving the block cancels whatever is open; every block is back then. It may be left in another task than it was
    entered in. Whoever cancels a task of the engine ends the engine the same way, but without waiting for the pass
    under way. An engine runs once, on asyncio, and is used from the event loop that it was entered on.

    `tap` sees every message; `run_pass` says where a pass runs (a worker thread); `pass_cost` lets an adaptive engine
    feed only the drafts that pay, and is needed for a shape with as many nodes as pay, a number that `config` then has;
    `proposer` makes the drafts that need a model. Model and proposer stay as they are:
    the engine works on copies with memory of their own.
    """

    def __init__(
        self,
        model: Model,
        config: EngineConfig,
        *,
        proposer: Proposer | None = None,
        tap: Tap | None = None,
        run_pass: RunPass = in_thread,
        pass_cost: PassCost | None = None,
    ) -> None:
        self._has_proposer = proposer is not None
        self._check_proposer(config.speculative)
        self.config = config = _with_paying_nodes(config, proposer, model, pass_cost)
        self.failure: str | None = None
        self._max_model_len = min(config.max_model_len, model.max_model_len)
        if proposer is not None and proposer.max_model_len < self._max_model_len:
            raise RequestError(
                f"max_model_len is {self._max_model_len}: at most {proposer.max_model_len}, as far as the proposer goes"
            )
        self._vocab_size = model.vocab_size
        self._streams = OpenStreams()
        self._next_seq = 0
        self._is_open = False
        self._blocks = BlockManager(config, tap)
        self._runner = ModelRunner(model, proposer, config, tap, run_pass)
        self._supervisor = Supervisor(config.max_restarts, config.restart_period_s, self._may_excuse)
        self._scheduler = SchedulerActor(
            config,
            self._max_model_len,
            self._streams,
            self._blocks,
            self._runner,
            tap,
            pass_cost,
            self._supervisor.forgive,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_over = False

    async def __aenter__(self) -> Self:
        if self._loop is not None:
            raise RuntimeError("this engine has been entered before: an engine runs once, make another")
        self._loop = _running_loop()
        if self._loop is None:
            raise RuntimeError("an engine runs on an asyncio event loop, and none is running here")
        keep, give_up = self._supervisor.keep, self._note_failure
        for actor, together in ((self._blocks, ()), (self._runner, ()), (self._scheduler, (self._blocks,))):
            task = self._loop.create_task(keep(actor, together, give_up), name=actor.name)
            task.add_done_callback(self._end)
            self._tasks.append(task)
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_open = False
        if not self._is_over:
            self._send(Stop())
        cancelled_again: asyncio.CancelledError | None = None
        with anyio.CancelScope(shield=True):
            while not all(task.done() for task in self._tasks):
                try:
                    await asyncio.wait(self._tasks)
                except asyncio.CancelledError as cancelled:  # of the task; a shield holds off scopes only
                    cancelled_again = cancelled
        for task in self._tasks:
            self._end(task)  # the loop may not have come to it
        if cancelled_again is not None:
            raise cancelled_again

    def _note_failure(self, reason: str) -> None:
        """Remember why an actor is given up, the first of them."""
        self.failure = self.failure or reason

    def _may_excuse(self, actor: Actor) -> bool:
        return actor is self._runner and actor.is_at_it and self._scheduler.could_blame()

    def _end(self, task: asyncio.Task[None]) -> None:
        """One actor has ended, so all do: close what is still open, take every block back, and end the others.

        Nothing here waits, so no cancel can come in between. A pass under way is given up: what it writes is read by
        nobody.
        """
        error = None if task.cancelled() else task.exception()
        if self._is_over:
            return
        self._is_over = True
        if task.cancelled():
            self._note_failure(f"{task.get_name()}: its task was cancelled")
        elif error is not None:
            self._note_failure(f"{task.get_name()}: {told(error)}")
        if self.failure is not None:
            self._scheduler.end_all("cancelled" if task.cancelled() else "error", self.failure)
            self._blocks.restart()
        for other in self._tasks:
            other.cancel()

    def submit(self, request: Request) -> Stream:
        """Queue a request and give its stream.

        Raises RequestError, naming the field, for one that could never be served or whose id is in use; EngineFull
        where `max_running` and `max_waiting` more are open; EngineFailed after the engine gave up.
        """
        if self.failure is not None:
            raise EngineFailed(self.failure)
        if not self._is_open:
            raise RuntimeError("the engine is not running: submit inside its `async with` block")
        self._check_loop()
        check_request(request, self.config, self._vocab_size, self._max_model_len)
        if request.speculative is not None:
            self._check_proposer(request.speculative)
            own, asked = self.config.speculative, request.speculative
            if asked.draft.has_file and (asked.draft, asked.model) != (own.draft, own.model):
                raise RequestError(
                    f"speculative has draft {asked.draft.value!r} and model {asked.model!r}: "
                    f"this engine drafts with {own.draft.value!r} and {own.model!r}, or from text"
                )
            if request.speculative.is_auto:
                raise RequestError(
                    "speculative.shape.nodes is 'auto': a number, except in an engine's own configuration"
                )
        request = own_copy(request)
        seq = self._next_seq
        request_id = self._free_id(seq) if request.id is None else request.id
        if request_id in self._streams:
            raise RequestError(f"id is {request_id!r}: one that no open request has")
        self.check_room(1)
        self._next_seq += 1
        speculative = request.speculative or self.config.speculative
        stream = Stream(request_id, seq, self.config.stream_tokens, 1 + speculative.tree_shape.max_depth, self._send)
        self._streams.add(stream)
        self._send(Submit(seq, request))
        return stream

    def _check_proposer(self, speculative: SpecConfig) -> None:
        if speculative.draft.needs_proposer and not self._has_proposer:
            raise RequestError(f"speculative has draft {speculative.draft.value!r}: this engine has no proposer")

    def check_room(self, num_requests: int) -> None:
        """Raise EngineFull unless so many more requests may be submitted now."""
        config, num_open = self.config, len(self._streams)
        if config.max_waiting is not None and num_open + num_requests > config.max_running + config.max_waiting:
            raise EngineFull(f"{num_open} requests are open, at most max_running + max_waiting may be")

    def _free_id(self, seq: int) -> str:
        """Name a request that came without a name: `request-<seq>`, or longer where a client has taken that."""
        request_id = f"request-{seq}"
        while request_id in self._streams:
            request_id += "-"
        return request_id

    @property
    def num_waiting(self) -> int:
        """Requests submitted and not running."""
        return len(self._streams) - self._scheduler.num_running

    def stats(self) -> EngineStats:
        """Give gauges and counters as they are now."""
        load = self._scheduler.load()
        return EngineStats(
            num_running=load.num_running,
            num_waiting=self.num_waiting,
            num_paused=load.num_paused,
            num_parked=load.num_parked,
            mailbox_depth=sum(len(a.mailbox) for a in (self._scheduler, self._blocks, self._runner)),
            blocks=self._blocks.stats(),
            num_checks=self._blocks.num_checks,
            num_violations=self._blocks.num_violations,
            counters=load.counters,
        )

    def snapshot(self, max_sequences: int, max_blocks: int, first_sequence: int = 0) -> Snapshot:
        """Describe open sequences from one on, and who holds each block; costs a look at every block described."""
        owners, shared, num_blocks = self._blocks.ownership(self._scheduler.running_seqs(), max_blocks)
        return Snapshot(*self._scheduler.views(num_blocks, max_sequences, first_sequence), owners, shared)

    def check(self) -> None:
        """Check everything about the blocks, now: counts, tables and the prefix index.

        Raises KvPoolError with the numbers that do not add up.
        """
        self._blocks.check()

    def _check_loop(self) -> None:
        if _running_loop() is not self._loop:
            raise RuntimeError(
                "this engine belongs to the event loop that it was entered on, and this is another thread or loop: "
                "hand the call over with loop.call_soon_threadsafe or asyncio.run_coroutine_threadsafe"
            )

    def _send(self, message: Message) -> None:
        """Deliver a client's message; control overtakes work, and neither waits: open requests bound both."""
        self._check_loop()
        self._scheduler.see("client", message)
        envelope = Envelope("client", message)
        if isinstance(message, Cancel | Stop):
            self._scheduler.mailbox.post(envelope)
        else:
            self._scheduler.mailbox.post_work(envelope)


def _with_paying_nodes(
    config: EngineConfig, proposer: Proposer | None, model: Model, cost: PassCost | None
) -> EngineConfig:
    """Give a tree whose nodes are "auto" as many as pay."""
    if not config.speculative.is_auto or proposer is None:
        return config
    if cost is None:
        raise RequestError("speculative.shape.nodes is 'auto': a number where what a pass costs is not known")
    speculative = with_paying_nodes(config.speculative, proposer, model, cost.of(MAX_NODES + 1), cost.layer_s)
    return msgspec.structs.replace(config, speculative=speculative)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:  # a plain thread, or a loop that is not asyncio's
        return None

"""The clients of a simulation: each submits a request, reads its stream, and leaves if that is its part."""

import asyncio
from array import array
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Protocol

import msgspec

from actors import EngineFailed, EngineFull, RequestError, Token
from scheduler import FinishReason
from sims.arrivals import Closed
from sims.config import SimConfig
from sims.workload import Client, request_id


class Answer(Protocol):
    """A client's end of its request: an engine's stream, or what behaves like one."""

    @property
    def seq(self) -> int:
        """The number that it is known by to the log."""

    @property
    def finish_reason(self) -> FinishReason | None:
        """How it ended, if it has."""

    @property
    def error(self) -> str | None:
        """Say more of an error."""

    def __aiter__(self) -> AsyncGenerator[Token, None]: ...

    async def cancel(self) -> None:
        """Cancel, and wait for the end."""

    def leave(self) -> None:
        """Cancel."""


class Log(Protocol):
    """What a client hears of the passes that its request is in."""

    @property
    def num_steps(self) -> int:
        """Passes so far."""

    def watch(self, seq: int, watcher: Callable[[int], None]) -> None:
        """Call `watcher` with the tokens of each pass that feeds a request."""

    def unwatch(self, seq: int) -> None:
        """Stop that."""


class Door(Protocol):
    """Where clients submit their requests."""

    @property
    def failure(self) -> str | None:
        """Why there is no more service."""

    def submit(self, client: Client) -> Answer:
        """Submit a client's request; raises what an engine raises."""


class Seen(msgspec.Struct):
    """What a compared client saw; `finish_reason` is None where it left before the end."""

    client: Client
    tokens: list[int] = []
    logprobs: list[float] = []
    finish_reason: FinishReason | None = None


class Measures:
    """Latencies in seconds, of clients that read at once.

    A request that was due at a time counts from then, however late it was submitted; others, from submission.
    """

    def __init__(self) -> None:
        self.late_s = array("d")
        """From when a request was due to its submission; of every client that came at a time."""
        self.ttft_s = array("d")
        """To the first token."""
        self.tpot_s = array("d")
        """Of a completed request of two tokens or more: the time after its first token per further token."""
        self.itl_s = array("d")
        """Between two arrivals of tokens; those of one round arrive together."""
        self.e2e_s = array("d")
        """Of a completed request, to its end."""


class Crowd:
    """All clients at one door. What is measured of an answer goes to `measures`, and to `measures_of` it."""

    def __init__(
        self, config: SimConfig, door: Door, log: Log, measures_of: Callable[[Answer], Measures] | None = None
    ) -> None:
        self.measures = Measures()
        self.compared: list[Seen] = []
        self.problems: list[str] = []
        self.num_refused = 0
        self.first_refusal: str | None = None
        self.num_gone = 0
        self._endings: Counter[FinishReason] = Counter()
        self._ending: list[Answer] = []
        self._measures_of = measures_of
        self.config = config
        self.door = door
        self.log = log
        self._open: dict[asyncio.Task[None], None] = {}  # in order of arrival: a set's order is not the seed's
        self._index_by_seq = array("q")

    async def come_and_go(self, clients: Iterable[Client]) -> None:
        """Let every client come at its time, or, in a closed loop, as there is room; return when all have gone.

        If it is cancelled, those who are there leave, and no more come.
        """
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        arrivals = self.config.arrivals
        room = asyncio.Semaphore(arrivals.concurrency if isinstance(arrivals, Closed) else 2**31)
        vanish_at_s = self.config.leaving.vanish_at_s
        vanishing = [loop.call_at(start_s + at_s, self._vanish) for at_s in vanish_at_s]

        last_of: dict[str, asyncio.Event] = {}  # set when the client has gone who came last in a session

        async def come(client: Client, due_s: float | None, gone: asyncio.Event) -> None:
            """Come when due, and start the visit."""
            await room.acquire()
            if due_s is not None:
                await asyncio.sleep(due_s - loop.time())
            if self.door.failure is not None:
                gone.set()
                return
            task = group.create_task(_Visit(self, client, due_s).visit(), name=client.request.id)
            self._open[task] = None
            task.add_done_callback(lambda task: go(task, gone))

        def go(task: asyncio.Task[None], gone: asyncio.Event) -> None:
            del self._open[task]
            self.num_gone += 1
            room.release()
            gone.set()

        async def follow(client: Client, before: asyncio.Event, gone: asyncio.Event) -> None:
            """Come after the client who came before in the session."""
            await before.wait()
            due_s = None
            if not isinstance(arrivals, Closed):
                due_s = max(loop.time() + client.pause_s, start_s + (client.at_s or 0.0))
            await come(client, due_s, gone)

        try:
            async with asyncio.TaskGroup() as group:
                for client in clients:
                    if self.door.failure is not None:
                        break
                    gone = asyncio.Event()
                    before = None if client.session is None else last_of.get(client.session)
                    if client.session is not None:
                        last_of[client.session] = gone
                    if before is not None:
                        group.create_task(follow(client, before, gone))
                    else:
                        await come(client, None if client.at_s is None else start_s + client.at_s, gone)
        finally:
            for timer in vanishing:
                timer.cancel()

    def endings(self) -> Counter[FinishReason]:
        """Count how the requests that were taken in have ended, as their clients' streams say."""
        still = []
        for stream in self._ending:
            if stream.finish_reason is None:
                still.append(stream)
            else:
                self._endings[stream.finish_reason] += 1
        self._ending = still
        return self._endings

    def submit(self, client: Client) -> Answer:
        """Submit a client's request."""
        stream = self.door.submit(client)
        self._index_by_seq.append(client.index)
        self._ending.append(stream)
        if len(self._ending) > 2 * len(self._open):
            self.endings()
        return stream

    def request_id(self, seq: int) -> str:
        """Give the id of the request that the door knows by a number: it counts those it takes in from 0."""
        return request_id(self._index_by_seq[seq])

    def measure(self, answer: Answer, name: str, seconds: float) -> None:
        """Note a latency."""
        getattr(self.measures, name).append(seconds)
        if self._measures_of is not None:
            getattr(self._measures_of(answer), name).append(seconds)

    def _vanish(self) -> None:
        for task in list(self._open):
            task.cancel()


class _Left(Exception):
    """What a client raises that leaves by an exception."""


class _Visit:
    """One client from its coming to its going."""

    def __init__(self, crowd: Crowd, client: Client, due_s: float | None) -> None:
        self._crowd = crowd
        self._client = client
        self._due_s = due_s
        self._leave = client.leave
        self._has_left = False
        self._timer: asyncio.Handle | None = None
        self._num_passes = 0
        self._seen = Seen(client) if client.is_compared else None

    async def visit(self) -> None:
        """Submit, read, leave."""
        crowd = self._crowd
        self._loop = asyncio.get_running_loop()
        if self._due_s is not None:
            crowd.measures.late_s.append(max(0.0, self._loop.time() - self._due_s))
        try:
            self._stream = stream = crowd.submit(self._client)
        except (RequestError, EngineFull) as error:
            crowd.num_refused += 1
            crowd.first_refusal = crowd.first_refusal or str(error)
            return
        except EngineFailed:
            return
        self._task = asyncio.current_task()
        if self._seen is not None:
            crowd.compared.append(self._seen)
        try:
            self._prepare_to_leave()
            await self._read(stream)
        except _Left:
            pass
        finally:
            crowd.log.unwatch(stream.seq)
            if self._timer is not None:
                self._timer.cancel()

    async def _read(self, stream: Answer) -> None:
        loop, log, measure = self._loop, self._crowd.log, self._crowd.measure
        client, seen = self._client, self._seen
        is_measured = client.delay_s == 0
        leave_after = self._tokens_to_leave_after()
        first_s = last_s = loop.time()
        start_s = last_s if self._due_s is None else min(self._due_s, last_s)
        num_read, last_step = 0, -1
        async for token in stream:
            num_read += 1
            if log.num_steps != last_step:  # else it came with the one before
                now_s = loop.time()
                if num_read == 1:
                    first_s = now_s
                    if is_measured:
                        measure(stream, "ttft_s", now_s - start_s)
                elif is_measured:
                    measure(stream, "itl_s", now_s - last_s)
                last_s, last_step = now_s, log.num_steps
            if seen is not None:
                seen.tokens.append(token.id)
                if token.logprob is not None:
                    seen.logprobs.append(token.logprob)
            if num_read == leave_after and await self._leaves_its_loop():
                break
            if client.delay_s:
                await asyncio.sleep(client.delay_s)
        if self._has_left:
            return
        if seen is not None:
            seen.finish_reason = stream.finish_reason
        if stream.finish_reason == "error" and self._crowd.config.faults.are_none:
            self._crowd.problems.append(f"{describe(client)} ended with an error: {stream.error}")
        elif is_measured and stream.finish_reason in ("stop", "length"):
            end_s = loop.time()
            measure(stream, "e2e_s", end_s - start_s)
            if num_read > 1:
                measure(stream, "tpot_s", (last_s - first_s) / (num_read - 1))

    # leaving

    def _prepare_to_leave(self) -> None:
        leave = self._leave
        if leave is None:
            return
        if leave.point == "waiting":
            if leave.fraction < 0.5:
                self._go()
            else:
                self._go_later(leave.fraction * self._crowd.config.cost.seconds(0))
        elif leave.point in ("prefill", "pass"):
            self._crowd.log.watch(self._stream.seq, self._see_pass)

    def _see_pass(self, num_tokens: int) -> None:
        """Leave when the pass to leave in begins, or a part of its time later."""
        assert self._leave is not None
        self._num_passes += 1
        if self._leave.point == "prefill":
            if self._num_passes == 1:
                self._go_later(0)
        elif self._num_passes == 2 + self._leave.num_tokens // 4:
            self._go_later(self._leave.fraction * self._crowd.config.cost.seconds(num_tokens))

    def _tokens_to_leave_after(self) -> int | None:
        leave = self._leave
        if leave is None or leave.point not in ("tokens", "between"):
            return None
        return max(1, min(leave.num_tokens, self._client.request.max_tokens - 1))

    async def _leaves_its_loop(self) -> bool:
        """Leave from inside the loop over the stream; True where the loop is to be broken out of."""
        assert self._leave is not None
        if self._leave.point == "between":
            self._go_later(self._leave.fraction * self._crowd.config.cost.seconds(0))
            return False
        self._has_left = True
        match self._leave.way:
            case "break":
                return True
            case "raise":
                raise _Left
            case "cancel":
                await self._stream.cancel()
            case "task":
                self._go()
        return False

    def _go_later(self, delay_s: float) -> None:
        self._timer = self._loop.call_later(delay_s, self._go)

    def _go(self) -> None:
        """Leave from outside the loop over the stream, which may be waiting."""
        assert self._leave is not None
        assert self._task is not None
        self._has_left = True
        if self._leave.way in ("cancel", "break"):
            self._stream.leave()
        else:
            self._task.cancel()


def describe(client: Client) -> str:
    """Name a request so that it can be found again."""
    return f"request {client.request.id} (its seed {client.request.seed})"

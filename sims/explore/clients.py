"""The clients of a scenario: each submits, reads, leaves as it is told to, and holds the engine to its word."""

import asyncio
import contextlib

import msgspec

from actors import Engine, EngineFailed, EngineFull, RequestError, Stream, Token
from actors.messages import Message
from scheduler import Request
from sims.explore.expected import expected, fits
from sims.explore.invariants import CANCEL, CRASH, LOSSLESS, PROGRESS, Violation, traceback_of
from sims.explore.scenario import Client, Leave, Scenario
from sims.explore.watch import Watch


class Left(Exception):  # a way of leaving, not an error
    """What the body of a client's loop raises."""


class Crowd:
    """All clients of a scenario over one engine."""

    def __init__(self, scenario: Scenario, engine: Engine, watch: Watch) -> None:
        self.scenario = scenario
        self.engine = engine
        self.watch = watch
        self.num_errors = 0
        self.is_closing = False
        self.is_over = asyncio.Event()
        """The engine is gone: those who stopped reading wake up."""

    async def visit(self, index: int, client: Client) -> None:
        """Let a client come, and go, and perhaps come again."""
        try:
            if client.at_s:
                await asyncio.sleep(client.at_s)
            for request, leave in ((client.request, client.leave), (client.again, None)):
                if request is None:
                    return
                named = msgspec.structs.replace(request, id=f"client-{index}")
                if not await Visit(self, client, named, leave).visit():
                    return
        except Violation as violation:
            self.watch.found(violation)
        except Exception as error:
            said = f"client-{index}: {type(error).__name__}: {error}"
            self.watch.found(Violation(CRASH, said, traceback_of(error)))


class Visit:
    """One request of a client, from its submission to its end."""

    def __init__(self, crowd: Crowd, client: Client, request: Request, leave: Leave | None) -> None:
        self._crowd = crowd
        self._watch = crowd.watch
        self._client = client
        self._request = request
        self._wanted = expected(crowd.scenario, request) if fits(crowd.scenario, request) else None
        self._tokens: list[Token] = []
        self._has_left = False
        self._leave = leave

    async def visit(self) -> bool:
        """Submit, read, leave; False where the engine took no request."""
        stream = self._submit()
        if stream is None:
            return False
        self._stream = stream
        self._deaths_before = self._watch.num_scheduler_deaths
        reader = None
        if self._leave is not None and self._leave.way == "task":  # one that can be cancelled alone
            reader = asyncio.create_task(self._read_or_leave(stream), name=f"{stream.id} reads")
        leaver = self._prepare_to_leave(reader)
        try:
            if reader is None:
                await self._read_or_leave(stream)
            else:
                await asyncio.wait([reader])
                if not reader.cancelled():
                    reader.result()
        finally:
            if leaver is not None:
                leaver.cancel()
        self._has_left = self._has_left or stream.finish_reason is None
        await self._cancel()  # once more, or after the end
        self._check_end(stream)
        return True

    def _submit(self) -> Stream | None:
        crowd, request = self._crowd, self._request
        is_wanted = self._wanted is not None
        try:
            stream = crowd.engine.submit(request)
        except RequestError as error:
            if is_wanted:
                raise Violation(PROGRESS, f"{request.id} was refused and fits: {error}") from None
            self._watch.note("clients", f"{request.id} is refused: {error}")
            return None
        except (EngineFull, EngineFailed) as error:
            self._watch.note("clients", f"{request.id} is refused: {error}")
            return None
        except RuntimeError:
            if not crowd.is_closing:
                raise
            return None
        if not is_wanted:
            raise Violation(PROGRESS, f"{request.id} was taken and can never fit")
        return stream

    # reading

    async def _read_or_leave(self, stream: Stream) -> None:
        with contextlib.suppress(Left):
            await self._read(stream)

    async def _read(self, stream: Stream) -> None:
        client, leave = self._client, self._leave
        leave_after = None if leave is None else leave.num_tokens
        tokens = aiter(stream)
        async for token in tokens:
            self._take(token)
            if len(self._tokens) == leave_after and leave is not None:
                self._has_left = True
                self._watch.note("clients", f"{stream.id} leaves after token {leave_after}: {leave.way}")
                match leave.way:
                    case "break":
                        break
                    case "raise":
                        raise Left
                    case "task":
                        raise asyncio.CancelledError
                    case "cancel":
                        await self._cancel()
            if len(self._tokens) == client.reads:
                self._watch.note("clients", f"{stream.id} stops reading")
                await self._crowd.is_over.wait()
            if client.delay_s:
                await asyncio.sleep(client.delay_s)

    def _take(self, token: Token) -> None:
        index = len(self._tokens)
        self._tokens.append(token)
        if self._has_left:
            raise Violation(CANCEL, f"{self._stream.id} got token {token.id} after it had cancelled")
        wanted = self._wanted
        assert wanted is not None, "only what fits is taken"
        if token.index != index or index >= len(wanted.tokens) or token.id != wanted.tokens[index]:
            raise Violation(
                LOSSLESS,
                f"{self._stream.id} read {[t.id for t in self._tokens]}, the last numbered {token.index}; "
                f"alone it gets {wanted.tokens}",
            )
        logprob = wanted.logprobs[index] if self._request.logprobs else None
        if token.logprob != logprob:
            raise Violation(
                LOSSLESS, f"{self._stream.id} read log-probability {token.logprob} at {index}, alone it gets {logprob}"
            )

    # leaving

    def _prepare_to_leave(self, reader: asyncio.Task[None] | None) -> asyncio.Task[None] | None:
        leave = self._leave
        if leave is None or leave.num_tokens is not None:
            return None
        return asyncio.create_task(self._leave_from_outside(leave, reader), name=f"{self._stream.id} leaves")

    async def _leave_from_outside(self, leave: Leave, reader: asyncio.Task[None] | None) -> None:
        if leave.message is not None:
            await self._nth_message(leave)
        elif leave.delay_s:
            await asyncio.sleep(leave.delay_s)
        self._watch.note("clients", f"{self._stream.id} leaves: {leave.way}")
        self._has_left = True
        if reader is not None:
            reader.cancel()
            return
        try:
            await self._cancel()
        except Violation as violation:
            self._watch.found(violation)

    async def _nth_message(self, leave: Leave) -> None:
        has_come = asyncio.Event()
        num_left = leave.nth

        def listen(message: Message, seqs: tuple[int, ...]) -> None:
            nonlocal num_left
            if type(message).__name__ == leave.message and self._stream.seq in seqs:
                num_left -= 1
                if num_left < 0:
                    has_come.set()

        self._watch.listeners.append(listen)
        try:
            await has_come.wait()
        finally:
            self._watch.listeners.remove(listen)

    async def _cancel(self) -> None:
        stream = self._stream
        await stream.cancel()
        insides = self._watch.insides
        if stream.seq in insides.held:
            table = insides.held[stream.seq].table
            raise Violation(CANCEL, f"{stream.id} was cancelled and sequence {stream.seq} holds blocks {table}")
        if stream.seq in insides.live or stream.id in insides.streams:
            raise Violation(CANCEL, f"{stream.id} was cancelled and sequence {stream.seq} is not gone")
        if stream.num_unread:
            raise Violation(CANCEL, f"{stream.id} was cancelled and {stream.num_unread} tokens follow")

    # the end

    def _check_end(self, stream: Stream) -> None:
        reason, crowd = stream.finish_reason, self._crowd
        self._watch.note("clients", f"{stream.id} has ended: {reason}, {len(self._tokens)} tokens read")
        self._watch.coverage.count(self._watch.coverage.ends, str(reason))
        wanted = self._wanted
        assert wanted is not None, "only what fits is taken"
        is_poisoned = self._request.prompt[0] == crowd.scenario.poison
        match reason:
            case "stop" | "length" if is_poisoned:
                raise Violation(LOSSLESS, f"{stream.id} ended with {reason!r}, and no pass over it can come back")
            case "stop" | "length":
                is_whole = self._has_left or len(self._tokens) == len(wanted.tokens)
                if not is_whole or reason != wanted.finish_reason:
                    raise Violation(
                        LOSSLESS,
                        f"{stream.id} ended with {reason!r} after {len(self._tokens)} tokens, "
                        f"alone with {wanted.finish_reason!r} after {len(wanted.tokens)}",
                    )
            case "cancelled":
                if not self._has_left and not crowd.is_closing and not self._watch.was_struck:
                    raise Violation(CANCEL, f"{stream.id} was cancelled and its client had not left")
            case "error":
                #   a fault may strike the same one alone several times, and then it is held to be the cause
                is_due = wanted.finish_reason == "error" or is_poisoned or self._watch.raised_alone[stream.seq] > 1
                if not is_due and self._watch.num_scheduler_deaths == self._deaths_before:
                    crowd.num_errors += 1
                    if crowd.num_errors > len(crowd.scenario.bad_rows):
                        raise Violation(LOSSLESS, f"{stream.id} ended with an error for no reason: {stream.error}")
            case None:
                raise Violation(CANCEL, f"{stream.id} was cancelled and has not ended")

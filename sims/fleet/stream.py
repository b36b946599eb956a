"""The client's end of a request to a fleet: one stream, whichever replicas its tokens come from."""

import asyncio
from collections.abc import AsyncGenerator, Callable

from actors import Engine, Stream, Token
from scheduler import FinishReason, Request
from sims.fleet.delivery import Delivery, Diverged
from sims.fleet.routing import Ask


class RoutedStream:
    """Iterate to get the tokens. Leaving the loop, by whatever way, cancels the request, as with an engine's stream.

    The fleet says with `placed` which replica the request is at, and gives up with `refuse`. A request whose replica
    has gone is between two: it may leave there, and nobody has to be told.
    """

    def __init__(self, request: Request, seq: int, ask: Ask) -> None:
        self.request = request
        self.seq = seq
        self.ask = ask
        self.replica: int | None = None
        """Where it is, or was last."""
        self.num_attempts = 0
        self.num_repeated = 0
        """Tokens that an attempt has given once more."""
        self.diverged: str | None = None
        """What an attempt gave otherwise than the one before it."""
        self.has_moved = False
        """It was between two replicas once, or waited for the first."""
        self.watcher: Callable[[int], None] | None = None
        self._delivery = Delivery()
        self._engine: Engine | None = None
        self._stream: Stream | None = None
        self._num_before = 0  # tokens that the attempts before have given
        self._reason: FinishReason | None = None  # where it ended between two replicas
        self._error: str | None = None
        self._news = asyncio.Event()
        self._has_left = False

    @property
    def is_between(self) -> bool:
        """Waits for a replica, the first or another."""
        return self._reason is None and (self._stream is None or self._is_lost)

    @property
    def _is_lost(self) -> bool:
        """It was ended with its engine, and not by itself or its client."""
        engine, stream = self._engine, self._stream
        return (
            stream is not None
            and engine is not None
            and not self._has_left
            and stream.finish_reason in ("cancelled", "error")
            and engine.failure is not None
            and stream.error == engine.failure
        )

    @property
    def finish_reason(self) -> FinishReason | None:
        """How it ended; None until it has, and between two replicas."""
        if self._reason is not None or self._stream is None or self._is_lost:
            return self._reason
        return self._stream.finish_reason

    @property
    def has_left_between(self) -> bool:
        """Its client left while it was at no replica."""
        return self._reason == "cancelled"

    @property
    def error(self) -> str | None:
        """Say more where it ended with an error."""
        return self._error or (None if self._stream is None else self._stream.error)

    @property
    def engine_stream(self) -> Stream | None:
        """Its stream at its replica."""
        return None if self.is_between else self._stream

    async def __aiter__(self) -> AsyncGenerator[Token, None]:
        stream: Stream | None = None
        try:
            while True:
                while self._stream is stream:  # that one has no more
                    if not self.is_between:
                        return
                    self._news.clear()
                    await self._news.wait()
                stream = self._stream
                assert stream is not None
                async for token in stream:
                    if self._has_left:
                        break
                    if self._is_new(token):
                        yield token
                if self._has_left:
                    await self._until_end()
                    return
        finally:
            self.leave()

    def _is_new(self, token: Token) -> bool:
        try:
            return self._delivery.take(token.index, token.id)
        except Diverged as error:
            self.diverged = self.diverged or str(error)
            return False

    async def cancel(self) -> None:
        """Cancel the request; when this returns it holds nothing anywhere, and no token follows."""
        self.leave()
        await self._until_end()

    async def _until_end(self) -> None:
        if self._reason is None and self._stream is not None:
            await self._stream.cancel()

    def leave(self) -> None:
        """Cancel the request without waiting."""
        if self.is_between:
            self._end_between("cancelled")
        elif self._stream is not None and self._reason is None:
            self._stream.leave()
        self._has_left = True

    # the fleet's side

    def placed(self, replica: int, engine: Engine, stream: Stream) -> None:
        """Note that it is at a replica."""
        self.replica, self._engine, self._stream = replica, engine, stream
        self.num_attempts += 1
        self._news.set()

    def close_attempt(self) -> None:
        """Count what the attempt that has ended gave, once."""
        if self._stream is not None:
            num = self._stream.num_emitted
            self.num_repeated += min(num, self._num_before)
            self._num_before = max(num, self._num_before)

    def refuse(self, error: str) -> None:
        """Give up: no replica takes it."""
        self._error = error
        self._end_between("error")

    def _end_between(self, reason: FinishReason) -> None:
        self._reason = reason
        self._news.set()

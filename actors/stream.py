"""The client's end of a request: a bounded buffer of tokens with one reader."""

import asyncio
from array import array
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from actors.messages import Cancel, Message, Resume
from scheduler import FinishReason

T = TypeVar("T")


class Token(msgspec.Struct, frozen=True, gc=False):
    """One token as the client gets it; `index` counts from 0, `logprob` is None where none was asked for.

    `is_accepted` marks a drafted token that the target accepted.
    """

    id: int
    logprob: float | None
    index: int
    is_accepted: bool = False


class Emitted(msgspec.Struct, frozen=True, gc=False):
    """Tokens of one round: their ids, their log-probabilities if asked for, and the first one's `index`.

    The first `num_accepted` of them had been drafted.
    """

    ids: Sequence[int]
    logprobs: Sequence[float] | None
    index: int
    num_accepted: int

    def token(self, i: int) -> Token:
        """Give the token of place `i`."""
        logprob = None if self.logprobs is None else self.logprobs[i]
        return Token(self.ids[i], logprob, self.index + i, i < self.num_accepted)

    def past(self, i: int) -> "Emitted":
        """Give the tokens from place `i` on."""
        logprobs = None if self.logprobs is None else self.logprobs[i:]
        return Emitted(self.ids[i:], logprobs, self.index + i, max(0, self.num_accepted - i))


class Speculation(NamedTuple):
    """What speculation did for some tokens of a request.

    Rounds, tokens drafted in them, and per round with a draft how many of its tokens were accepted and delivered.
    """

    num_rounds: int
    num_drafted: int
    accepted_by_draft: list[int]


class Stream:
    """Iterate to get the tokens, or over `rounds()`. Leaving the loop, by whatever way, cancels the request.

    `finish_reason` is None until the sequence has ended and its blocks are back: a loop that comes to its end leaves
    the reason there, and so does `cancel()`. `error` says more where the engine ended it. A client that leaves
    `capacity` tokens unread pauses its own sequence and no other.

    `num_cached_tokens` counts the prompt's tokens that the prefix cache had, and `admitted_s` is when the request was
    admitted, by the loop's clock; both are None until it is. There is one reader at a time; it and `cancel` belong to
    the event loop that the engine runs on.
    """

    def __init__(
        self, request_id: str, seq: int, capacity: int, largest_round: int, send: Callable[[Message], None]
    ) -> None:
        self.id = request_id
        self.seq = seq
        self.finish_reason: FinishReason | None = None
        self.error: str | None = None
        self.num_cached_tokens: int | None = None
        self.admitted_s: float | None = None
        self._rounds = array("i")  # three numbers per round: tokens handed over, drafted, accepted
        self._capacity = capacity
        self._largest_round = largest_round
        self._send = send
        self._buffer: list[Emitted] = []
        self._num_taken = 0  # of the first of these
        self._num_unread = 0
        self._num_pushed = 0
        self._is_paused = False
        self._has_left = False
        self._has_reader = False
        self._loop = asyncio.get_running_loop()
        self._reader: asyncio.Future[None] | None = None
        self._ended: asyncio.Event | None = None  # made by who waits for it

    @property
    def num_unread(self) -> int:
        """Tokens that are there and have not been read."""
        return self._num_unread

    @property
    def num_emitted(self) -> int:
        """Tokens the engine has handed over, read or not."""
        return self._num_pushed

    @property
    def num_rounds(self) -> int:
        """Rounds whose tokens the engine has handed over."""
        return len(self._rounds) // 3

    @property
    def num_drafted(self) -> int:
        """Tokens drafted in those rounds."""
        return self.speculation().num_drafted

    @property
    def accepted_by_draft(self) -> list[int]:
        """Per round with a draft, how many of its tokens were accepted and handed over."""
        return self.speculation().accepted_by_draft

    def speculation(self, num_tokens: int | None = None) -> Speculation:
        """Count over the rounds that the first `num_tokens` tokens came from (None: all that were handed over).

        For a client that gives out less than it gets: of the last round, only what is given out counts as accepted.
        """
        num_left = self._num_pushed if num_tokens is None else num_tokens
        num_rounds = num_drafted = 0
        accepted_by_draft = []
        rounds = self._rounds
        for num_pushed, drafted, accepted in zip(rounds[::3], rounds[1::3], rounds[2::3], strict=True):
            if num_left <= 0:
                break
            num_rounds += 1
            if drafted:
                num_drafted += drafted
                accepted_by_draft.append(min(accepted, num_pushed, num_left))
            num_left -= num_pushed
        return Speculation(num_rounds, num_drafted, accepted_by_draft)

    def __aiter__(self) -> AsyncGenerator[Token, None]:
        return self._read(self._take_token)

    def rounds(self) -> AsyncGenerator[Emitted, None]:
        """Iterate over what rounds emitted, the tokens of each at once: for many readers far cheaper."""
        return self._read(self._take_round)

    async def cancel(self) -> None:
        """Cancel the request. When this returns its sequence holds nothing; no token follows the call.

        Legal at any time and any number of times; no effect after the end.
        """
        self.leave()
        await self._until_end()

    async def aclose(self) -> None:
        """Cancel, as a closing context manager does."""
        await self.cancel()

    async def _read(self, take: Callable[[], T]) -> AsyncGenerator[T, None]:
        if self.finish_reason is None:
            if self._has_reader and not self._has_left:
                raise RuntimeError(f"stream {self.id} has a reader already: one at a time")
            if asyncio.get_running_loop() is not self._loop:
                raise RuntimeError(f"stream {self.id} belongs to the event loop of its engine, and this is another")
        self._has_reader = True
        buffer = self._buffer
        try:
            while True:
                while buffer:
                    yield take()
                if self._has_left:  # by another task
                    await self._until_end()
                if self.finish_reason is not None:
                    return
                self._reader = self._loop.create_future()
                try:
                    await self._reader
                finally:
                    self._reader = None
        finally:
            self._has_reader = False
            self.leave()

    def _take_token(self) -> Token:
        first, i = self._buffer[0], self._num_taken
        if i + 1 < len(first.ids):
            self._num_taken = i + 1
        else:
            self._num_taken = 0
            del self._buffer[0]
        self._num_unread -= 1
        if self._is_paused:
            self._resume_if_drained()
        return first.token(i)

    def _take_round(self) -> Emitted:
        first = self._buffer.pop(0)
        if self._num_taken:  # one by one, by a reader before this one
            first, self._num_taken = first.past(self._num_taken), 0
        self._num_unread -= len(first.ids)
        if self._is_paused:
            self._resume_if_drained()
        return first

    def leave(self) -> None:
        """Cancel the request without waiting for its blocks: the engine is told at once.

        For clean-up in a cancelled task, where whatever is awaited may never run.
        """
        if self.finish_reason is None and not self._has_left:
            self._send(Cancel(self.seq))  # from another thread or loop it is refused, and nothing has changed
            self._has_left = True
            self._wake()
        self._buffer.clear()
        self._num_taken = self._num_unread = 0

    def _resume_if_drained(self) -> None:
        unread = self._num_unread
        if (
            self.finish_reason is None
            and 2 * unread <= self._capacity
            and unread + self._largest_round <= self._capacity
        ):
            self._is_paused = False
            self._send(Resume(self.seq))

    async def _until_end(self) -> None:
        """Wait until the sequence has ended."""
        if self.finish_reason is None:
            if self._ended is None:
                self._ended = asyncio.Event()
            await self._ended.wait()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    # the scheduler's side

    def push(
        self, tokens: Sequence[int], logprobs: Sequence[float] | None, num_drafted: int = 0, num_accepted: int = 0
    ) -> bool:
        """Hand over a round's tokens, the first `num_accepted` of them from its draft of `num_drafted`.

        True where there is room for another round, else the stream is paused.
        """
        if not self._has_left:
            num_tokens = len(tokens)
            self._buffer.append(Emitted(tokens, logprobs, self._num_pushed, num_accepted))
            self._num_unread += num_tokens
            self._num_pushed += num_tokens
            append = self._rounds.append
            append(num_tokens)
            append(num_drafted)
            append(num_accepted)
            reader = self._reader
            if reader is not None and not reader.done():
                reader.set_result(None)
        self._is_paused = self._num_unread + self._largest_round > self._capacity
        return not self._is_paused

    def end(self, reason: FinishReason, error: str | None = None) -> None:
        """Close the stream; its sequence holds nothing any more. What is unread stays to be read."""
        self.finish_reason = reason
        self.error = error
        if self._ended is not None:
            self._ended.set()
        self._wake()


class OpenStreams:
    """The streams that have not ended, by the engine's number and by the client's id."""

    def __init__(self) -> None:
        self._by_seq: dict[int, Stream] = {}
        self._by_id: dict[str, Stream] = {}

    def __len__(self) -> int:
        return len(self._by_seq)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._by_id

    def add(self, stream: Stream) -> None:
        """Open a stream."""
        self._by_seq[stream.seq] = stream
        self._by_id[stream.id] = stream

    def is_open(self, seq: int) -> bool:
        """Whether the stream of this number has not ended."""
        return seq in self._by_seq

    def admitted(self, seq: int, num_cached_tokens: int) -> None:
        """Tell a stream that its request has left the queue, and what the prefix cache had of it."""
        stream = self._by_seq[seq]
        stream.num_cached_tokens = num_cached_tokens
        stream.admitted_s = asyncio.get_running_loop().time()

    def push(
        self, seq: int, tokens: Sequence[int], logprobs: Sequence[float] | None, num_drafted: int, num_accepted: int
    ) -> bool:
        """Hand a round's tokens to a stream; True where it has room for another."""
        return self._by_seq[seq].push(tokens, logprobs, num_drafted, num_accepted)

    def end(self, seq: int, reason: FinishReason, error: str | None = None) -> None:
        """Close a stream and forget it: its id may be used again."""
        stream = self._by_seq.pop(seq)
        del self._by_id[stream.id]
        stream.end(reason, error)

    def end_all(self, reason: FinishReason, error: str) -> None:
        """Close every stream."""
        for seq in list(self._by_seq):
            self.end(seq, reason, error)

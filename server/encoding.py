"""Text to ids without holding up anybody else."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import anyio
import anyio.to_thread

from server.conversation import Message, encode_messages
from server.errors import invalid, too_long
from server.tokens import Tokenizer

T = TypeVar("T")

_AT_ONCE = 2048  # bytes, or ids: a hand-over to a thread costs as much


class Encoder:
    """A tokenizer for the event loop.

    What could not fit is refused by its bytes, before they are looked at. Long texts are encoded in a thread, one at a
    time, so that however many come there is one thread besides the engine's that wants to be let run.
    """

    def __init__(self, tokenizer: Tokenizer, num_positions: int) -> None:
        self._tokenizer = tokenizer
        self._num_positions = num_positions
        longest = max(len(tokenizer.token_bytes(token)) for token in range(tokenizer.vocab_size))
        self._max_bytes = num_positions * longest
        self._limiter = anyio.CapacityLimiter(1)

    async def text(self, text: str, param: str) -> list[int]:
        """Ids of a text. Raises ApiError for one that is too long or no text."""
        num_bytes = self._check([text], param)
        try:
            ids = await self._run(num_bytes, lambda: self._tokenizer.encode(text))
        except ValueError as error:
            raise invalid(param, str(error)) from None
        self.check_length(ids, param)
        return ids

    async def conversation(self, messages: Sequence[Message]) -> list[int]:
        """Ids of a conversation up to where the assistant speaks. Raises ApiError for one that cannot be had."""
        num_bytes = self._check([message["content"] for message in messages], "messages")
        ids = await self._run(num_bytes, lambda: encode_messages(self._tokenizer, messages))
        self.check_length(ids, "messages")
        return ids

    async def decode(self, ids: list[int]) -> str:
        """Text of ids. Raises ApiError for more than fit, or one that is none."""
        self.check_length(ids, "tokens")
        try:
            return await self._run(len(ids), lambda: self._tokenizer.decode(ids))
        except ValueError as error:
            raise invalid("tokens", str(error)) from None

    def check_length(self, ids: Sequence[object], param: str) -> None:
        """Raise ApiError where ids are more than can be kept."""
        if len(ids) > self._num_positions:
            raise too_long(param, f"{len(ids)} tokens: at most {self._num_positions}")

    def _check(self, texts: Sequence[str], param: str) -> int:
        #   a character has one byte at least, and counting bytes takes a copy
        num_bytes = sum(map(len, texts))
        if num_bytes <= self._max_bytes:
            num_bytes = sum(len(text.encode("utf-8", "replace")) for text in texts)
        if num_bytes > self._max_bytes:
            raise too_long(param, f"{num_bytes} bytes, which are more than {self._num_positions} tokens")
        return num_bytes

    async def _run(self, size: int, work: Callable[[], T]) -> T:
        if size <= _AT_ONCE:
            return work()
        return await anyio.to_thread.run_sync(work, limiter=self._limiter)

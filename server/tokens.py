"""What the server asks of a tokenizer."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol


class Tokenizer(Protocol):
    """Text to ids and back; the toy one and those of model files fit."""

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end a generation."""

    @property
    def vocab_size(self) -> int:
        """Ids are in `[0, vocab_size)`."""

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; control tokens are never made from it."""

    def decode(self, ids: Iterable[int]) -> str:
        """Text of `ids`."""

    def token_bytes(self, token: int) -> bytes:
        """Bytes of one id, maybe a part of a character. ValueError out of the vocabulary."""

    def chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Ids of a conversation up to where the assistant speaks. ValueError for one it cannot put into ids.

        Each message has a `role` and its `content`, and may have `tool_calls`, a `tool_call_id`, `reasoning_content`.
        """

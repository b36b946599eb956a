"""A tokenizer and a target that need no files: syllables of no language, from logits that are drawn by a hash."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from models.fake import FakeModel
from models.protocol import Chunk

_SYLLABLES = [onset + vowel for onset in "bdfghjklmnprstvwz" for vowel in "aeiou"]
_WORDS = [text.encode() for text in (*_SYLLABLES, *(" " + syllable for syllable in _SYLLABLES))]
_ROLES = ("system", "user", "assistant")
_END = 256
_ROLE_IDS = {role: _END + 1 + i for i, role in enumerate(_ROLES)}
_FIRST_WORD = _END + 1 + len(_ROLES)
_LIKELY_BYTES = b".,\n"


class ToyTokenizer:
    """Ids 0 to 255 are the bytes, then come control tokens, then syllables with and without a space before them."""

    def __init__(self) -> None:
        self.eos_ids = frozenset({_END})
        self.vocab_size = _FIRST_WORD + len(_WORDS)
        self._ids = {word: _FIRST_WORD + i for i, word in enumerate(_WORDS)}

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, the longest syllable first. UnicodeEncodeError for a lone surrogate."""
        data = text.encode()
        ids: list[int] = []
        at = 0
        while at < len(data):
            for length in (3, 2):
                token = self._ids.get(data[at : at + length])
                if token is not None:
                    break
            else:
                token, length = data[at], 1
            ids.append(token)
            at += length
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Text of `ids`; control tokens have none, and broken UTF-8 becomes the replacement character."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        """Bytes of one id. ValueError out of the vocabulary."""
        if not 0 <= token < self.vocab_size:
            raise ValueError(f"id {token} is out of the vocabulary [0, {self.vocab_size})")
        if token < _END:
            return bytes((token,))
        return b"" if token < _FIRST_WORD else _WORDS[token - _FIRST_WORD]

    def chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Ids of a conversation up to where the assistant speaks. ValueError for a role that is not known."""
        ids: list[int] = []
        for message in messages:
            role = message["role"]
            if role not in _ROLE_IDS:
                raise ValueError(f"role is {role!r}: one of {', '.join(_ROLES)}")
            ids += [_ROLE_IDS[role], *self.encode(message["content"]), _END]
        return [*ids, _ROLE_IDS["assistant"]]


class ToyModel(FakeModel):
    """A `FakeModel` over the toy vocabulary that prefers syllables to single bytes and never speaks for others.

    Logits are drawn from `[0, sharp)` by the last `order` tokens; those of bytes are lower by `sharp`.
    """

    def __init__(self, seed: int, order: int, sharp: float) -> None:
        super().__init__(seed, ToyTokenizer().vocab_size, order, sharp)
        self._bias = np.zeros(self.vocab_size, np.float32)
        self._bias[:_END] = -sharp
        self._bias[list(_LIKELY_BYTES)] = 0
        self._bias[list(_ROLE_IDS.values())] = -np.inf

    def forward(self, chunks: Sequence[Chunk]) -> NDArray[np.float32]:
        """Write the fed ids; logits float32 `[sum(num_rows), vocab_size]`."""
        return super().forward(chunks) + self._bias

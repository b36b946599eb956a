"""Text to token ids: by a model's own tokenizer, or by words where there is none."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from models.extras import need
from models.loading import open_model
from plans.errors import PlanError
from sims.recordings import Message, transcript

WORDS = "words"

_WORD = re.compile(r"\w+|\s+|[^\w\s]")
_MOST_UNKNOWN = 0.001


class Encoder(Protocol):
    """Makes token ids of text, and keeps count of what tells whether it was made for such text."""

    name: str
    is_approximate: bool
    vocab_size: int | None
    """Ids are below it; None where there is no bound."""

    def encode(self, text: str) -> list[int]:
        """Give the ids of a text. ValueError for what is no text."""

    def render(self, messages: Sequence[Message]) -> list[int]:
        """Give the ids of a conversation up to where the assistant speaks."""

    def suspicion(self) -> str | None:
        """Say why the texts so far may be none of this tokenizer's; None where nothing speaks for that."""


class Words:
    """Words, runs of space, and signs, each a token: about as many as a tokenizer makes of English, and no more."""

    def __init__(self) -> None:
        self.name = WORDS
        self.is_approximate = True
        self.vocab_size: int | None = None
        self._ids: dict[str, int] = {}

    def encode(self, text: str) -> list[int]:
        """Give words numbers as they first come."""
        ids = self._ids
        return [ids.setdefault(word, len(ids)) for word in _WORD.findall(text)]

    def render(self, messages: Sequence[Message]) -> list[int]:
        """Give the words of the conversation as one text."""
        return self.encode(transcript(messages))

    def suspicion(self) -> str | None:
        """Words are of any text."""
        return None


class FileTokenizer:
    """A tokenizer from a model's file: a `tokenizer.json`, a GGUF, or a folder or known name of a model."""

    def __init__(self, source: str) -> None:
        self.name = source
        self.is_approximate = False
        self._num_bytes = self._num_chars = self._num_tokens = self._num_unknown = 0
        self._unknown: int | None = None
        self._chat: Any = None
        self._encode: Callable[[str], list[int]]
        self.vocab_size: int | None
        try:
            if source.endswith(".json"):
                built: Any = need("tokenizers", "real").Tokenizer.from_file(source)
                built.no_truncation()
                built.no_padding()
                self.vocab_size = int(built.get_vocab_size())
                token = msgspec.json.decode(built.to_str())["model"].get("unk_token")
                self._unknown = None if token is None else built.token_to_id(token)
                self._encode = lambda text: built.encode(text, add_special_tokens=False).ids
            else:
                tokenizer = open_model(source).tokenizer()
                self.vocab_size = tokenizer.vocab_size
                self._encode = tokenizer.encode
                self._chat = tokenizer.chat
        except PlanError:
            raise
        except Exception as error:  # the library for tokenizer.json raises plain ones
            raise PlanError(
                f"--tokenizer {source}: {error}; allowed: a tokenizer.json, a GGUF file, a folder or name of a model, "
                f"or {WORDS!r}"
            ) from None

    def encode(self, text: str) -> list[int]:
        """Give the ids without any that mark a beginning or an end."""
        ids: list[int] = self._encode(text)
        self._num_bytes += len(text.encode())
        self._num_chars += len(text)
        self._num_tokens += len(ids)
        if self._unknown is not None:
            self._num_unknown += ids.count(self._unknown)
        return ids

    def render(self, messages: Sequence[Message]) -> list[int]:
        """Put a conversation in the model's chat template, or in a plain one where it has none."""
        if self._chat is not None:
            try:
                ids: list[int] = self._chat(
                    [{"role": message.role, "content": message.content} for message in messages]
                )
                return ids
            except ValueError:
                self._chat = None  # there is none, or it does not take such conversations
        return self.encode(transcript(messages))

    def suspicion(self) -> str | None:
        """Say that many tokens are unknown, or that the text falls into bytes."""
        if not self._num_tokens or not self._num_chars:
            return None
        share = self._num_unknown / self._num_tokens
        if share > _MOST_UNKNOWN:
            return f"{share:.1%} of the tokens are unknown to {self.name}: it may not belong to this log"
        per_token = self._num_bytes / self._num_tokens
        #   letters that take two or three bytes are as many tokens where the vocabulary was not made for them
        if per_token < 1 + self._num_bytes / self._num_chars:
            return (
                f"a token of {self.name} is {per_token:.1f} bytes of this log: it may not have been made for such text"
            )
        return None


def encoder(source: str) -> Encoder:
    """Give a tokenizer by name or file. PlanError says what there is."""
    if source == WORDS:
        return Words()
    if not Path(source).exists() and source.endswith((".json", ".gguf")):
        raise PlanError(f"--tokenizer {source}: there is no such file")
    return FileTokenizer(source)

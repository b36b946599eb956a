"""Recordings of prompts and completions, as text or as token ids."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from models.checked_kv import chained, checksum
from sims.errors import SimError
from sims.recordings import Message, read_conversations, transcript

_WORDS = re.compile(r"\s+|\w+|[^\w\s]")


class Recording(msgspec.Struct):
    """Prompts with the completions recorded for them, as ids in `[0, eos)`; `unused` counts rows left out, by reason.

    Of text, a word, a run of white space and a punctuation mark are a token each: `words[id]` gives it back, and the
    words of a text joined are that text.
    """

    name: str
    records: list[tuple[list[int], list[int]]]
    eos: int
    words: list[str]
    num_rows: int
    unused: dict[str, int]

    @property
    def vocab_size(self) -> int:
        """Ids the recording uses, the end of a completion included."""
        return self.eos + 1

    def text(self, tokens: list[int]) -> str:
        """Give back the text of tokens of a recording of text."""
        return "".join(self.words[token] for token in tokens)


def read_recording(path: Path, layout: str | None = None) -> Recording:
    """Turn a file's conversations into tokens, all of them from text or all of them given as ids.

    Raises SimError for a file that cannot be read or leaves no row to use.
    """
    file = read_conversations(path, layout)
    unused = Counter(file.unused)
    ids: dict[str, int] = {}
    kind: type | None = None
    records: list[tuple[list[int], list[int]]] = []
    following: dict[int, int] = {}
    for conversation in file.conversations:
        kind = kind or type(conversation.completion)
        if type(conversation.completion) is not kind:
            unused["text where the first row has ids, or the other way round"] += 1
            continue
        prompt, completion = _tokens(conversation.prompt, ids), _tokens(conversation.completion, ids)
        if not prompt:
            unused["empty prompt"] += 1
        elif any(following.get(h, token) != token for h, token in _steps(prompt, completion)):
            unused["another row continues the same tokens differently"] += 1
        else:
            following.update(_steps(prompt, completion))
            records.append((prompt, completion))
    if not records:
        raise SimError(f"{path} has no row to use ({file.num_rows} rows; unused: {dict(unused) or 'none'})")
    eos = 1 + max(max(*prompt, *completion, 0) for prompt, completion in records)
    return Recording(path.name, records, max(eos, len(ids)), list(ids), file.num_rows, dict(unused))


def _steps(prompt: list[int], completion: list[int]) -> Iterator[tuple[int, int]]:
    """Give for each context of the completion its checksum and the token that follows, -1 for the end."""
    h = checksum(prompt)
    for token in (*completion, -1):
        yield h, token
        h = chained(h, token)


def _tokens(part: str | list[int] | list[Message], ids: dict[str, int]) -> list[int]:
    if isinstance(part, str):
        return [ids.setdefault(word, len(ids)) for word in _WORDS.findall(part)]
    if part and isinstance(part[0], Message):
        return _tokens(transcript([each for each in part if isinstance(each, Message)]), ids)
    return [each for each in part if isinstance(each, int)]

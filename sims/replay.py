"""Recordings of prompts and completions, as text or as token ids."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from models.checked_kv import chained, checksum
from sims.errors import SimError

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


class _Row(msgspec.Struct):
    prompt: str | list[int]
    completion: str | list[int]


def read_recording(path: Path) -> Recording:
    """Read JSONL with `prompt` and `completion` in each row, all of them text or all of them token ids.

    Raises SimError for a file that cannot be read or leaves no row to use.
    """
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise SimError(f"{path} cannot be read: {error}") from None
    decoder = msgspec.json.Decoder(_Row)
    unused = Counter[str]()
    ids: dict[str, int] = {}
    kind: type | None = None
    records: list[tuple[list[int], list[int]]] = []
    following: dict[int, int] = {}
    for line in lines:
        try:
            row = decoder.decode(line)
        except msgspec.DecodeError:
            unused["malformed"] += 1
            continue
        kind = kind or type(row.prompt)
        if type(row.prompt) is not kind or type(row.completion) is not kind:
            unused["text where the first row has ids, or the other way round"] += 1
            continue
        prompt, completion = (_ids(part, ids) for part in (row.prompt, row.completion))
        if not prompt:
            unused["empty prompt"] += 1
        elif min(*prompt, *completion, 0) < 0:
            unused["a negative id"] += 1
        elif any(following.get(h, token) != token for h, token in _steps(prompt, completion)):
            unused["another row continues the same tokens differently"] += 1
        else:
            following.update(_steps(prompt, completion))
            records.append((prompt, completion))
    if not records:
        raise SimError(f"{path} has no row to use ({len(lines)} rows; unused: {dict(unused) or 'none'})")
    eos = 1 + max(max(*prompt, *completion, 0) for prompt, completion in records)
    return Recording(path.name, records, max(eos, len(ids)), list(ids), len(lines), dict(unused))


def _steps(prompt: list[int], completion: list[int]) -> Iterator[tuple[int, int]]:
    """Give for each context of the completion its checksum and the token that follows, -1 for the end."""
    h = checksum(prompt)
    for token in (*completion, -1):
        yield h, token
        h = chained(h, token)


def _ids(part: str | list[int], ids: dict[str, int]) -> list[int]:
    if isinstance(part, list):
        return part
    return [ids.setdefault(word, len(ids)) for word in _WORDS.findall(part)]

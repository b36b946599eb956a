"""From a file to its conversations."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from models.extras import need
from sims.errors import SimError
from sims.files import json_rows, open_text
from sims.layouts import Layout, UnusableError, choose, counts
from sims.recordings.conversations import Conversation, Conversations
from sims.recordings.layouts import LAYOUTS, Found

FORMATS = tuple(layout.name for layout in LAYOUTS)
"""The names of the layouts that can be read."""

_OTHERS = {
    **dict.fromkeys(("input_length", "input_toks", "hash_ids"), "it may be a trace, which --trace takes"),
    **dict.fromkeys(("turns", "question", "instruction"), "these may be questions without answers"),
}
_PARQUET = b"PAR1"
_ROWS_AT_ONCE = 1024


def read_conversations(path: Path, layout: str | None = None) -> Conversations:
    """Read a recording: JSON lines or a JSON array, gzipped or not, or Parquet; None has its layout guessed.

    A row or an answer that cannot be used is counted by its reason, never an error; SimError for a file of no known
    layout or without anything to use, and for Parquet without the extra `parquet`.
    """
    unused = Counter[str]()
    chosen, found = stream_conversations(path, layout, unused)
    conversations = list(found)
    if not conversations:
        raise nothing_to_use(path, chosen, unused)
    return Conversations(path.name, chosen, conversations, dict(unused))


def stream_conversations(
    path: Path, layout: str | None, unused: Counter[str], prepare: Callable[[Any], Any] = lambda row: row
) -> tuple[str, Iterator[Conversation]]:
    """Read the same one by one, so that a file may be larger than memory, and name the layout.

    Each row is prepared first. What cannot be used is counted as it is met. SimError as above, now or while reading.
    """
    chosen, rows = choose(path, map(prepare, _rows(path)), LAYOUTS, layout, "a recording", _OTHERS)
    return chosen.name, _conversations(rows, chosen, unused)


def nothing_to_use(path: Path, layout: str, unused: Mapping[str, int]) -> SimError:
    """Say that a file has been read in vain."""
    about = next(each.about for each in LAYOUTS if each.name == layout)
    return SimError(f"{path} has no row to use, read as {layout} ({about}); unused: {counts(unused)}")


def _conversations(rows: Iterator[Any], layout: Layout[list[Found]], unused: Counter[str]) -> Iterator[Conversation]:
    for row in rows:
        try:
            for found in layout.take(row):
                if isinstance(found, UnusableError):
                    unused[str(found)] += 1
                else:
                    yield found
        except UnusableError as error:
            unused[str(error)] += 1


def _rows(path: Path) -> Iterator[Any]:
    try:
        with path.open("rb") as file:
            is_parquet = file.read(len(_PARQUET)) == _PARQUET
    except OSError as error:
        raise SimError(f"{path} cannot be read: {error}") from None
    if not is_parquet:
        with open_text(path) as text:
            yield from json_rows(text)
        return
    try:
        library = need("pyarrow.parquet", "parquet")
        for batch in library.ParquetFile(path).iter_batches(_ROWS_AT_ONCE):
            yield from batch.to_pylist()
    except Exception as error:  # the library raises of many kinds
        raise SimError(f"{path} cannot be read: {error}") from None

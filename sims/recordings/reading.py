"""From a file to its conversations."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from models.extras import need
from sims.errors import SimError
from sims.files import json_rows, read_text
from sims.layouts import UnusableError, choose, counts
from sims.recordings.conversations import Conversation, Conversations
from sims.recordings.layouts import LAYOUTS

FORMATS = tuple(layout.name for layout in LAYOUTS)
"""The names of the layouts that can be read."""

_OTHERS = {
    **dict.fromkeys(("input_length", "input_toks", "hash_ids"), "it may be a trace, which --trace takes"),
    **dict.fromkeys(("turns", "question", "instruction"), "these may be questions without answers"),
}
_PARQUET = b"PAR1"


def read_conversations(path: Path, layout: str | None = None) -> Conversations:
    """Read a recording: JSON lines or a JSON array, gzipped or not, or Parquet; None has its layout guessed.

    A row or an answer that cannot be used is counted by its reason, never an error; SimError for a file of no known
    layout or without anything to use, and for Parquet without the extra `parquet`.
    """
    chosen, rows = choose(path, _rows(path), LAYOUTS, layout, "a recording", _OTHERS)
    conversations: list[Conversation] = []
    unused = Counter[str]()
    for row in rows:
        try:
            for found in chosen.take(row):
                if isinstance(found, UnusableError):
                    unused[str(found)] += 1
                else:
                    conversations.append(found)
        except UnusableError as error:
            unused[str(error)] += 1
    if not conversations:
        raise SimError(f"{path} has no row to use, read as {chosen.name} ({chosen.about}); unused: {counts(unused)}")
    return Conversations(path.name, chosen.name, conversations, dict(unused))


def _rows(path: Path) -> Iterator[Any]:
    try:
        with path.open("rb") as file:
            is_parquet = file.read(len(_PARQUET)) == _PARQUET
    except OSError as error:
        raise SimError(f"{path} cannot be read: {error}") from None
    if not is_parquet:
        return json_rows(read_text(path))
    try:
        library = need("pyarrow.parquet", "parquet")
        return iter(library.read_table(path).to_pylist())
    except Exception as error:  # the library raises of many kinds
        raise SimError(f"{path} cannot be read: {error}") from None

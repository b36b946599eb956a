"""Kinds of files of rows: how one is known from its rows, and how rows that cannot be used are told."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from sims.errors import SimError
from sims.files import NOT_JSON

T = TypeVar("T")

_ROWS_TO_LOOK_AT = 20
_MOST_NAMED = 12


class UnusableError(Exception):
    """What cannot be used; the message is the reason, in the same words for every row with that fault."""


class Layout(NamedTuple, Generic[T]):
    """A kind of file."""

    name: str
    about: str
    """Its rows, for a person."""
    known_by: tuple[frozenset[str], ...]
    """Sets of keys: a row that has all keys of one is of this kind."""
    read: Callable[[dict[str, Any]], T]
    """Raises UnusableError, KeyError for a key that is missing, msgspec.ValidationError for a value of a wrong type."""

    def take(self, row: Any) -> T:
        """Read a row. Raises UnusableError with the reason why it cannot be used."""
        if row is NOT_JSON:
            raise UnusableError("not JSON")
        if not isinstance(row, dict):
            raise UnusableError("not a JSON object")
        try:
            return self.read(row)
        except msgspec.ValidationError as error:
            raise UnusableError(str(error).replace("`", "").replace("$.", "")) from None
        except KeyError as error:
            raise UnusableError(f"no {error.args[0]}") from None


def choose(
    path: Path, rows: Iterator[Any], layouts: Sequence[Layout[T]], name: str | None, what: str, others: dict[str, str]
) -> tuple[Layout[T], Iterator[Any]]:
    """Choose the layout by `name`, or the first one that the first rows have; give it with all the rows.

    Raises SimError for a name of none of them, and for rows of no known layout: with `what` was looked for, the keys
    that are there, and of `others` what a key tells.
    """
    if name is not None:
        for layout in layouts:
            if layout.name == name:
                return layout, rows
        raise SimError(
            f"format is {name!r}: {path.name} is read as {what} of {', '.join(each.name for each in layouts)}"
        )
    first = list(itertools.islice(rows, _ROWS_TO_LOOK_AT))
    seen = [row for row in first if isinstance(row, dict)]
    for layout in layouts:
        if any(keys <= row.keys() for row in seen for keys in layout.known_by):
            return layout, itertools.chain(first, rows)
    if not seen:
        raise SimError(
            f"{path} has no row to use: it is no JSON object a line, no array of them, no table with a header"
        )
    keys = list(dict.fromkeys(str(key) for row in seen for key in row))
    hint = next((f"; {told}" for key, told in others.items() if key in keys), "")
    known = "\n".join(f"  {layout.name}: {layout.about}" for layout in layouts)
    raise SimError(
        f"{path} is {what} of no known layout: its rows have {', '.join(keys[:_MOST_NAMED]) or 'no fields'}{hint}. "
        f"Known, and to be named with --format:\n{known}"
    )


def counts(unused: Mapping[str, int]) -> str:
    """Say how many rows could not be used for which reason."""
    return ", ".join(f"{count} {reason}" for reason, count in unused.items()) or "none"

"""What a sweep file says: a command, options that are fixed, options that vary, and seeds."""

import hashlib
from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from sims.errors import SimError
from sims.sweep.store import FORMAT

MOST_CELLS = 10_000


_ALLOWED: dict[str, tuple[Any, str]] = {
    "command": (str, "the name of a command"),
    "seeds": (int | list[int], "a count from 1 on, or a list of seeds"),
    "figures": (list[str], "a list of names"),
    "options": (dict, "a table of options"),
    "axes": (dict, "a table of options with a list of values each"),
}
"""What each field of a file may be."""


class Grid(msgspec.Struct, frozen=True):
    """A sweep file as it was read: nothing here knows the options of a command."""

    command: str
    seeds: int | list[int] | None = None
    """So many, or these; None where the file says nothing."""
    figures: list[str] = []
    """To be shown as text; the page and the tables in files have all."""
    options: dict[str, Any] = {}
    axes: dict[str, Any] = {}
    """Options with a list of values each."""

    def combinations(self) -> Iterator[dict[str, Any]]:
        """Give a value for each axis, the last of them varying fastest."""
        for values in product(*self.axes.values()):
            yield dict(zip(self.axes, values, strict=True))


class Cell(NamedTuple):
    """One run: a command line, and where in the grid it stands."""

    id: str
    words: tuple[str, ...]
    """Of the command line, after `outrider`."""
    values: dict[str, Any]
    """Of the axes; None where one has no effect."""
    options: dict[str, Any]
    """All that are given, those of the axes too."""
    seed: int | None


def read(path: Path) -> Grid:
    """Read a sweep file. SimError names the field, the value and what is allowed."""
    try:
        said = msgspec.toml.decode(path.read_bytes())
    except OSError as error:
        raise SimError(str(error.strerror)) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SimError(f"no TOML: {error}") from None
    for field, value in said.items():
        if field not in _ALLOWED:
            raise SimError(f"{field}: there is no such field; there are {', '.join(_ALLOWED)}")
        kind, allowed = _ALLOWED[field]
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            raise SimError(f"{field}: {value!r} is not {allowed}") from None
    if "command" not in said:
        raise SimError("command: it is missing, and says what is run")
    grid = msgspec.convert(said, Grid)
    for name, values in grid.axes.items():
        if not isinstance(values, list) or not values:
            raise SimError(f"axes.{name}: {values!r} is no list of one value or more")
        for i, value in enumerate(values):
            if value in values[:i]:
                raise SimError(f"axes.{name}: {value!r} is there twice")
        if name in grid.options:
            raise SimError(f"{name} is in [options] and in [axes]: it is fixed or it varies")
    if isinstance(grid.seeds, int) and grid.seeds < 1:
        raise SimError(f"seeds: {grid.seeds} is not a count from 1 on, or a list of seeds")
    if isinstance(grid.seeds, list) and (not grid.seeds or len(set(grid.seeds)) < len(grid.seeds)):
        raise SimError(f"seeds: {grid.seeds} is no list of different seeds, one or more")
    num_seeds = len(grid.seeds) if isinstance(grid.seeds, list) else grid.seeds or 1
    num_cells = prod(map(len, grid.axes.values())) * num_seeds
    if num_cells > MOST_CELLS:
        raise SimError(f"a grid of {num_cells:,} cells; at most {MOST_CELLS:,}")
    return grid


def identity(version: str, command: str, options: Mapping[str, Any], seed: int | None, files: Mapping[str, str]) -> str:
    """Name a cell by all that its result is a function of: files by their content, not by where they are."""
    known = [FORMAT, version, command, dict(options), seed, dict(files)]
    return hashlib.sha256(msgspec.json.encode(known, order="sorted")).hexdigest()[:24]

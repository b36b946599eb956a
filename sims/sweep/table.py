"""What a sweep came to as one table: a row for each combination, every figure over its seeds."""

import csv
import io
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sims.sweep.grid import Cell
from sims.sweep.store import Failure, Result


class Spread(msgspec.Struct, frozen=True):
    """A figure over seeds."""

    mean: float
    deviation: float | None
    """The standard deviation of a sample; None of one value."""
    values: list[float | None]
    """One for each seed of the row; None where it was not measured."""

    @classmethod
    def of(cls, values: Sequence[float | None]) -> "Spread":
        """Summarise values, one of which is a number at least."""
        known = [value for value in values if value is not None]
        return cls(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None, list(values))

    def __str__(self) -> str:
        return said(self.mean) if self.deviation is None else f"{said(self.mean)} ± {said(self.deviation, 2)}"


class Row(msgspec.Struct, frozen=True):
    """A combination of values; the lists have an entry for each seed that came to something."""

    values: dict[str, Any]
    """By axis; None where an axis has no effect."""
    seeds: list[int | None]
    digests: list[str]
    num_failed: int
    figures: dict[str, Spread]


class Table(msgspec.Struct, frozen=True):
    """A whole sweep."""

    command: str
    axes: dict[str, list[Any]]
    options: dict[str, Any]
    """Those that are the same in all cells."""
    shown: list[str]
    """Figures that were asked for."""
    rows: list[Row]
    failed: list[Failure]

    @property
    def figures(self) -> list[str]:
        """Every figure that was measured anywhere, those that were asked for first."""
        found = {name: None for row in self.rows for name in row.figures}
        return [*(name for name in self.shown if name in found), *(name for name in found if name not in self.shown)]


def make_table(
    command: str,
    axes: Mapping[str, list[Any]],
    options: Mapping[str, Any],
    shown: Sequence[str],
    cells: Sequence[Cell],
    results: Mapping[str, Result],
    failed: Mapping[str, Failure],
) -> Table:
    """Put together what cells came to, in their order; results and failures are found by the cells' ids."""
    groups: dict[bytes, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(msgspec.json.encode(cell.values), []).append(cell)
    rows = [_row(group, results) for group in groups.values()]
    failures = [failed[cell.id] for cell in cells if cell.id in failed]
    return Table(command, dict(axes), dict(options), list(shown), rows, failures)


def _row(cells: Sequence[Cell], results: Mapping[str, Result]) -> Row:
    done = [(cell, results[cell.id]) for cell in cells if cell.id in results]
    figures = [result.figures for _, result in done]
    names = dict.fromkeys(name for of_cell in figures for name in of_cell)
    return Row(
        cells[0].values,
        [cell.seed for cell, _ in done],
        [result.digest for _, result in done],
        len(cells) - len(done),
        {name: Spread.of([of_cell.get(name) for of_cell in figures]) for name in names},
    )


def as_csv(table: Table) -> str:
    """Write a line for each combination and seed, with every figure."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = table.figures
    writer.writerow([*table.axes, "seed", *names, "digest"])
    for row in table.rows:
        for i, seed in enumerate(row.seeds):
            values = [label(value) for value in row.values.values()]
            measured = [row.figures[name].values[i] if name in row.figures else None for name in names]
            writer.writerow([*values, "" if seed is None else seed, *measured, row.digests[i]])
    return text.getvalue()


def label(value: Any) -> str:
    """Say a value of an axis."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list():
            return " ".join(map(label, value))
        case _:
            return str(value)


def said(number: float, digits: int = 4) -> str:
    """Say a number with so many digits, or all that are before the point."""
    is_whole = number == int(number) or abs(number) >= 10 ** (digits - 1)
    return f"{number:,.0f}" if is_whole else f"{number:.{digits}g}"

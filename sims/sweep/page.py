"""A sweep as one page that needs nothing else: any two of its parameters as axes, any figure as the value."""

from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

import msgspec

from sims.page import document, section, table
from sims.sweep.table import Row, Table, label

_MOST_ROWS = 500
_SEED = "seed"


class _Parameter(msgspec.Struct, frozen=True):
    name: str
    values: list[str]


class _Data(msgspec.Struct, frozen=True):
    """What the script draws. A point has an index of each parameter's value, -1 where it has no effect."""

    parameters: list[_Parameter]
    figures: list[str]
    places: list[list[int]]
    measured: list[list[float | None]]
    """By point, then by figure."""


def page(sweep: Table) -> str:
    """Write the page: a function of the table alone."""
    here = Path(__file__)
    data = _data(sweep)
    parts = [_head(sweep)]
    if data.places:
        parts += [_explorer(), _combinations(sweep)]
    if sweep.failed:
        parts.append(_failures(sweep))
    if data.places:
        encoded = msgspec.json.encode(data).decode().replace("</", "<\\/")
        parts.append(f'<script type="application/json" id="data">{encoded}</script>')
        parts.append(f"<script>\n{here.with_name('page.js').read_text(encoding='utf-8')}</script>")
    style = here.with_name("page.css").read_text(encoding="utf-8")
    return document(f"Outrider sweep of {sweep.command}", "\n".join(parts), style)


def _data(sweep: Table) -> _Data:
    seeds = sorted({seed for row in sweep.rows for seed in row.seeds if seed is not None})
    parameters = [_Parameter(name, [label(value) for value in values]) for name, values in sweep.axes.items()]
    if seeds:
        parameters.append(_Parameter(_SEED, list(map(str, seeds))))
    places, measured = list[list[int]](), list[list[float | None]]()
    figures = sweep.figures
    for row in sweep.rows:
        for i, seed in enumerate(row.seeds):
            place = [_index(sweep.axes[name], value) for name, value in row.values.items()]
            places.append(place if seed is None else [*place, seeds.index(seed)])
            measured.append([row.figures[name].values[i] if name in row.figures else None for name in figures])
    return _Data(parameters, figures, places, measured)


def _index(values: list[Any], value: Any) -> int:
    return -1 if value is None else values.index(value)


def _head(sweep: Table) -> str:
    num_done = sum(len(row.seeds) for row in sweep.rows)
    num_failed = len(sweep.failed)
    kind = "bad" if num_failed else "good"
    said = f"{num_done:,} cells came to a result" + (f", {num_failed:,} failed" if num_failed else "")
    fixed = ", ".join(f"{name} {label(value)}" for name, value in sweep.options.items())
    varying = ", ".join(sweep.axes) or "nothing"
    return (
        f"<h1>Outrider sweep of {escape(sweep.command)}</h1>"
        f'<p class="note">Varied: {escape(varying)}. The same in all: {escape(fixed or "the defaults")}.</p>'
        f'<div class="verdict {kind}">{said}.</div>'
    )


def _explorer() -> str:
    controls = "".join(
        f'<label>{text}<select id="{name}"></select></label>'
        for name, text in (("figure", "figure"), ("across", "across"), ("down", "down"), ("look", "as"))
    )
    return section(
        "Any two parameters",
        "Means over the seeds, and whatever else is set to the mean of all, with the standard deviation. A combination "
        "in which a parameter has no effect stands at each of its values.",
        f'<div class="controls">{controls}<span id="others"></span></div>'
        '<div class="legend" id="legend"></div><div id="plot" class="scroll"></div>'
        '<p class="note" id="said"></p><noscript><p class="nothing">This needs JavaScript; the table below does not.'
        "</p></noscript>",
    )


def _combinations(sweep: Table) -> str:
    shown = [name for name in sweep.shown if name in sweep.figures]
    rows = [_cells(row, shown) for row in sweep.rows[:_MOST_ROWS]]
    after = (
        f"The first {_MOST_ROWS:,} of {len(sweep.rows):,}; table.csv has all." if len(sweep.rows) > _MOST_ROWS else ""
    )
    return section(
        "All combinations",
        "Means and standard deviations over the seeds; the figures that the sweep's file names.",
        f'<div class="scroll">{table(tuple(map(escape, (*sweep.axes, *shown, "runs", "failed"))), rows)}</div>',
        after,
    )


def _cells(row: Row, shown: Iterable[str]) -> tuple[str, ...]:
    figures = [str(row.figures[name]) if name in row.figures else "-" for name in shown]
    return (*map(label, row.values.values()), *figures, str(len(row.seeds)), str(row.num_failed or ""))


def _failures(sweep: Table) -> str:
    parts = "".join(
        f"<details><summary><code>{escape(failure.command)}</code></summary><pre>{escape(failure.error)}</pre>"
        f"{f'<pre>{escape(failure.traceback)}</pre>' if failure.traceback else ''}</details>"
        for failure in sweep.failed
    )
    return section("Cells that failed", "The command runs the cell again alone; the next sweep tries it too.", parts)

"""From a file to a trace: which layout it has, which rows can be used, and when each one comes."""

import csv
import io
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from sims.errors import SimError
from sims.files import json_rows, read_text
from sims.layouts import Layout, UnusableError, choose, counts
from sims.traces.json_layouts import json_layouts
from sims.traces.said import Said
from sims.traces.table_layouts import TABLE_LAYOUTS
from sims.traces.trace import Trace, TraceRow

FORMATS = tuple(layout.name for layout in (*json_layouts(), *TABLE_LAYOUTS))
"""The names of the layouts that can be read."""

_IN_RECORDINGS = ("prompt", "messages", "conversations", "completion", "text_input", "request")
_OTHERS = dict.fromkeys(_IN_RECORDINGS, "it may be a recording of conversations, which --replay takes")


def read_trace(path: Path, layout: str | None = None) -> Trace:
    """Read a trace; `layout` names its layout, one of `FORMATS`, and None has it guessed.

    A row that cannot be used is counted by its reason, never an error; SimError for a file of no known layout or
    without any row to use.
    """
    chosen, rows = _open(path, layout)
    trace = _read(path.name, rows, chosen)
    if not trace.rows:
        raise SimError(
            f"{path} has no row to use, read as {chosen.name} ({chosen.about}); "
            f"{trace.num_rows} rows; unused: {counts(trace.unused)}"
        )
    return trace


def says_prompts(path: Path, layout: str | None = None) -> bool:
    """Tell whether a trace says which prompts began alike; False where it cannot be read."""
    try:
        chosen, rows = _open(path, layout)
    except SimError:
        return False
    return chosen not in TABLE_LAYOUTS and any(_has_hashes(chosen, row) for row in rows)


def _open(path: Path, layout: str | None) -> tuple[Layout[Said], Iterator[Any]]:
    """Choose the layout of a file, and give its rows. SimError for a file of no known layout."""
    text = read_text(path)
    if text.lstrip().startswith(("{", "[")):
        return choose(
            path, json_rows(io.StringIO(text, newline="\n")), json_layouts(), layout, "a trace in JSON", _OTHERS
        )
    table: Iterator[Any] = csv.DictReader(io.StringIO(text, newline=""))
    return choose(path, table, TABLE_LAYOUTS, layout, "a trace in a table", _OTHERS)


def _has_hashes(layout: Layout[Said], row: Any) -> bool:
    try:
        return bool(_checked(layout.take(row)).hash_ids)
    except UnusableError:
        return False


def _read(name: str, rows: Iterator[Any], layout: Layout[Said]) -> Trace:
    used: list[Said] = []
    unused = Counter[str]()
    num_rows = 0
    for num_rows, row in enumerate(rows, 1):  # noqa: B007  # the last one counts them
        try:
            used.append(_checked(layout.take(row)))
        except UnusableError as error:
            unused[str(error)] += 1
    has_times = any(said.at_s is not None for said in used)
    hash_block = max((said.hash_block for said in used if said.hash_ids), default=0)
    placed = _placed(used, unused, has_times=has_times)
    return Trace(name, layout.name, placed, hash_block, has_times, num_rows, dict(unused))


def _checked(said: Said) -> Said:
    """Give what a row says, if that can be. Raises UnusableError."""
    if said.num_prompt < 1 or said.num_output < 1:
        raise UnusableError("no prompt or no output")
    if any(time is not None and not math.isfinite(time) for time in (said.at_s, said.delay_s)):
        raise UnusableError("a time that is not finite")
    if said.delay_s is not None and said.delay_s < 0:
        raise UnusableError("a delay below 0")
    return said


def _placed(used: list[Said], unused: Counter[str], *, has_times: bool) -> list[TraceRow]:
    """Put the rows in order of arrival, from 0 on: a session's rows without a time follow the one before them."""
    last_s: dict[str, float] = {}
    timed = []
    for said in used:
        at_s = said.at_s
        before_s = None if said.session is None else last_s.get(said.session)
        if at_s is None and before_s is not None:
            at_s = before_s + (said.delay_s or 0.0)
        elif at_s is None and has_times:
            unused["no timestamp, where other rows have one"] += 1
            continue
        at_s = max(at_s or 0.0, before_s or -math.inf)
        if said.session is not None:
            last_s[said.session] = at_s
        timed.append(TraceRow(at_s, said.num_prompt, said.num_output, said.hash_ids or [], said.session, said.delay_s))
    first_s = min((row.at_s for row in timed), default=0.0)
    rows = [msgspec.structs.replace(row, at_s=row.at_s - first_s) for row in timed]
    return sorted(rows, key=lambda row: row.at_s)

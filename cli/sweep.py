"""`outrider sweep`: a grid of options times seeds, a run for each, and what they came to as one table and one page."""

import os
import shlex
from contextlib import closing
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from cli.endings import BROKEN, INTERRUPTED, Unusable
from cli.options import refuse_without_effect
from cli.outputs import OutFile, Output
from cli.progress import Progress
from cli.ray_option import connect, ray_option
from cli.sweep_cells import KINDS, cells_of, run_cell
from sims.errors import SimError
from sims.sweep.executor import Executor, LocalPool
from sims.sweep.grid import Cell, Grid, read
from sims.sweep.page import page
from sims.sweep.ray_pool import RayPool
from sims.sweep.store import FORMAT, Failure, Result, Store, Trouble, digest, replace
from sims.sweep.table import Table, as_csv, label, make_table

_MOST_ROWS = 200


@click.command(short_help="Run a grid of options times seeds.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--out",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for results, a file for each cell, and for page.html and table.csv.",
    show_default="FILE's name, with .sweep",
)
@click.option("--workers", type=click.IntRange(1, 1024), help="Processes here.", show_default="one for each core")
@ray_option("Run the cells on a Ray cluster.")
@click.option("--json", "json_file", type=OutFile(), help="Write the table as JSON; - is standard output.")
@click.pass_context
def sweep(
    ctx: click.Context,
    /,
    file: Path,
    folder: Path | None,
    workers: int | None,
    ray_address: str | None,
    json_file: Output | None,
) -> None:
    """Run the grid that FILE, in TOML, describes: a command, its options, some of them with lists of values, and seeds.

    Every cell is checked before any is run. Results are kept as they come, one file for each: the same command goes on
    where it was broken off, and tries again what failed. At the end there are a table and a page.

    Exit status 1 if a cell failed: it is told with its seed, its command line and the error, and the others go on.
    """
    refuse_without_effect(ctx, {"workers": (ray_address is None, "cells that run here, without --ray")})
    out = file.with_name(file.stem + ".sweep") if folder is None else folder
    try:
        grid = read(file)
        cells = cells_of(grid)
    except SimError as error:
        raise Unusable(f"{file}: {error}") from None
    try:
        with Store(out) as store:
            table = _run(grid, cells, store, out, workers, ray_address)
    except SimError as error:
        raise Unusable(str(error)) from None
    except _BrokenOff as broken:
        click.echo(
            f"broken off: {broken} of {len(cells):,} cells are done, in {out}; the same command goes on", err=True
        )
        ctx.exit(INTERRUPTED)
    replace(out / "table.csv", as_csv(table).encode())
    replace(out / "page.html", page(table).encode())
    if json_file is None or not json_file.is_stdout:
        _print(table, out)
    if json_file is not None:
        json_file.write(msgspec.json.encode(table) + b"\n")
    for failure in table.failed:
        click.echo(f"failed: {failure.command}\n  {failure.error.strip().splitlines()[0]}", err=True)
    if table.failed:
        click.echo(f"{len(table.failed):,} of {len(cells):,} cells failed: {out / 'failed'} has all of it", err=True)
        ctx.exit(BROKEN)


class _BrokenOff(Exception):
    """Ctrl-C, with how many cells are done."""


def _run(grid: Grid, cells: list[Cell], store: Store, out: Path, workers: int | None, ray_address: str | None) -> Table:
    """Run the cells that have no result yet."""
    kind = KINDS[grid.command]
    results = {cell.id: found for cell in cells if (found := store.find(cell.id)) is not None}
    failed: dict[str, Failure] = {}
    left = [cell for cell in cells if cell.id not in results]
    for cell in left:
        if store.has_file(cell.id):
            click.echo(f"{out / 'cells' / cell.id}.json is no whole result: the cell is run again", err=True)
    if results:
        click.echo(f"{len(results):,} of {len(cells):,} cells are there already", err=True)
    try:
        if left:
            _run_left(left, results, failed, store, _executor(workers, ray_address), len(cells))
    except KeyboardInterrupt:
        raise _BrokenOff(f"{len(results):,}") from None
    return make_table(grid.command, grid.axes, grid.options, grid.figures or kind.shown, cells, results, failed)


def _executor(workers: int | None, ray_address: str | None) -> Executor:
    if ray_address is None:
        return LocalPool(workers or len(os.sched_getaffinity(0)))
    connect(ray_address)
    return RayPool()


def _run_left(
    left: list[Cell],
    results: dict[str, Result],
    failed: dict[str, Failure],
    store: Store,
    executor: Executor,
    num_all: int,
) -> None:
    num_before = len(results)
    there = f", {num_before:,} were there" if num_before else ""
    with Progress() as progress, closing(executor.run(run_cell, left)) as answers:
        for cell, answer in answers:
            command = "outrider " + shlex.join(cell.words)
            if isinstance(answer, bytes):
                results[cell.id] = Result(
                    FORMAT, cell.id, command, cell.options, cell.seed, digest(answer), msgspec.Raw(answer)
                )
                store.keep(results[cell.id])
            else:
                trouble = answer if isinstance(answer, Trouble) else Trouble(str(answer))
                failed[cell.id] = Failure(cell.id, command, cell.options, cell.seed, trouble.error, trouble.traceback)
                store.keep_failed(failed[cell.id])
            num_done = len(results) - num_before + len(failed)
            progress.show("cells", num_done, num_all - num_before, lambda: f"{len(failed):,} failed{there}")


def _print(table: Table, out: Path) -> None:
    """Print the figures that are shown, wider than a terminal if need be: what is cut off cannot be read."""
    console = Console(highlight=False, width=200)
    shown = [name for name in table.shown if name in table.figures]
    num_cells = sum(len(row.seeds) + row.num_failed for row in table.rows)
    console.print(
        Text(f"{table.command}: {num_cells:,} cells, {len(table.rows):,} combinations; means and standard deviations"),
        soft_wrap=True,
    )
    printed = RichTable(box=None, padding=(0, 2, 0, 0))
    for name in [*table.axes, *shown, "runs", "failed"]:
        printed.add_column(name, justify="left" if name in table.axes else "right", no_wrap=True)
    for row in table.rows[:_MOST_ROWS]:
        figures = [str(row.figures[name]) if name in row.figures else "-" for name in shown]
        printed.add_row(*map(label, row.values.values()), *figures, str(len(row.seeds)), str(row.num_failed or ""))
    console.print(printed)
    more = f"{len(table.rows) - _MOST_ROWS:,} more rows, and " if len(table.rows) > _MOST_ROWS else ""
    console.print(Text(f"{more}every figure: {out / 'page.html'}, {out / 'table.csv'}"), soft_wrap=True)

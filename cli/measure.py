"""`outrider measure`: what rounds with a model cost on this machine, for `outrider plan --cost`."""

import asyncio
import platform
import time
from typing import get_args

import click
import msgspec
from rich.console import Console

from cli.endings import Unusable
from cli.options import Numbers
from cli.outputs import OutFile, Output
from cli.progress import Progress
from cli.real_model import DEFAULT_MODEL
from models.kernel_choice import Kernel
from models.loading import load
from plans.errors import PlanError
from plans.measured import FORMAT, CostFile, Measured, Point
from sims.rounds import MAX_ROWS, NUM_ROUNDS, measure_rounds

_MOST = 4096


def _counts(most: int) -> Numbers:
    def check(numbers: list[int]) -> list[int]:
        for number in numbers:
            if not 1 <= number <= most:
                raise PlanError(f"{number}: 1 to {most:,}")
        return sorted(set(numbers))

    return Numbers(check)


@click.command(short_help="Measure what rounds with a model cost on this machine.")
@click.option("--model", default=DEFAULT_MODEL, show_default=True, help="A known model, a GGUF file or a folder.")
@click.option("--kernel", type=click.Choice(get_args(Kernel)), default="auto", show_default=True)
@click.option("--threads", type=click.IntRange(1, 1024), help="Of the compiled kernel.", show_default="one a processor")
@click.option(
    "--rows",
    type=_counts(MAX_ROWS),
    default=(1, 2, 3, 5, 9, 17),
    show_default="1,2,3,5,9,17",
    help="Rows of each sequence: one, and those of a draft.",
)
@click.option("--batches", type=_counts(_MOST), default=(1, 4), show_default="1,4", help="Sequences in a round.")
@click.option(
    "--contexts", type=_counts(_MOST), default=(64, 512), show_default="64,512", help="Cached tokens of each."
)
@click.option(
    "--repeat", type=click.IntRange(1), default=3, show_default=True, help="Stretches of each kind; the median."
)
@click.option("--json", "json_file", type=OutFile(), help="Write the points, for `outrider plan --cost`.")
def measure(
    model: str,
    kernel: Kernel,
    threads: int | None,
    rows: list[int],
    batches: list[int],
    contexts: list[int],
    repeat: int,
    json_file: Output | None,
) -> None:
    """Time rounds in the engine with a model on this machine, by rows, batch and context.

    A round is the pass, its verification, and what the engine does until the next pass begins. The points written with
    --json are a cost for `outrider plan --cost`, so that what a plan says is of this machine. Leave the machine alone
    meanwhile.
    """
    if threads is not None and kernel == "numpy":
        raise click.UsageError("--threads has no effect here: it needs the compiled kernel, without --kernel numpy")
    if len(rows) * len(batches) < 2:
        raise click.UsageError("--rows: two or more, for what one row more costs is what is asked")
    try:
        runs = load(model, kernel, threads).model
    except (ImportError, OSError, ValueError, RuntimeError) as error:
        raise Unusable(str(error)) from None
    if contexts[0] < rows[-1]:
        raise click.UsageError(f"--contexts: {contexts[0]}: at least {rows[-1]}, the most of --rows: drafts are copied")
    longest = max(contexts) + max(rows) + NUM_ROUNDS
    if longest > runs.max_model_len:
        raise Unusable(
            f"--contexts and --rows: {longest:,} positions with the answer, and {model} has {runs.max_model_len:,}"
        )
    points: list[Point] = []
    kinds = [(batch, context) for context in contexts for batch in batches]
    with Progress() as progress:
        for num_done, (batch, context) in enumerate(kinds):
            progress.show("batches and contexts measured", num_done, len(kinds))
            seconds = asyncio.run(
                measure_rounds(runs, time.perf_counter, context=context, rows=rows, batch=batch, repeat=repeat)
            )
            points += [Point(n * batch, batch, context, s) for n, s in zip(rows, seconds, strict=True)]
    console = Console(highlight=False)
    if json_file is None or not json_file.is_stdout:
        for p in points:
            console.print(
                f"{p.rows:4} rows, batch {p.batch:3}, context {p.context:5}: {p.seconds * 1e3:8.3f} ms", soft_wrap=True
            )
    if json_file is not None:
        file = CostFile(FORMAT, model, points, f"{platform.machine()}, {platform.processor() or platform.system()}")
        json_file.write(msgspec.json.format(msgspec.json.encode(file)) + b"\n")
    try:
        Measured(points, model)
    except PlanError as error:
        Console(stderr=True, highlight=False).print(f"these times are no cost to plan with: {error}", soft_wrap=True)

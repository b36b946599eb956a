"""`outrider measure`: what passes of a model cost on this machine, for `outrider plan --cost`."""

import platform
import time

import click
import msgspec
from rich.console import Console

from cli.endings import Unusable
from cli.options import Numbers
from cli.outputs import OutFile, Output
from cli.progress import Progress
from cli.real_model import DEFAULT_MODEL
from models.calibration import measure_pass
from models.kernel_choice import Kernel
from models.loading import load
from plans.errors import PlanError
from plans.measured import FORMAT, CostFile, Measured, Point

_MOST = 4096


def _counts(numbers: list[int]) -> list[int]:
    for number in numbers:
        if not 1 <= number <= _MOST:
            raise PlanError(f"{number}: 1 to {_MOST:,}")
    return sorted(set(numbers))


_COUNTS = Numbers(_counts)


@click.command(short_help="Measure what passes of a model cost on this machine.")
@click.option("--model", default=DEFAULT_MODEL, show_default=True, help="A known model, a GGUF file or a folder.")
@click.option("--kernel", type=click.Choice(["auto", "numpy", "numba"]), default="auto", show_default=True)
@click.option("--threads", type=click.IntRange(1, 1024), help="Of the compiled kernel.", show_default="one a processor")
@click.option(
    "--rows",
    type=_COUNTS,
    default=(1, 2, 3, 5, 9, 17),
    show_default="1,2,3,5,9,17",
    help="Rows of each sequence: one, and those of a draft.",
)
@click.option("--batches", type=_COUNTS, default=(1, 4), show_default="1,4", help="Sequences in a pass.")
@click.option("--contexts", type=_COUNTS, default=(64, 512), show_default="64,512", help="Cached tokens of each.")
@click.option("--repeat", type=click.IntRange(1), default=7, show_default=True, help="Passes of each kind; the median.")
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
    """Time passes of a model on this machine, by rows, batch and context.

    The points written with --json are a cost for `outrider plan --cost`, so that what a plan says is of this machine.
    Leave the machine alone meanwhile.
    """
    if threads is not None and kernel == "numpy":
        raise click.UsageError("--threads has no effect here: it needs the compiled kernel, without --kernel numpy")
    if len(rows) * len(batches) < 2:
        raise click.UsageError("--rows: two or more, for what one row more costs is what is asked")
    try:
        runs = load(model, kernel, threads).model
    except (ImportError, OSError, ValueError, RuntimeError) as error:
        raise Unusable(str(error)) from None
    longest = max(contexts) + max(rows)
    if longest > runs.max_model_len:
        raise Unusable(f"--contexts and --rows: {longest:,} positions, and {model} has {runs.max_model_len:,}")
    points: list[Point] = []
    kinds = [(batch, context) for context in contexts for batch in batches]
    with Progress() as progress:
        for num_done, (batch, context) in enumerate(kinds):
            progress.show("batches and contexts measured", num_done, len(kinds))
            seconds = measure_pass(runs, time.perf_counter, context=context, repeat=repeat, rows=rows, batch=batch)
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

"""`outrider measure`: what rounds with a model cost on this machine, for `outrider plan --cost`."""

import asyncio
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import click
import msgspec
from rich.console import Console

from cli.endings import Unusable
from cli.options import Numbers
from cli.outputs import OutFile, Output
from cli.progress import Progress
from cli.real_model import DEFAULT_MODEL
from models.heads import MedusaHeads, read_heads
from models.kernel_choice import Kernel
from models.loading import Loaded, load, open_model
from models.proposers import load_speculative
from plans.errors import PlanError
from plans.measured import FORMAT, CostFile, DraftTimes, Measured, Point
from sims.rounds import MAX_ROWS, NUM_ROUNDS, measure_layers, measure_rounds
from spec import Draft, SpecConfig

_MOST = 4096
_LAYERS = 4  # of drafts that are measured


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
@click.option("--draft-model", help="Measure a model that drafts too: a GGUF file, a folder or a known model.")
@click.option(
    "--heads", type=click.Path(exists=True, path_type=Path), help="Measure heads that draft too: a file or a folder."
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
    draft_model: str | None,
    heads: Path | None,
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
    if (draft_model is not None or heads is not None) and len(batches) < 2:
        raise click.UsageError("--batches: two or more, for what drafts of one sequence more cost is asked")
    try:
        runs = load(model, kernel, threads).model
        speculative = _speculative(model, draft_model, heads)
        drafting = [(config, load_speculative(model, config, kernel, threads)) for config in speculative]
    except (ImportError, OSError, ValueError, RuntimeError) as error:
        raise Unusable(str(error)) from None
    if contexts[0] < rows[-1]:
        raise click.UsageError(f"--contexts: {contexts[0]}: at least {rows[-1]}, the most of --rows: drafts are copied")
    longest = max(contexts) + max(*rows, _LAYERS + 1) + NUM_ROUNDS
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
        drafts = {}
        for config, loaded in drafting:
            progress.show(f"drafts by {config.draft.value} measured", 0, 1)
            drafts[config.draft.value] = asyncio.run(_layers(config, loaded, kinds, repeat))
    console = Console(highlight=False)
    if json_file is None or not json_file.is_stdout:
        for p in points:
            console.print(
                f"{p.rows:4} rows, batch {p.batch:3}, context {p.context:5}: {p.seconds * 1e3:8.3f} ms", soft_wrap=True
            )
        for draft, layers in drafts.items():
            for p, q in zip(layers.first, layers.later, strict=True):
                console.print(
                    f"drafts by {draft}, batch {p.batch:3}, context {p.context:5}: {p.seconds * 1e3:8.3f} ms for the "
                    f"first layer, {q.seconds * 1e3:.3f} ms for a later one",
                    soft_wrap=True,
                )
    if json_file is not None:
        machine = f"{platform.machine()}, {platform.processor() or platform.system()}"
        file = CostFile(FORMAT, model, points, machine, drafts)
        json_file.write(msgspec.json.format(msgspec.json.encode(file)) + b"\n")
    try:
        cost = Measured(points, model, drafts)
        for draft in drafts:
            cost.layers(draft)
    except PlanError as error:
        Console(stderr=True, highlight=False).print(f"these times are no cost to plan with: {error}", soft_wrap=True)


def _speculative(model: str, draft_model: str | None, heads: Path | None) -> list[SpecConfig]:
    """Say how those draft that are to be measured; raises as `open_model` and `read_heads` do."""
    configs = []
    if draft_model is not None:
        configs.append(SpecConfig(Draft.MODEL, _LAYERS, rule="match", model=draft_model))
    if heads is not None:
        found = read_heads(heads, open_model(model).config())
        most = len(found.blocks) if isinstance(found, MedusaHeads) else _LAYERS
        configs.append(SpecConfig(Draft(found.kind), min(_LAYERS, most), rule="match", model=str(heads)))
    return configs


async def _layers(speculative: SpecConfig, loaded: Loaded, kinds: Sequence[tuple[int, int]], repeat: int) -> DraftTimes:
    """Time layers of drafts for each batch and context; those of more sequences take no less."""
    assert loaded.proposer is not None, "what drafts was loaded too"
    times = DraftTimes([], [])
    least: dict[int, tuple[float, float]] = {}
    for batch, context in kinds:
        seconds = await measure_layers(
            loaded.model,
            loaded.proposer,
            speculative,
            time.perf_counter,
            context=context,
            batch=batch,
            repeat=repeat,
        )
        before = least.get(context, (1e-9, 1e-9))  # batches rise
        least[context] = first, later = max(seconds[0], before[0]), max(seconds[1], before[1])
        times.first.append(Point(batch, batch, context, first))
        times.later.append(Point(batch, batch, context, later))
    return times

"""What the commands that run a real model share: their options, loading it, and the cost of its passes."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar, get_args

import click
import msgspec
from rich.console import Console
from rich.status import Status

import models
from cli.endings import Unusable
from cli.options import NOT_NEGATIVE, SEED, Number
from models.calibration import measure_cost
from models.heads import default_heads
from models.kernel_choice import Kernel
from models.loading import RELEASES, Loaded, locate, pull
from models.proposers import load_speculative
from scheduler import PassCost
from spec import MAX_NODES, Draft, SamplingParams, Shape, SpecConfig, SpecError

DEFAULT_MODEL = "smollm2-135m"

_AUTO = "auto"
_OF_TEXT = 10  # tokens of a draft that costs nothing to make
_LONGEST = {Draft.MODEL: 4, Draft.LINEAR: 1, Draft.MEDUSA: 1, Draft.EAGLE: 1, Draft.EAGLE3: 1}

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--model", default=DEFAULT_MODEL, show_default=True, help="A known model, a GGUF file or a folder."),
    click.option("--pull", "may_pull", is_flag=True, help="Fetch a known model that is not here yet."),
    click.option("--kernel", type=click.Choice(get_args(Kernel)), default="auto", show_default=True),
    click.option(
        "--threads",
        type=click.IntRange(1, 1024),
        help="Of the compiled kernel.",
        show_default="one a processor",
    ),
    click.option("--temperature", type=NOT_NEGATIVE, default=0.0, show_default=True, help="0 is greedy."),
    click.option(
        "--top-p",
        type=Number(0, 1, min_open=True),
        default=1.0,
        show_default=True,
        help="Sample from the most likely tokens that together have this probability.",
    ),
    click.option(
        "--top-k", type=click.IntRange(0), default=0, show_default=True, help="Sample from so many; 0 is all."
    ),
    click.option("--seed", type=SEED, default=0, show_default=True, help="For sampling."),
    click.option("--stop", "stops", multiple=True, metavar="TEXT", help="Ends before this text; may be repeated."),
    click.option(
        "--draft",
        type=click.Choice([_AUTO, *(draft.value for draft in Draft if draft is not Draft.FAKE)]),
        default=Draft.PROMPT_LOOKUP.value,
        show_default=True,
        help="Where drafts come from: the text itself, a draft model, heads of the model, or (hybrid) text and heads; "
        "auto is hybrid where heads for the model come with this package, else prompt_lookup.",
    ),
    click.option(
        "--draft-model",
        metavar="FILE",
        help="The draft model, or the heads: a file or a folder.",
    ),
    click.option(
        "--k",
        type=click.IntRange(1, MAX_NODES),
        help="Longest draft.",
        show_default=", ".join(f"{k} where draft is {draft}" for draft, k in _LONGEST.items()) + f", else {_OF_TEXT}",
    ),
    click.option(
        "--shape",
        metavar="JSON",
        help='A tree in place of a chain, as in {"kind": "dynamic", "nodes": 8, "top": 3, "depth": 3}.',
    ),
    click.option(
        "--adaptive/--fixed",
        default=True,
        show_default=True,
        help="Feed the drafts that pay, or always up to k tokens.",
    ),
)


class Choices(NamedTuple):
    """What the shared options say, checked; all of it before a model is loaded."""

    model: str
    kernel: Kernel
    threads: int | None
    params: SamplingParams
    seed: int
    stops: tuple[str, ...]
    speculative: SpecConfig
    is_adaptive: bool


def with_model_options(command: Command) -> Command:
    """Add the options that every command with a real model has."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def read_choices(ctx: click.Context, o: dict[str, Any]) -> Choices:
    """Check the shared options' values. Raises click.UsageError for what cannot be, or would change nothing."""
    if o["threads"] is not None and o["kernel"] == "numpy":
        raise click.UsageError(
            "--threads has no effect here: it needs the compiled kernel, without --kernel numpy", ctx
        )
    if any(not stop for stop in o["stops"]):
        raise click.UsageError("--stop is '': a text of at least one character", ctx)
    if o["model"] in RELEASES and locate(o["model"]) is None and not o["may_pull"]:
        raise Unusable(f"{o['model']} is not here yet: outrider models pull {o['model']}, or --pull, fetches it")
    try:
        params = SamplingParams(temperature=o["temperature"], top_p=o["top_p"], top_k=o["top_k"])
        speculative = _read_drafts(ctx, o)
    except SpecError as error:
        raise click.UsageError(str(error), ctx) from None
    return Choices(
        model=o["model"],
        kernel=o["kernel"],
        threads=o["threads"],
        params=params,
        seed=o["seed"],
        stops=o["stops"],
        speculative=speculative,
        is_adaptive=o["adaptive"] and o["draft"] != "none",
    )


def _read_drafts(ctx: click.Context, o: dict[str, Any]) -> SpecConfig:
    """Read how to draft. Raises SpecError or click.UsageError."""
    file, k = o["draft_model"], o["k"]
    own = default_heads(o["model"])
    of_auto = Draft.PROMPT_LOOKUP if own is None else Draft.HYBRID
    draft = of_auto if o["draft"] == _AUTO else Draft(o["draft"])
    if file is not None and (o["draft"] == _AUTO or not draft.has_file):
        raise click.UsageError(f"--draft-model has no effect where --draft is {o['draft']}", ctx)
    if draft.has_file and file is None:
        if own is None or draft not in (Draft.HYBRID, Draft.LINEAR):
            raise click.UsageError(f"--draft-model is needed where --draft is {draft.value}", ctx)
        file = str(own)
    if o["shape"] is not None:
        if k is not None:
            raise click.UsageError("--k has no effect here: it needs a chain, without --shape", ctx)
        try:
            shape = msgspec.json.decode(o["shape"], type=Shape)
        except (msgspec.MsgspecError, SpecError) as error:
            raise click.UsageError(f"--shape is {o['shape']}: {error}", ctx) from None
        return SpecConfig(draft, shape=shape, rule="match", model=file or "")
    return SpecConfig(draft, k or _LONGEST.get(draft, _OF_TEXT), rule="match", model=file or "")


def load_model(choices: Choices, console: Console) -> tuple[Loaded, PassCost | None]:
    """Load the model, saying what is going on, and measure what its passes cost where drafts go by that."""
    source = choices.model
    with console.status(f"loading {source}") as status, _shown(status, console):
        try:
            if source in RELEASES and locate(source) is None:
                pull(source, status.update)
            loaded = load_speculative(source, choices.speculative, choices.kernel, choices.threads, time.strftime)
        except (ImportError, OSError, ValueError, RuntimeError) as error:
            raise Unusable(str(error)) from None
        if not choices.is_adaptive:
            return loaded, None
        status.update("measuring the cost of a pass")
        return loaded, PassCost(*measure_cost(loaded.model, loaded.proposer, time.perf_counter))


@contextlib.contextmanager
def _shown(status: Status, console: Console) -> Iterator[None]:
    """Show what the models say they are doing: in the status line, or line by line where there is none."""

    def emit(record: logging.LogRecord) -> None:
        if console.is_terminal:
            status.update(record.getMessage())
        else:
            console.print(record.getMessage())

    handler = logging.Handler(logging.INFO)
    handler.emit = emit  # type: ignore[method-assign]
    logger = logging.getLogger(models.__name__)
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)

"""`outrider heads`: fit heads that draft for a model, and say what they are worth."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar, get_args

import click
import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from cli.endings import Unusable
from cli.heads_text import Asked, Target, texts_of
from cli.options import SEED, Numbers
from cli.outputs import OutFile, Output
from cli.progress import Progress
from models.calibration import measure_cost
from models.heads import LinearHeads, MedusaHeads, build_heads, eight_bit, read_heads, write_heads
from models.heads.features import Features, collect
from models.heads.judging import Judgement, judge
from models.heads.linear_training import LinearTraining, Stage
from models.heads.weights import Affine
from models.kernel_choice import Kernel, build_llama
from models.loading import open_model
from models.protocol import Ints, TappedModel
from plans.errors import PlanError
from scheduler import PassCost
from sims.recordings import FORMATS

Command = TypeVar("Command", bound=Callable[..., Any])

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_DEPTH = 4
_WORDS = 8192


def _check_taps(numbers: list[int]) -> list[int]:
    for number in numbers:
        if number < 0:
            raise PlanError(f"{number}: a number of layers")
    return sorted(set(numbers))


def _text_options(command: Command) -> Command:
    """Add what text is taken."""
    for option in reversed(
        (
            click.option(
                "--text",
                "logs",
                multiple=True,
                type=_FILE,
                help="Recorded requests and answers, in any layout that outrider plan reads; may be repeated.",
                show_default="text that the model writes itself",
            ),
            click.option("--format", "layout", type=click.Choice(FORMATS), help="Of the logs.", show_default="guessed"),
            click.option(
                "--answers",
                type=click.IntRange(1),
                help="Let the model answer so many prompts of the logs itself, greedily: train takes that besides what "
                "is recorded, and eval in its place.",
                show_default="none",
            ),
            click.option(
                "--tokens",
                type=click.IntRange(2_000),
                default=150_000,
                show_default=True,
                help="Most to take: for train of the texts, for eval of their answers.",
            ),
            click.option("--kernel", type=click.Choice(get_args(Kernel)), default="auto", show_default=True),
            click.option(
                "--threads",
                type=click.IntRange(1, 1024),
                help="Of the compiled kernel; on a machine with other work to do one is fastest.",
                show_default="one a processor",
            ),
            click.option(
                "--seed", type=SEED, default=0, show_default=True, help="Of the model's own text and the order."
            ),
        )
    ):
        command = option(command)
    return command


@click.group()
def heads() -> None:
    """Fit heads that draft for a model, and say what they are worth."""


def _open(source: str, kernel: Kernel, threads: int | None) -> Target:
    try:
        opened = open_model(source)
        config = opened.config()
        weights = opened.weights(config)
        model = build_llama(config, weights, kernel, threads)
        assert isinstance(model, TappedModel), "every llama is"
        return Target(source, config, weights, opened.tokenizer(), model)
    except (ImportError, OSError, ValueError, RuntimeError) as error:
        raise Unusable(str(error)) from None


@heads.command(name="train")
@click.argument("target")
@click.option(
    "--kind",
    type=click.Choice(["linear"]),
    default="linear",
    show_default=True,
    help="Of heads: see the documentation.",
    expose_value=False,  # there is one so far
)
@_text_options
@click.option("--words", type=click.IntRange(2), help="Of the draft vocabulary.", show_default=f"{_WORDS}, or all")
@click.option(
    "--taps",
    type=Numbers(_check_taps),
    help="After how many layers hidden states are read; the last is all of them.",
    show_default="four, of all depths",
)
@click.option(
    "--epochs", type=click.IntRange(0), default=4, show_default=True, help="Times over the text, after the closed form."
)
@click.option("--held-out", type=click.IntRange(2), default=10, show_default=True, help="Judge by one text of so many.")
@click.option("--float", "is_float", is_flag=True, help="Keep the weights as floats, not in 8 bits.")
@click.option(
    "--out",
    "out",
    required=True,
    type=click.Path(dir_okay=True, path_type=Path),
    help="A *.safetensors file, or a folder.",
)
@click.pass_context
def train(
    ctx: click.Context,
    /,
    target: str,
    logs: tuple[Path, ...],
    layout: str | None,
    answers: int | None,
    tokens: int,
    kernel: Kernel,
    threads: int | None,
    seed: int,
    words: int | None,
    taps: list[int] | None,
    epochs: int,
    held_out: int,
    is_float: bool,
    out: Path,
) -> None:
    """Fit heads for the model TARGET: a known model, a GGUF file or a folder.

    The model is run once over the text; what it makes of every token is what the heads learn from. They see the model's
    own choices, not the text's, so any text of the kind that the model is used for will do.
    """
    opened = _open(target, kernel, threads)
    config = opened.config
    chosen = tuple(taps) if taps is not None else _four_of(config.num_layers)
    if chosen[-1] != config.num_layers or len(set(chosen)) != len(chosen):
        raise click.UsageError(f"--taps: {list(chosen)} must rise to {config.num_layers}, all layers", ctx)
    words = min(_WORDS, config.vocab_size) if words is None else words
    if words > config.vocab_size:
        raise click.UsageError(f"--words: {words}, and {target} has {config.vocab_size} tokens", ctx)
    _check_logs(ctx, logs, layout, answers)
    features = Features(chosen, config.dim, tokens)
    with Progress() as progress:
        texts = texts_of(opened, Asked(logs, layout, answers, tokens, held_out, seed), progress)
        try:
            collect(
                opened.model.with_taps(chosen), texts, features, lambda num: progress.show("tokens read", num, tokens)
            )
        except PlanError as error:
            raise Unusable(str(error)) from None
    console = Console(stderr=True, highlight=False)
    counts = features.counts(config.vocab_size)
    ids = np.sort(np.argsort(-counts, kind="stable")[:words])
    judged = features.ids[features.rows(held_out=True)]
    covered = float(np.isin(judged, ids).mean()) if len(judged) else 0.0
    console.print(
        f"{features.num_tokens:,} tokens of {len(features.texts):,} texts; "
        f"the {words:,} draft words cover {covered:.1%} of the answers held out"
    )

    def tell(stage: Stage) -> None:
        loss = "" if stage.loss is None else f", cross-entropy {stage.loss:.3f}"
        held = stage.held_out
        console.print(f"{stage.name}: held out {held.top_1:.3f} first, {held.top_3:.3f} of three{loss}")

    training = LinearTraining(features, config, opened.weights, ids, np.random.default_rng(seed))
    try:
        fitted = training.run(epochs, tell)
    except ValueError as error:
        raise Unusable(str(error)) from None
    write_heads(out, fitted if is_float else _in_8_bits(fitted), config)
    console.print(f"written to {out}")


def _in_8_bits(fitted: LinearHeads) -> LinearHeads:
    def rounded(affine: Affine) -> Affine:
        return Affine(eight_bit(affine.weight), affine.bias)

    return LinearHeads(fitted.taps, rounded(fitted.first), rounded(fitted.later), fitted.words)


def _four_of(num_layers: int) -> tuple[int, ...]:
    return tuple(sorted({max(1, num_layers // 8), num_layers // 2, num_layers * 3 // 4, num_layers}))


class Shares(msgspec.Struct, frozen=True):
    """How often heads were right, by depth, the drafts before taken to be right."""

    num_places: int
    first: list[float]
    """Of places where their best token was the text's,"""
    of_three: list[float]
    """and one of their best three."""
    accepted: list[float]
    """The chance of each token of a chain where those before it were accepted."""
    covered: float
    """Of the answers' tokens: those in the draft vocabulary."""


class Report(msgspec.Struct, frozen=True):
    """What `--json` writes of heads."""

    kind: str
    all: Shares
    by_category: dict[str, Shares]
    """Of the texts that say theirs."""
    said: float
    """The chance that the heads give to their best first token, on average,"""
    said_wrong: float
    """and by how much chances of about that size are off, on average."""
    pass_s: float
    """Seconds of a plain pass,"""
    row_s: float
    """of a further row,"""
    step_s: float
    """and of a draft step."""
    speed: float
    """Of one drafted token where its chance is worth its row, over plain decoding; 1 where nothing would be drafted."""


@heads.command(name="eval")
@click.argument("target")
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@_text_options
@click.option("--every", type=click.IntRange(1), default=3, show_default=True, help="Draft after every so many tokens.")
@click.option("--json", "json_file", type=OutFile(), help="Write the report as JSON; - is standard output.")
@click.pass_context
def evaluate(
    ctx: click.Context,
    /,
    target: str,
    file: Path,
    logs: tuple[Path, ...],
    layout: str | None,
    answers: int | None,
    tokens: int,
    kernel: Kernel,
    threads: int | None,
    seed: int,
    every: int,
    json_file: Output | None,
) -> None:
    """Say how often the heads in FILE are right for the model TARGET, and what they would gain on this machine.

    The texts' answers stand for what the model would choose, so let them be its own where that matters.
    """
    _check_logs(ctx, logs, layout, answers)
    opened = _open(target, kernel, threads)
    try:
        found = read_heads(file, opened.config)
        proposer = build_heads(found, opened.config, opened.weights, kernel)
    except (OSError, ValueError) as error:
        raise Unusable(str(error)) from None
    model = opened.model.with_taps(proposer.taps)
    depth = min(_DEPTH, proposer.max_depth or _DEPTH)
    judged: dict[str, list[Judgement]] = {}
    answers_of: dict[str, list[int]] = {}
    with Progress() as progress:
        try:
            for text in texts_of(opened, Asked(logs, layout, answers, tokens, None, seed), progress):
                if len(text.ids) <= max(1, text.num_prompt):
                    continue
                judged.setdefault(text.kind, []).append(judge(proposer, model, [text], depth, every=every))
                answers_of.setdefault(text.kind, []).extend(text.ids[text.num_prompt :])
                num_tokens = sum(map(len, answers_of.values()))
                progress.show("tokens of answers", num_tokens, tokens)
                if num_tokens >= tokens:
                    break
        except (PlanError, ValueError) as error:
            raise Unusable(str(error)) from None
    if not judged:
        raise Unusable("no text has an answer to judge by")
    words = found.ids if isinstance(found, MedusaHeads) else found.words.ids
    cost = PassCost(*measure_cost(model, proposer, time.perf_counter))
    report = _report(found.kind, judged, answers_of, words, cost)
    if json_file is None or not json_file.is_stdout:
        _print(report)
    if json_file is not None:
        json_file.write(msgspec.json.encode(report) + b"\n")


def _report(
    kind: str,
    judged: dict[str, list[Judgement]],
    answers_of: dict[str, list[int]],
    words: Ints | None,
    cost: PassCost,
) -> Report:
    def shares(categories: Iterable[str]) -> Shares:
        joined = Judgement.join(part for category in categories for part in judged[category])
        tokens = [token for category in categories for token in answers_of[category]]
        covered = 1.0 if words is None else float(np.isin(tokens, words).mean())
        return Shares(len(joined.ranks), joined.top(1), joined.top(3), joined.chain(), covered)

    every = Judgement.join(part for parts in judged.values() for part in parts)
    _, one, two = cost.of(2)
    row = (two - one) / one
    hits, chances = every.ranks[:, 0] == 0, every.chances[:, 0]
    #   the chance that a node is accepted, by what the heads gave it: as the engine learns it
    grades = np.minimum(15, (chances * 16).astype(int))
    sizes = np.bincount(grades, minlength=16)
    were, said = (np.bincount(grades, values, 16) / np.maximum(1, sizes) for values in (hits, chances))
    is_fed = were[grades] > row
    speed = (1 + (hits & is_fed).mean()) / (1 + row * is_fed.mean() + cost.layer_s / one)
    return Report(
        kind=kind,
        all=shares(list(judged)),
        by_category={category: shares([category]) for category in sorted(judged) if category},
        said=float(chances.mean()),
        said_wrong=float((sizes * np.abs(were - said)).sum() / sizes.sum()),
        pass_s=one,
        row_s=two - one,
        step_s=cost.layer_s,
        speed=max(1.0, float(speed)),
    )


def _print(report: Report) -> None:
    console = Console(highlight=False)
    every = report.all
    table = Table("", "depth", "first", "of three", title=f"{report.kind} heads, {every.num_places:,} places", box=None)
    for name, shares in {"": every, **report.by_category}.items():
        layers = zip(shares.first, shares.of_three, strict=True)
        for layer, (first, of_three) in enumerate(layers if not name else [next(layers)], 1):
            table.add_row(name, str(layer), f"{first:.3f}", f"{of_three:.3f}")
    console.print(table)
    console.print(
        f"the draft vocabulary has {every.covered:.1%} of the answers' tokens; the heads give their best token "
        f"{report.said:.3f}, and are off by {report.said_wrong:.3f}",
        soft_wrap=True,
    )
    step = report.step_s / report.pass_s
    console.print(
        f"here a pass takes {1000 * report.pass_s:.1f} ms, a further row {report.row_s / report.pass_s:.0%} of it, "
        f"a draft step {step:.0%}: one token drafted where it pays would make it {report.speed:.2f}x as fast",
        soft_wrap=True,
    )
    rates = ",".join(f"{rate:.2f}" for rate in every.accepted)
    console.print(f"for outrider plan: --acceptance {report.kind}={rates}@{step:.3f}", soft_wrap=True)


def _check_logs(ctx: click.Context, logs: tuple[Path, ...], layout: str | None, answers: int | None) -> None:
    for name, value in (("--format", layout), ("--answers", answers)):
        if value is not None and not logs:
            raise click.UsageError(f"{name} has no effect here: it needs --text", ctx)

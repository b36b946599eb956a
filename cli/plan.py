"""`outrider plan`: what speculation would gain on recorded traffic, and what to configure."""

from pathlib import Path
from typing import Any

import click
import msgspec

from cli.endings import Unusable
from cli.options import NOT_NEGATIVE, SEED, Numbers, refuse_without_effect
from cli.outputs import OutFile, Output
from cli.plan_load import load_options, read_load
from cli.plan_models import Drafts, open_drafts, open_target
from cli.plan_text import print_plan
from cli.progress import Progress
from cli.ray_option import connect, ray_option
from plans.errors import PlanError
from plans.gain import BATCHES, Cost, Given, check_batches
from plans.hardware import HARDWARE, MODELS, Hardware, ModelShape, find
from plans.logs import Log
from plans.measured import read_costs
from plans.methods import check_sizes, choose_methods, methods
from plans.page import page
from plans.plan import Asked, make_plan
from plans.roofline import Roofline
from plans.tokens import WORDS, encoder
from sims.recordings import FORMATS
from sims.sweep.ray_pool import RayPool
from spec.config import MAX_MATCH_TOKENS

_SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(short_help="Say what speculation would gain on recorded traffic.")
@click.argument("logs", nargs=-1, required=True, type=_FILE)
@click.option("--format", "layout", type=click.Choice(FORMATS), help="Of the logs.", show_default="guessed")
@click.option(
    "--tokenizer",
    help="For logs of text: a tokenizer.json, a GGUF, a model's folder or name, or `words`, which is approximate.",
    show_default=f"that of --target, or {WORDS}",
)
@click.option("--limit", type=click.IntRange(1), help="Take the first so many requests.", show_default="all")
@click.option(
    "--method", "names", multiple=True, type=click.Choice(list(methods())), help="May be repeated.", show_default="all"
)
@click.option(
    "--sizes", type=Numbers(check_sizes), default=_SIZES, show_default="1-6,8,10,12,16", help="Drafted tokens a round."
)
@click.option(
    "--max-ngram", type=click.IntRange(1, MAX_MATCH_TOKENS), default=3, show_default=True, help="Of the lookups."
)
@click.option("--min-ngram", type=click.IntRange(1), default=1, show_default=True, help="Of the lookups.")
@click.option(
    "--acceptance",
    "given",
    multiple=True,
    metavar="NAME=R1,R2,...[@STEP]",
    help="A method that needs a model: the chance of each drafted token where those before it were accepted, and what "
    "one takes to draft, in plain passes (0.08).",
)
@click.option(
    "--target",
    help="The model that wrote the log: a known model, a GGUF file or a folder. Drafts of a model or of heads are "
    "measured by running both on some of the requests.",
)
@click.option("--draft-model", help="A model that drafts for --target: a GGUF file, a folder or a known model.")
@click.option(
    "--heads",
    type=click.Path(exists=True, path_type=Path),
    help="Heads of --target that draft: a *.safetensors file or a folder.",
)
@click.option(
    "--sample", type=click.IntRange(1), default=32, show_default=True, help="Requests that models are run on, drawn."
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Of that draw, and of arrivals.")
@click.option(
    "--draft-step",
    type=NOT_NEGATIVE,
    help="What a layer of their drafts takes, in plain passes.",
    show_default="their weights by the roofline, or as --cost has it",
)
@click.option("--hardware", metavar="NAME|FILE.toml", help=f"{', '.join(HARDWARE)}.", show_default="h100")
@click.option(
    "--model", metavar="NAME|FILE.toml", help=f"{', '.join(MODELS)}.", show_default="that of --target, or llama-3.1-8b"
)
@click.option(
    "--cost",
    "costs",
    multiple=True,
    type=_FILE,
    help="In place of both: measured, by `outrider measure`, llama-bench, llama-batched-bench or vLLM's benchmark.",
)
@click.option(
    "--batches", type=Numbers(check_batches), default=BATCHES, show_default="1,2,4,...,256", help="To answer for."
)
@click.option("--batch", type=click.IntRange(1), help="To recommend for.", show_default="the first of --batches")
@load_options
@ray_option("Replay drafts of text on a Ray cluster, in shards of 512 requests.")
@click.option("--explain", is_flag=True, help="Print the cost's formula and every constant.")
@click.option("--json", "json_file", type=OutFile(), help="Write the plan as JSON; - is standard output.")
@click.option("--html", "html_file", type=OutFile(), help="Write the plan as one HTML page with plots.")
@click.pass_context
def plan(
    ctx: click.Context,
    /,
    ray_address: str | None,
    explain: bool,
    json_file: Output | None,
    html_file: Output | None,
    **_: Any,
) -> None:
    """Say what speculation would gain on the requests recorded in LOGS, from what they say.

    A recorded answer is what the target chose, so what a draft of text would have had accepted can be counted exactly.
    With the cost of passes, from a roofline or measured, that gives the speed of every method and size at every batch,
    the best choice, and from which batch on it costs instead. What a draft model or heads would have drafted is
    found by running them, on a sample, with the model that wrote the log (--target).

    LOGS are read in the order given: JSON lines or arrays, gzipped or not, or Parquet, with prompt and completion (text
    or ids), messages, requests and responses, or conversations as ShareGPT has them.
    """
    try:
        log, asked = read_plan(ctx)
        executor = None
        if ray_address is not None:
            connect(ray_address)
            executor = RayPool()
        with Progress() as progress:
            answer = make_plan(log, asked, lambda what, num: progress.show(what, num, None), executor)
    except (PlanError, ImportError) as error:
        raise Unusable(str(error)) from None
    if json_file is None or not json_file.is_stdout:
        print_plan(answer, is_explained=explain)
    if json_file is not None:
        json_file.write(msgspec.json.encode(answer) + b"\n")
    if html_file is not None:
        html_file.write(page(answer).encode())


def read_plan(ctx: click.Context) -> tuple[Log, Asked]:
    """Read what a plan is made of from the options. Raises click.UsageError, PlanError and ImportError."""
    o = ctx.params
    if o["costs"] and (o["hardware"] or o["model"]):
        raise click.UsageError("--cost takes the place of --hardware and --model", ctx)
    if o["min_ngram"] > o["max_ngram"]:
        raise click.UsageError(f"--min-ngram {o['min_ngram']}: at most --max-ngram, {o['max_ngram']}", ctx)
    batches: list[int] = o["batches"]
    batch = batches[0] if o["batch"] is None else o["batch"]
    if batch not in batches:
        batches = sorted({*batches, batch})
    has_target = o["target"] is not None
    load = read_load(ctx)
    needs_target = dict.fromkeys(("draft_model", "heads", "sample", "draft_step"), (has_target, "--target"))
    needs_target["seed"] = (has_target or bool(load and load.rates), "--target or --rate")
    drafts = o["draft_model"] or o["heads"]
    refuse_without_effect(ctx, needs_target | {"target": (bool(drafts), "--draft-model or --heads")})
    tokenizer = o["tokenizer"] or o["target"] or WORDS
    if has_target and tokenizer != o["target"]:
        raise click.UsageError(f"--tokenizer {tokenizer}: --target has its own, which is taken", ctx)
    log = Log(o["logs"], o["layout"], encoder(tokenizer), o["limit"])
    target = open_target(o["target"]) if has_target else None
    hardware = None
    cost: Cost
    if o["costs"]:
        cost = read_costs(o["costs"])
    else:
        hardware = find(Hardware, HARDWARE, o["hardware"] or "h100")
        if target is not None and o["model"] is None:
            cost = Roofline(hardware, target.shape)
        else:
            cost = Roofline(hardware, find(ModelShape, MODELS, o["model"] or "llama-3.1-8b"))
    models = None
    if target is not None:
        asked_drafts = Drafts(o["target"], o["draft_model"], o["heads"], o["sample"], o["seed"], o["draft_step"])
        models = open_drafts(asked_drafts, target, cost, hardware)
    asked = Asked(
        choose_methods(list(dict.fromkeys(o["names"])), methods(o["max_ngram"], o["min_ngram"])),
        o["sizes"],
        [Given.parse(text) for text in o["given"]],
        cost,
        batches,
        batch,
        models,
        load,
    )
    taken = {method.name for method in asked.methods}
    if models is not None:
        taken |= {method.name for method in models.methods}
    for each in asked.given:
        if each.name in taken:
            raise PlanError(f"acceptance {each.name}: a name that no other method has")
        taken.add(each.name)
    return log, asked

"""`outrider generate`: text from a real model, drafts marked, and what they gained."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console

from actors import Engine, EngineConfig, Request
from cli.endings import INTERRUPTED, Broken, Unusable
from cli.outputs import OutFile, Output
from cli.real_model import load_model, read_choices, with_model_options
from cli.telling import Told, follow, report
from models.loading import Loaded
from scheduler import NO_DRAFTS, PassCost, RequestError
from spec import Chain, SpecConfig

BLOCK_TOKENS = 16


class Answer(msgspec.Struct, frozen=True):
    """What `--json` writes."""

    model: str
    prompt: str
    told: Told
    without_drafts: Told | None


@click.command()
@click.argument("prompt", required=False)
@click.option(
    "--file", "prompt_file", type=click.Path(exists=True, dir_okay=False), help="Read the prompt from a file."
)
@click.option("--max-tokens", type=click.IntRange(1), default=128, show_default=True, help="Most tokens to generate.")
@click.option(
    "--chat/--plain", "is_chat", default=False, show_default=True, help="Put the prompt in the chat template."
)
@with_model_options
@click.option("--ignore-eos", is_flag=True, help="Go on after the end of the text.")
@click.option("--compare", is_flag=True, help="Run again without drafts: the same text, and how much slower.")
@click.option("--json", "json_file", type=OutFile(), help="Write text, tokens and times as JSON; - is standard output.")
@click.pass_context
def generate(
    ctx: click.Context,
    /,
    prompt: str | None,
    prompt_file: str | None,
    max_tokens: int,
    is_chat: bool,
    ignore_eos: bool,
    compare: bool,
    json_file: Output | None,
    **options: Any,
) -> None:
    """Generate text after PROMPT with a real model; - reads it from standard input.

    Text that came from accepted drafts is shown in green on a terminal. Ctrl-C cancels the request and keeps what was
    produced. The text is the same with drafts and without, to the last bit of every log-probability.
    """
    choices = read_choices(ctx, options)
    if compare and options["draft"] == "none":
        raise click.UsageError("--compare has no effect here: it needs drafts, without --draft none", ctx)
    text = _read_prompt(ctx, prompt, prompt_file)
    console = Console(stderr=True, highlight=False)
    loaded, cost = load_model(choices, console)
    tokenizer = loaded.tokenizer
    try:
        request = Request(
            prompt=tokenizer.chat([{"role": "user", "content": text}]) if is_chat else tokenizer.encode(text),
            params=choices.params,
            max_tokens=max_tokens,
            seed=choices.seed,
            eos=() if ignore_eos else tuple(sorted(tokenizer.eos_ids)),
            verify="match",
        )
    except ValueError as error:
        raise Unusable(str(error)) from None
    out = None if json_file is not None and json_file.is_stdout else Console(highlight=False)
    told = tell(loaded, request, choices.speculative, cost, choices.stops, out)
    report(console, told)
    plain = None
    if compare and told.finish_reason != "cancelled":
        with console.status("the same without drafts"):
            plain = tell(loaded, request, NO_DRAFTS, None, choices.stops, None)
    if json_file is not None:
        json_file.write(msgspec.json.encode(Answer(choices.model, text, told, plain)) + b"\n")
    if "cancelled" in (told.finish_reason, plain and plain.finish_reason):
        ctx.exit(INTERRUPTED)
    if plain is not None:
        _compare(console, told, plain)


def tell(
    loaded: Loaded,
    request: Request,
    speculative: SpecConfig,
    cost: PassCost | None,
    stops: tuple[str, ...],
    out: Console | None,
) -> Told:
    """Run one request on an engine of its own, with the memory it needs; text goes to `out` as it comes."""
    max_model_len = loaded.model.max_model_len
    num_positions = min(len(request.prompt) + request.max_tokens, max_model_len)
    if not isinstance(speculative.tree_shape, Chain):
        num_positions += speculative.k  # nodes that are side by side need slots of their own
    config = EngineConfig(
        num_blocks=-(-num_positions // BLOCK_TOKENS) + 1,
        block_tokens=BLOCK_TOKENS,
        max_model_len=max_model_len,
        speculative=speculative,
        adaptive=cost is not None,
    )

    proposer = loaded.proposer if speculative.draft.has_file else None

    async def run() -> Told:
        async with Engine(loaded.model, config, proposer=proposer, pass_cost=cost) as engine:
            return await follow(engine, loaded.tokenizer, request, stops, out)

    try:
        return asyncio.run(run())
    except RequestError as error:
        raise Unusable(str(error)) from None


def _read_prompt(ctx: click.Context, prompt: str | None, path: str | None) -> str:
    if (prompt is None) == (path is None):
        raise click.UsageError("one prompt is needed: PROMPT, - for standard input, or --file", ctx)
    try:
        if path is not None:
            return Path(path).read_text(encoding="utf-8")
        return sys.stdin.read() if prompt == "-" else str(prompt)
    except (OSError, UnicodeDecodeError) as error:
        raise Unusable(f"{path or 'standard input'}: {error}") from None


def _compare(console: Console, told: Told, plain: Told) -> None:
    if not plain.tokens:
        console.print("nothing was generated: there is nothing to compare")
        return
    console.print(
        f"without drafts {plain.tokens_per_s:.1f} tokens/s: drafts made it "
        f"{told.tokens_per_s / plain.tokens_per_s:.2f}x as fast"
        if plain.tokens_per_s
        else "too short to compare the speed"
    )
    if [(token.id, token.logprob) for token in plain.tokens] != [(token.id, token.logprob) for token in told.tokens]:
        raise Broken("the text without drafts is different")
    console.print("the text is the same, token for token")

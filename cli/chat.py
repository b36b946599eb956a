"""`outrider chat`: a conversation with a real model, in which the prefix cache makes every next turn cheap."""

import asyncio
import signal
import sys
from typing import Any

import click
from rich.console import Console

from actors import Engine, EngineConfig, Request, RequestError
from cli.endings import INTERRUPTED
from cli.generate import BLOCK_TOKENS
from cli.real_model import Choices, load_model, read_choices, with_model_options
from cli.telling import follow, report
from models.loading import Loaded
from scheduler import PassCost


@click.command()
@click.option("--system", default=None, help="What the model is told first.  [default: its template's own]")
@click.option("--max-tokens", type=click.IntRange(1), default=256, show_default=True, help="Most tokens of an answer.")
@with_model_options
@click.pass_context
def chat(ctx: click.Context, /, system: str | None, max_tokens: int, **options: Any) -> None:
    """Talk with a real model, one line a turn; an empty line, Ctrl-D or Ctrl-C ends it.

    During an answer Ctrl-C cancels that alone, and keeps what was produced. After each answer the tokens found in the
    prefix cache are shown: they are the conversation so far, and cost nothing again.
    """
    choices = read_choices(ctx, options)
    console = Console(stderr=True, highlight=False)
    loaded, cost = load_model(choices, console)
    messages = [] if system is None else [{"role": "system", "content": system}]
    if asyncio.run(_talk(loaded, cost, choices, max_tokens, messages, console)):
        ctx.exit(INTERRUPTED)


async def _talk(
    loaded: Loaded,
    cost: PassCost | None,
    choices: Choices,
    max_tokens: int,
    messages: list[dict[str, str]],
    console: Console,
) -> bool:
    """Talk until there is nothing more to say; whether it was Ctrl-C that ended it."""
    config = EngineConfig(
        num_blocks=-(-loaded.model.max_model_len // BLOCK_TOKENS),
        block_tokens=BLOCK_TOKENS,
        max_model_len=loaded.model.max_model_len,
        speculative=choices.speculative,
        adaptive=cost is not None,
    )
    out = Console(highlight=False)
    proposer = loaded.proposer
    async with Engine(loaded.model, config, proposer=proposer, pass_cost=cost) as engine:
        while line := await _read_line():
            messages.append({"role": "user", "content": line})
            try:
                request = Request(
                    prompt=loaded.tokenizer.chat(messages),
                    params=choices.params,
                    max_tokens=max_tokens,
                    seed=choices.seed,
                    eos=tuple(sorted(loaded.tokenizer.eos_ids)),
                    verify="match",
                )
                told = await follow(engine, loaded.tokenizer, request, choices.stops, out)
            except (RequestError, ValueError) as error:
                messages.pop()
                console.print(f"[red]{error}[/red]")
                continue
            messages.append({"role": "assistant", "content": told.text})
            report(console, told)
    return line is None


async def _read_line() -> str | None:
    """Read a line; "" is the end of what is said, None is Ctrl-C."""
    if sys.stdin.isatty():
        click.echo("> ", nl=False)
        if not await _has_line():
            click.echo()
            return None
    return sys.stdin.readline().strip()


async def _has_line() -> bool:
    """Wait for a line at the terminal, as the event loop can, or for Ctrl-C: a blocked read might not hear it."""
    loop = asyncio.get_running_loop()
    heard = loop.create_future()

    def hear(has_line: bool) -> None:
        if not heard.done():
            heard.set_result(has_line)

    loop.add_reader(sys.stdin.fileno(), hear, True)
    loop.add_signal_handler(signal.SIGINT, hear, False)
    try:
        return bool(await heard)
    finally:
        loop.remove_reader(sys.stdin.fileno())
        loop.remove_signal_handler(signal.SIGINT)

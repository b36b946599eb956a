"""`outrider chat`: a conversation with a real model, in which the prefix cache makes every next turn cheap."""

import asyncio

import click
from rich.console import Console

from actors import Engine, EngineConfig, Request, RequestError
from cli.generate import BLOCK_TOKENS, follow, report
from cli.real_model import DEFAULT_MODEL, load_model, pass_cost
from models.kernel_choice import Kernel
from models.loading import Loaded
from scheduler import PassCost
from spec import MAX_DRAFT_TOKENS, Draft, SamplingParams, SpecConfig


@click.command()
@click.option("--model", default=DEFAULT_MODEL, show_default=True, help="A known model, a GGUF file or a folder.")
@click.option("--kernel", type=click.Choice(["auto", "numpy", "numba"]), default="auto", show_default=True)
@click.option("--system", default=None, help="What the model is told first.  [default: its template's own]")
@click.option("--max-tokens", type=click.IntRange(1), default=256, show_default=True, help="Most tokens of an answer.")
@click.option("--temperature", type=click.FloatRange(0), default=0.0, show_default=True, help="0 is greedy.")
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), default=0, show_default=True, help="For sampling.")
@click.option("--draft", type=click.Choice([d.value for d in Draft]), default="prompt_lookup", show_default=True)
@click.option("--k", type=click.IntRange(1, MAX_DRAFT_TOKENS), default=10, show_default=True, help="Longest draft.")
def chat(
    model: str,
    kernel: Kernel,
    system: str | None,
    max_tokens: int,
    temperature: float,
    seed: int,
    draft: str,
    k: int,
) -> None:
    """Talk with a real model, one line a turn; an empty line or Ctrl-D ends it.

    Ctrl-C cancels the answer under way and keeps what was produced. After each answer the tokens found in the prefix
    cache are shown: they are the conversation so far, and cost nothing again.
    """
    console = Console(stderr=True, highlight=False)
    loaded = load_model(model, kernel, console)
    cost = None if draft == "none" else pass_cost(loaded.model, console)
    config = EngineConfig(
        num_blocks=loaded.model.max_model_len // BLOCK_TOKENS,
        block_tokens=BLOCK_TOKENS,
        max_model_len=loaded.model.max_model_len,
        speculative=SpecConfig.parse(draft, k),
    )
    params = SamplingParams(temperature=temperature)
    messages = [] if system is None else [{"role": "system", "content": system}]
    asyncio.run(_talk(loaded, config, cost, params, seed, max_tokens, messages, console))


async def _talk(
    loaded: Loaded,
    config: EngineConfig,
    cost: PassCost | None,
    params: SamplingParams,
    seed: int,
    max_tokens: int,
    messages: list[dict[str, str]],
    console: Console,
) -> None:
    out = Console(highlight=False)
    async with Engine(loaded.model, config, pass_cost=cost) as engine:
        while line := await asyncio.to_thread(_read_line):
            messages.append({"role": "user", "content": line})
            try:
                request = Request(
                    prompt=loaded.tokenizer.chat(messages),
                    params=params,
                    max_tokens=max_tokens,
                    seed=seed,
                    eos=tuple(sorted(loaded.tokenizer.eos_ids)),
                    verify="match",
                )
                told = await follow(engine, loaded.tokenizer, request, out)
            except (RequestError, ValueError) as error:
                messages.pop()
                console.print(f"[red]{error}[/red]")
                continue
            messages.append({"role": "assistant", "content": loaded.tokenizer.decode(told.ids)})
            report(console, told, len(request.prompt))


def _read_line() -> str:
    try:
        return input("> ").strip()
    except EOFError:
        return ""

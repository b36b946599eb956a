"""`outrider generate`: text from a real model, drafts marked, and what they gained."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass

import click
from rich.console import Console
from rich.text import Text

from actors import Engine, EngineConfig, EngineStats, Request, Stream
from cli.real_model import DEFAULT_MODEL, TextStream, load_model, pass_cost
from models.kernel_choice import Kernel
from models.loading import Loaded, Tokenizer
from scheduler import NO_DRAFTS, PassCost, RequestError
from spec import MAX_DRAFT_TOKENS, Draft, SamplingParams, SpecConfig, SpecError

ACCEPTED = "green"
BLOCK_TOKENS = 16


@dataclass(frozen=True)
class Told:
    """One generation: what came, how long it took from the first token on, and the engine at the end."""

    ids: list[int]
    finish_reason: str
    decode_s: float
    first_token_s: float
    num_cached: int
    stats: EngineStats

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second after the first."""
        return (len(self.ids) - 1) / self.decode_s if self.decode_s > 0 else 0.0


@click.command()
@click.argument("prompt")
@click.option("--model", default=DEFAULT_MODEL, show_default=True, help="A known model, a GGUF file or a folder.")
@click.option("--kernel", type=click.Choice(["auto", "numpy", "numba"]), default="auto", show_default=True)
@click.option("--max-tokens", type=click.IntRange(1), default=128, show_default=True, help="Most tokens to generate.")
@click.option(
    "--chat/--plain", "is_chat", default=False, show_default=True, help="Put the prompt in the chat template."
)
@click.option("--temperature", type=click.FloatRange(0), default=0.0, show_default=True, help="0 is greedy.")
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), default=0, show_default=True, help="For sampling.")
@click.option("--draft", type=click.Choice([d.value for d in Draft]), default="prompt_lookup", show_default=True)
@click.option("--k", type=click.IntRange(1, MAX_DRAFT_TOKENS), default=10, show_default=True, help="Longest draft.")
@click.option(
    "--adaptive/--fixed", default=True, show_default=True, help="Feed the drafts that pay, or always up to k tokens."
)
@click.option("--ignore-eos", is_flag=True, help="Go on after the end of the text.")
@click.option("--compare", is_flag=True, help="Run again without drafts: the same text, and how much slower.")
def generate(
    prompt: str,
    model: str,
    kernel: Kernel,
    max_tokens: int,
    is_chat: bool,
    temperature: float,
    seed: int,
    draft: str,
    k: int,
    adaptive: bool,
    ignore_eos: bool,
    compare: bool,
) -> None:
    """Generate text after PROMPT with a real model.

    Text that came from accepted drafts is shown in green on a terminal. Ctrl-C cancels the request and keeps what was
    produced. The text is the same with drafts and without, to the last bit of every log-probability.
    """
    console = Console(stderr=True, highlight=False)
    loaded = load_model(model, kernel, console)
    try:
        ids = (
            loaded.tokenizer.chat([{"role": "user", "content": prompt}]) if is_chat else loaded.tokenizer.encode(prompt)
        )
        speculative = SpecConfig.parse(draft, k)
        request = Request(
            prompt=ids,
            params=SamplingParams(temperature=temperature),
            max_tokens=max_tokens,
            seed=seed,
            eos=() if ignore_eos else tuple(sorted(loaded.tokenizer.eos_ids)),
            verify="match",
        )
    except (ValueError, SpecError) as error:
        raise click.ClickException(str(error)) from None
    cost = pass_cost(loaded.model, console) if adaptive and draft != "none" else None
    told = tell(loaded, request, speculative, cost, Console(highlight=False))
    report(console, told, len(ids))
    if told.finish_reason == "cancelled" or not compare:
        return
    plain = tell(loaded, request, NO_DRAFTS, None, None)
    console.print(
        f"without drafts {plain.tokens_per_s:.1f} tokens/s: drafts made it "
        f"{told.tokens_per_s / plain.tokens_per_s:.2f}x as fast"
        if plain.tokens_per_s
        else "too short to compare"
    )
    if plain.ids != told.ids:
        raise click.ClickException("the text without drafts is different")
    console.print("the text is the same, token for token")


def tell(loaded: Loaded, request: Request, speculative: SpecConfig, cost: PassCost | None, out: Console | None) -> Told:
    """Run one request on an engine of its own; text goes to `out` as it comes."""
    num_positions = len(request.prompt) + request.max_tokens
    config = EngineConfig(
        num_blocks=-(-num_positions // BLOCK_TOKENS) + 1,
        block_tokens=BLOCK_TOKENS,
        max_model_len=loaded.model.max_model_len,
        speculative=speculative,
        adaptive=cost is not None,
    )
    try:
        return asyncio.run(_tell(loaded, request, config, cost, out))
    except RequestError as error:
        raise click.ClickException(str(error)) from None


async def _tell(
    loaded: Loaded, request: Request, config: EngineConfig, cost: PassCost | None, out: Console | None
) -> Told:
    async with Engine(loaded.model, config, pass_cost=cost) as engine:
        return await follow(engine, loaded.tokenizer, request, out)


@contextlib.contextmanager
def leaving_on_interrupt(stream: Stream) -> Iterator[None]:
    """Let Ctrl-C cancel a stream's request instead of the program, where the event loop can hear it."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(NotImplementedError):
        loop.add_signal_handler(signal.SIGINT, stream.leave)
    try:
        yield
    finally:
        with contextlib.suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGINT)


async def follow(engine: Engine, tokenizer: Tokenizer, request: Request, out: Console | None) -> Told:
    """Submit a request and show its tokens until it ends, or until Ctrl-C cancels it."""
    text = TextStream(tokenizer)
    start_s = time.perf_counter()
    first_s = start_s
    ids: list[int] = []
    stream = engine.submit(request)
    with leaving_on_interrupt(stream):
        async for token in stream:
            if not ids:
                first_s = time.perf_counter()
            ids.append(token.id)
            if out is not None:
                out.print(Text(text.text(token.id), style=ACCEPTED if token.is_accepted else ""), end="")
        end_s = time.perf_counter()
        await stream.cancel()
    if out is not None:
        out.print(text.rest())
    if stream.finish_reason == "error":
        raise click.ClickException(stream.error or "the engine failed")
    return Told(
        ids,
        str(stream.finish_reason),
        end_s - first_s,
        first_s - start_s,
        stream.num_cached_tokens or 0,
        engine.stats(),
    )


def report(console: Console, told: Told, num_prompt: int) -> None:
    """Say how fast it went, what the drafts did, and that every block is back."""
    counters, blocks = told.stats.counters, told.stats.blocks
    drafted, accepted = counters.num_drafted, counters.num_accepted
    share = f"{accepted / drafted:.0%}" if drafted else "none"
    console.print(
        f"\n{told.finish_reason}: {num_prompt} tokens of prompt ({told.num_cached} cached), {len(told.ids)} generated, "
        f"{told.tokens_per_s:.1f} tokens/s after the first ({told.first_token_s * 1e3:.0f} ms)\n"
        f"{counters.num_steps} passes, {accepted} of {drafted} drafted tokens accepted ({share})\n"
        f"blocks: {blocks.held} held of {blocks.total}"
    )

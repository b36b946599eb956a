"""One request of a real model from its submission to its end: text as it comes, and what there is to say of it."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterator, Sequence

import msgspec
from rich.console import Console
from rich.text import Text

from actors import Engine, Request, Stream, Token
from cli.endings import Broken
from models.loading import Tokenizer
from server.text import TextOfTokens

ACCEPTED = "green"


class Told(msgspec.Struct, frozen=True):
    """One generation: what came, and how long it took."""

    text: str
    tokens: list[Token]
    finish_reason: str
    num_prompt_tokens: int
    num_cached_tokens: int
    first_token_s: float
    decode_s: float
    """From the first token on."""
    tokens_per_s: float
    """After the first."""
    num_passes: int
    num_drafted: int
    num_accepted: int
    num_blocks: int
    num_blocks_held: int
    """At the end: anything but 0 is a leak."""

    @property
    def ids(self) -> list[int]:
        """The tokens alone."""
        return [token.id for token in self.tokens]


async def follow(
    engine: Engine, tokenizer: Tokenizer, request: Request, stops: Sequence[str], out: Console | None
) -> Told:
    """Submit a request and show its tokens until it ends, a stop string comes, or Ctrl-C cancels it."""
    text = TextOfTokens(stops)
    before = engine.stats().counters
    steps, drafted, accepted = before.num_steps, before.num_drafted, before.num_accepted
    start_s = first_s = time.perf_counter()
    tokens: list[Token] = []
    said: list[str] = []

    def say(piece: str, style: str = "") -> None:
        said.append(piece)
        if out is not None:
            out.print(Text(piece, style=style), end="", soft_wrap=True)

    stream = engine.submit(request)
    with leaving_on_interrupt(stream):
        async for token in stream:
            if not tokens:
                first_s = time.perf_counter()
            tokens.append(token)
            say(text.push(tokenizer.token_bytes(token.id)), ACCEPTED if token.is_accepted else "")
            if text.is_stopped:
                break
        end_s = time.perf_counter()
        await stream.cancel()
    say(text.finish())
    if out is not None:
        out.print()
    if stream.finish_reason == "error":
        raise Broken(stream.error or "the engine failed")
    stats, decode_s = engine.stats(), end_s - first_s
    return Told(
        text="".join(said),
        tokens=tokens,
        finish_reason="stop" if text.is_stopped else str(stream.finish_reason),
        num_prompt_tokens=len(request.prompt),
        num_cached_tokens=stream.num_cached_tokens or 0,
        first_token_s=first_s - start_s,
        decode_s=decode_s,
        tokens_per_s=(len(tokens) - 1) / decode_s if decode_s > 0 and tokens else 0.0,
        num_passes=stats.counters.num_steps - steps,
        num_drafted=stats.counters.num_drafted - drafted,
        num_accepted=stats.counters.num_accepted - accepted,
        num_blocks=stats.blocks.total,
        num_blocks_held=stats.blocks.held,
    )


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


def report(console: Console, told: Told) -> None:
    """Say how fast it went, what the drafts did, and that every block is back."""
    drafted, accepted = told.num_drafted, told.num_accepted
    share = f"{accepted / drafted:.0%}" if drafted else "none"
    console.print(
        f"\n{told.finish_reason}: {told.num_prompt_tokens} tokens of prompt ({told.num_cached_tokens} cached), "
        f"{len(told.tokens)} generated, {told.tokens_per_s:.1f} tokens/s after the first "
        f"({told.first_token_s * 1e3:.0f} ms)\n"
        f"{told.num_passes} passes, {accepted} of {drafted} drafted tokens accepted ({share})\n"
        f"blocks: {told.num_blocks_held} held of {told.num_blocks}"
    )

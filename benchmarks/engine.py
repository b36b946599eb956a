"""The engine end to end: tokens per second of wall time, and what a token costs with many requests open."""

import asyncio
import gc
import time
from typing import NamedTuple

import numpy as np

from actors import Engine, EngineConfig, Request
from benchmarks.harness import Figure, show
from cli.collector import calm_collector
from models import FakeModel, ReplayModel
from spec import SamplingParams, SpecConfig

K = 4
PROMPT_TOKENS = 32
OUTPUT_TOKENS = 96
GREEDY = SamplingParams(temperature=0.0)


class Run(NamedTuple):
    """One run: what was emitted, messages among the actors, how long it took, and how much of that in the target."""

    num_tokens: int
    num_rounds: int
    num_steps: int
    num_messages: int
    seconds: float
    pass_seconds: float


def recording(num_records: int):
    """Prompts and completions that repeat themselves, so that about three of four drafted tokens are right."""
    rng = np.random.default_rng(0)
    records = []
    for i in range(num_records):
        text = [int(t) for t in rng.integers(1, 4000, PROMPT_TOKENS - 1)] + [4000 + i]
        while len(text) < PROMPT_TOKENS + OUTPUT_TOKENS:
            at = int(rng.integers(len(text) - 12))
            text += text[at : at + 12]
        records.append((text[:PROMPT_TOKENS], text[PROMPT_TOKENS : PROMPT_TOKENS + OUTPUT_TOKENS]))
    return records


async def run(model, prompts, num_open: int, *, by_token: bool) -> Run:
    """Keep `num_open` requests open until every prompt has been served; passes run on this one thread.

    Clients take what a round emits at once, or `by_token`.
    """
    num_messages, pass_seconds = 0, 0.0

    def tap(time_s, sender, receiver, message):
        nonlocal num_messages
        num_messages += sender != "client"  # a request is submitted once, whatever the steps

    async def in_place(work, num_tokens):
        nonlocal pass_seconds
        start = time.perf_counter()
        result = work()
        pass_seconds += time.perf_counter() - start
        await asyncio.sleep(0)
        return result

    config = EngineConfig(
        num_blocks=num_open * (-(-(PROMPT_TOKENS + OUTPUT_TOKENS + K) // 16) + 1),
        max_running=num_open,
        max_batch_tokens=max(2048, 8 * num_open),
        speculative=SpecConfig.parse("prompt_lookup", K),
    )
    waiting = iter(prompts)
    async with Engine(model, config, tap=tap, run_pass=in_place) as engine:

        async def client():
            for prompt in waiting:
                request = Request(prompt=prompt, params=GREEDY, max_tokens=OUTPUT_TOKENS, logprobs=False)
                stream = engine.submit(request)
                async for _ in stream if by_token else stream.rounds():
                    pass

        start = time.perf_counter()
        async with asyncio.TaskGroup() as clients:
            for _ in range(num_open):
                clients.create_task(client())
        seconds = time.perf_counter() - start
        engine.check()
        counters = engine.stats().counters
    return Run(
        counters.num_emitted_tokens, counters.num_rounds, counters.num_steps, num_messages, seconds, pass_seconds
    )


def measure(num_open: int, num_requests: int, *, is_fake: bool = False, by_token: bool = False) -> Run:
    """Run with a recited text, or with the fake model's logits of 128 ids."""
    records = recording(num_requests)
    model = FakeModel(0, 128, 1, 1.0) if is_fake else ReplayModel(records, 4001 + num_requests, 4000 + num_requests)
    prompts = [[token % 128 for token in prompt] if is_fake else prompt for prompt, _ in records]
    gc.collect()
    return asyncio.run(run(model, prompts, num_open, by_token=by_token))


def main() -> None:
    """Print throughput by open requests, then the ratios; the garbage collector runs as it does in the command."""
    calm_collector()
    print("| target | open | tokens/s | us per token | in target and verifier | tokens a round | messages a step |")
    print("|---|---|---|---|---|---|---|")
    cost = {}
    for num_open, num_requests, is_fake, by_token in (
        (100, 4000, False, False),
        (1000, 4000, False, False),
        (10000, 20000, False, False),
        (1000, 4000, False, True),
        (1000, 2000, True, False),
    ):
        r = measure(num_open, num_requests, is_fake=is_fake, by_token=by_token)
        cost.setdefault((num_open, is_fake), r.seconds / r.num_tokens)
        target = ("fake" if is_fake else "replay") + (", token by token" if by_token else "")
        print(
            f"| {target} | {num_open:,} | {r.num_tokens / r.seconds:,.0f} "
            f"| {r.seconds / r.num_tokens * 1e6:.1f} | {r.pass_seconds / r.seconds:.0%} "
            f"| {r.num_tokens / r.num_rounds:.2f} | {r.num_messages / r.num_steps:.1f} |"
        )
    print()
    few, many = cost[100, False], cost[10000, False]
    show([Figure("an emitted token, 10,000 requests open", many, few, many / few, "<= 1.3 of 100 open")])


if __name__ == "__main__":
    main()

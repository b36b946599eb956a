"""A model with real arithmetic through the actors: every bit is that of the one-sequence loop."""

import asyncio
import importlib.util

import numpy as np
import pytest

from actors import Engine, EngineConfig, Request
from models import RunnerTarget
from models.kernel_choice import build_llama
from models.weights import tiny_llama
from spec import SamplingParams, SpecConfig, generate

KERNELS = ["numpy", "numba"] if importlib.util.find_spec("numba") else ["numpy"]
NONE = SpecConfig.parse("none", 1)


def requests():
    """Repetitive prompts of several lengths, greedy and sampled, with and without drafts."""
    generator = np.random.default_rng(3)
    for index in range(8):
        prompt = generator.integers(0, 97, int(generator.integers(3, 9))).tolist() * 4
        sampled = index % 3 == 2
        yield Request(
            prompt=prompt,
            params=SamplingParams(temperature=0.6 if sampled else 0.0),
            seed=index,
            verify="match" if sampled else "resample",
            max_tokens=25,
            speculative=SpecConfig.parse("prompt_lookup", 1 + index) if index % 4 else NONE,
        )


async def run(engine, request, num_read):
    stream = engine.submit(request)
    tokens = []
    async for token in stream:
        tokens.append((token.id, token.logprob))
        if len(tokens) == num_read:
            break
    return tokens


@pytest.mark.parametrize("kernel", KERNELS)
async def test_every_bit_is_that_of_the_one_sequence_loop(kernel):
    """In a pool too small for all, with chunked prefill, shared prefixes, drafts, and clients that leave."""
    model = build_llama(*tiny_llama(5), kernel=kernel)
    config = EngineConfig(num_blocks=40, block_tokens=4, max_batch_tokens=12, stream_tokens=32)
    asked = [request for request in requests() for _ in range(2)]
    async with Engine(model, config) as engine:
        found = await asyncio.gather(
            *(run(engine, request, 25 if index % 5 else 7) for index, request in enumerate(asked))
        )
        stats = engine.stats()
    counters = stats.counters
    assert min(counters.num_preemptions, counters.num_cached_tokens, counters.num_accepted) > 0
    for index, (request, tokens) in enumerate(zip(asked, found, strict=True)):
        plain = generate(
            RunnerTarget(model, 20, 4),
            NONE,
            request.prompt,
            request.params,
            request.seed,
            25,
            (),
            verify=request.verify,
        )
        expected = list(zip(plain.tokens, plain.logprobs, strict=True))
        assert tokens == (expected if index % 5 else expected[:7])

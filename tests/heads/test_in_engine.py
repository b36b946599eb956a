"""Heads through the engine: in any batch, under preemption and after prefix hits the text of the one-sequence loop."""

import pytest

from actors import Engine, EngineConfig, Request
from models import RunnerTarget
from models.heads import build_heads
from models.llama import Llama
from spec import BestFirst, Chain, Dynamic, Expansion, SamplingParams, Sequoia, SpecConfig, Static, generate
from tests.heads.tiny import CONFIG, KINDS, target_weights, tiny_heads
from tests.models.lone import alone, read

SHAPES = {
    "chain": Chain(3),
    "p_min": Chain(3, 0.05),
    "expansion": Expansion((2, 1, 1)),
    "static": Static(((0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0))),
    "sequoia": Sequoia((0.6, 0.2, 0.1), 7, 3),
    "dynamic": Dynamic(6, 3, 3),
    "best_first": BestFirst(5, 0.01),
}
DRAWN = ("chain", "expansion", "static", "sequoia")
CONFIGS = [
    pytest.param(kind, shape, children, rule, id=f"{kind}-{name}-{children}-{rule}")
    for kind in KINDS
    for name, shape in SHAPES.items()
    for children, rule in (
        ("top", "match"),
        ("top", "resample"),
        *((("iid", "resample"), ("distinct", "resample"), ("distinct", "traversal")) if name in DRAWN else ()),
    )
    if not (kind == "medusa" and name == "best_first")  # which may go deeper than there are heads
]
PARAMS = [
    SamplingParams(temperature=0),
    SamplingParams(temperature=0.9, top_k=30),
    SamplingParams(temperature=0.8, repetition_penalty=1.2, logit_bias={4: 1.5}, min_tokens=3),
]


def target(taps):
    return Llama(CONFIG, target_weights()).with_taps(taps)


def proposer(kind):
    return build_heads(tiny_heads(kind), CONFIG, target_weights(), "numpy")


def requests(num=6):
    return [
        Request(prompt=[5, 9, 5, 9, 40 + i % 2] * (1 + i % 3), params=PARAMS[i % 3], max_tokens=8 + i, seed=i, eos=(3,))
        for i in range(num)
    ]


@pytest.mark.parametrize(("kind", "shape", "children", "rule"), CONFIGS)
async def test_every_kind_shape_and_rule_gives_the_text_of_the_one_sequence_loop(kind, shape, children, rule):
    """Few blocks, so that some are preempted; small passes, so that prompts come in chunks; and one leaves."""
    speculative = SpecConfig(kind, shape=shape, children=children, rule=rule)
    config = EngineConfig(
        num_blocks=26, block_tokens=4, max_batch_tokens=64, max_model_len=128, speculative=speculative
    )
    drafts = proposer(kind)
    asked = requests()
    async with Engine(target(drafts.taps), config, proposer=drafts) as engine:
        streams = [engine.submit(request) for request in asked]
        async for _ in streams[1]:
            break
        await streams[1].cancel()
        seen = {i: await read(stream) for i, stream in enumerate(streams) if i != 1}
        engine.check()
        stats = engine.stats()
    assert stats.counters.num_failed_proposals == 0
    assert stats.blocks.held == 0
    for i, of_client in seen.items():
        one = alone(asked[i], speculative, target(drafts.taps), drafts)
        assert of_client == (one.tokens, one.logprobs)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_prefix_hit_brings_features_and_state(kind):
    """What is drafted after a hit is what is drafted without one, though the first asked for another continuation."""
    speculative = SpecConfig(kind, shape=Dynamic(6, 3, 3))
    config = EngineConfig(num_blocks=40, block_tokens=4, max_model_len=128, speculative=speculative)
    drafts, prompt = proposer(kind), list(range(10, 30))
    again = Request(prompt=[*prompt, 7, 8], params=PARAMS[1], max_tokens=12, seed=4)
    async with Engine(target(drafts.taps), config, proposer=drafts) as engine:
        await read(engine.submit(Request(prompt=[*prompt, 50, 51], params=PARAMS[1], max_tokens=12, seed=3)))
        seen = await read(engine.submit(again))
        assert engine.stats().counters.num_cached_tokens >= 16
        num_drafted = engine.stats().counters.rounds_by_drafted
    one = alone(again, speculative, target(drafts.taps), drafts)
    assert seen == (one.tokens, one.logprobs)
    assert sum(num_drafted[1:]) > 4


@pytest.mark.parametrize("kind", KINDS)
async def test_heads_that_fail_cost_speed_and_no_text(kind):
    drafts = proposer(kind)

    class Failing(type(drafts)):
        calls = 0

        def laws(self, asks):
            type(self).calls += 1
            if type(self).calls % 3 == 0:
                raise OSError("out of luck")
            return super().laws(asks)

    drafts.__class__ = Failing
    speculative = SpecConfig(kind, shape=Dynamic(6, 3, 3), rule="match")
    config = EngineConfig(num_blocks=60, block_tokens=4, max_model_len=128, speculative=speculative)
    asked = requests()
    async with Engine(target(drafts.taps), config, proposer=drafts) as engine:
        seen = [await read(stream) for stream in [engine.submit(request) for request in asked]]
        assert engine.stats().counters.num_failed_proposals > 2
    plain = SpecConfig.parse("none", 1)
    for request, of_client in zip(asked, seen, strict=True):
        one = generate(
            RunnerTarget(target(()), 16, 4),
            plain,
            request.prompt,
            request.params,
            request.seed,
            request.max_tokens,
            (3,),
        )
        assert of_client == (one.tokens, one.logprobs)


@pytest.mark.parametrize("kind", KINDS)
async def test_heads_without_state_of_their_own_share_prefixes_with_plain_requests(kind):
    """All that they read is the target's. The others' blocks are shared only as far as they have been fed."""
    drafts, prompt = proposer(kind), list(range(10, 30))
    speculative = SpecConfig(kind, 2, rule="match")
    config = EngineConfig(num_blocks=40, block_tokens=4, max_model_len=128, speculative=speculative)
    plain = SpecConfig.parse("none", 1)
    async with Engine(target(drafts.taps), config, proposer=drafts) as engine:
        await read(engine.submit(Request(prompt=prompt, params=PARAMS[0], max_tokens=4, speculative=plain)))
        request = Request(prompt=[*prompt, 3], params=PARAMS[0], max_tokens=12)
        seen = await read(engine.submit(request))
        num_cached = engine.stats().counters.num_cached_tokens
    assert (num_cached > 0) is not drafts.keeps_state
    one = alone(request, speculative, target(drafts.taps), drafts)
    assert seen == (one.tokens, one.logprobs)

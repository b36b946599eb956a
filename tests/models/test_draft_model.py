"""A second model that drafts: in any batch, under preemption and from prefix hits the text of the one-sequence loop."""

import dataclasses

import msgspec
import numpy as np
import pytest

from actors import Engine, EngineConfig, Request
from actors.engine import RequestError
from models import Ask, Chunk, DraftModel, FakeModel, RunnerTarget
from models.llama import Llama
from models.weights import Matrix, tiny_llama
from spec import (
    BestFirst,
    Chain,
    Dynamic,
    Expansion,
    SamplingParams,
    Sequoia,
    SpecConfig,
    Static,
    dense_distribution,
)
from tests.models.lone import alone, read

SHAPES = {
    "chain": Chain(3),
    "long": Chain(40),
    "p_min": Chain(4, 0.02),
    "expansion": Expansion((2, 2, 1)),
    "static": Static(((0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0))),
    "sequoia": Sequoia((0.6, 0.2, 0.1), 7, 4),
    "dynamic": Dynamic(6, 3, 3),
    "best_first": BestFirst(5, 0.01),
}
DRAWN = ("chain", "expansion", "static", "sequoia")
CONFIGS = [
    pytest.param(SpecConfig("model", shape=shape, children=children, rule=rule), id=f"{name}-{children}-{rule}")
    for name, shape in SHAPES.items()
    for children, rule in (
        ("top", "match"),
        ("top", "resample"),
        *((("iid", "resample"), ("distinct", "resample"), ("iid", "traversal")) if name in DRAWN else ()),
    )
]
GREEDY = SamplingParams(temperature=0)
SAMPLED = SamplingParams(temperature=0.7, top_k=20)
PENALISED = SamplingParams(temperature=0.6, repetition_penalty=1.2, presence_penalty=0.4, min_tokens=3)


def target():
    return Llama(*tiny_llama(1))


def proposer(noise=0.02):
    """A draft model that agrees with the target for the most part: its weights are the target's and a little noise."""
    config, weights = tiny_llama(1)
    generator = np.random.default_rng(8)

    def near(matrix):
        dense = matrix.dense()
        return Matrix(dense + noise * dense.std() * generator.standard_normal(dense.shape).astype(np.float32))

    layers = [dataclasses.replace(layer, down=near(layer.down), o=near(layer.o)) for layer in weights.layers]
    return DraftModel(Llama(config, dataclasses.replace(weights, layers=layers)))


def requests(num=5):
    params = [GREEDY, SAMPLED, PENALISED]
    return [
        Request(prompt=[5, 9, 5, 9, 40 + i % 2] * (1 + i % 3), params=params[i % 3], max_tokens=9 + i, seed=i, eos=(3,))
        for i in range(num)
    ]


@pytest.mark.parametrize("speculative", CONFIGS)
async def test_every_shape_and_rule_gives_the_text_of_the_one_sequence_loop(speculative):
    """Few blocks, so that some are preempted, and small passes, so that prompts come in chunks."""
    config = EngineConfig(num_blocks=26, block_tokens=4, max_batch_tokens=64, speculative=speculative)
    asked = requests()
    async with Engine(target(), config, proposer=proposer()) as engine:
        streams = [engine.submit(request) for request in asked]
        seen = [await read(stream) for stream in streams]
        engine.check()
        counters = engine.stats().counters
    expected = [alone(request, speculative, target(), proposer()) for request in asked]
    assert seen == [(one.tokens, one.logprobs) for one in expected]
    assert counters.num_accepted > 0
    assert counters.num_failed_proposals == 0


async def test_a_model_that_agrees_is_accepted_whole():
    config = EngineConfig(num_blocks=32, block_tokens=4, speculative=SpecConfig("model", 4))
    async with Engine(target(), config, proposer=DraftModel(target())) as engine:
        stream = engine.submit(Request(prompt=[5, 9, 7], params=GREEDY, max_tokens=20))
        await read(stream)
        counters = engine.stats().counters
    assert counters.num_accepted == 16
    assert counters.num_rounds == 4


CONTEXTS = ([5, 9, 5, 9, 1, 2, 3, 4], [7, 8, 9, 10, 11, 12, 13, 14])
LOOKING_BACK = SamplingParams(temperature=0.6, repetition_penalty=3.0, frequency_penalty=1.0)
TREE, CHAIN = ([20, 21, 22, 23], [-1, -1, 0, 1]), ([30, 31, 32], [-1, 0, 1])
#   what is asked of each of two places, call by call: how much of its tree is there, and the frontier
CALLS = {
    "two chains": ((CHAIN, [-1], [0], [1], [2]), (CHAIN, [-1], [0], [1], [2])),
    "a chain and a tree": ((CHAIN, [-1], [0], [1], [2]), (TREE, [-1], [0, 1], [2, 3])),
    "a chain that outlives a tree": ((TREE, [-1], [0, 1]), (CHAIN, [-1], [0], [1], [2])),
    "two trees": ((TREE, [-1], [0, 1], [3]), (TREE, [-1], [1], [3])),
}


def ancestors(parents, node):
    """The nodes on the path to a node, itself included."""
    return {node, *ancestors(parents, parents[node])} if node >= 0 else set()


@pytest.mark.parametrize("calls", CALLS.values(), ids=CALLS)
def test_a_law_is_that_of_its_own_path_alone(calls):
    drafts, model = proposer(), proposer()._model
    drafts.bind(8, 4, target())
    tables = [[4, 1], [0, 6]]
    drafts.feed([Chunk(ids, 0, table, 1) for ids, table in zip(CONTEXTS, tables, strict=True)])
    for layer in range(1, max(map(len, calls))):
        asks, expected = [], []
        for place, ((tokens, parents), *frontiers) in enumerate(calls):
            if layer > len(frontiers):
                continue
            frontier = frontiers[layer - 1]
            there = max(frontier) + 1
            prompt, output = CONTEXTS[place][:6], CONTEXTS[place][6:]
            ask = Ask(place, tables[place], 8, tokens[:there], parents[:there], frontier, LOOKING_BACK, prompt, output)
            asks.append(ask)
            for node in frontier:
                path = [tokens[at] for at in range(node + 1) if at in ancestors(parents, node)]
                row = RunnerTarget(model, 4, 4).extend([*CONTEXTS[place], *path])[-1]
                expected.append(dense_distribution(row, LOOKING_BACK, prompt, [*output, *path]))
        np.testing.assert_array_equal(drafts.laws(asks), expected)


async def test_more_sequences_than_chains_are_remembered_of_get_the_same_laws():
    """Some of a layer's nodes are fed alone, some again with what is above them."""
    speculative = SpecConfig("model", shape=Chain(3))
    config = EngineConfig(num_blocks=400, block_tokens=4, max_running=64, max_batch_tokens=600, speculative=speculative)

    async def run(num):
        async with Engine(target(), config, proposer=proposer()) as engine:
            streams = [engine.submit(request) for request in requests(num)]
            return [await read(stream) for stream in streams]

    assert (await run(45))[:5] == await run(5)


async def test_a_prefix_hit_brings_the_draft_models_kv():
    prompt = list(range(10, 34))
    config = EngineConfig(num_blocks=32, block_tokens=4, speculative=SpecConfig("model", shape=Dynamic(6, 3, 3)))
    async with Engine(target(), config, proposer=proposer()) as engine:
        first = await read(engine.submit(Request(prompt=prompt, params=SAMPLED, max_tokens=12, seed=4)))
        again = await read(engine.submit(Request(prompt=prompt, params=SAMPLED, max_tokens=12, seed=4)))
        assert engine.stats().counters.num_cached_tokens >= 20
    assert again == first


async def test_vocabularies_and_lengths_that_do_not_fit_are_refused():
    config = EngineConfig(num_blocks=32, block_tokens=4, speculative=SpecConfig("model", 4))
    with pytest.raises(ValueError, match="the draft model has 97 tokens: the target has 40"):
        Engine(FakeModel(1, 40, 2, 6.0), msgspec.structs.replace(config, max_model_len=100), proposer=proposer())
    short, weights = tiny_llama(1)
    short = dataclasses.replace(short, max_model_len=64)
    with pytest.raises(RequestError, match="max_model_len is 256: at most 64, as far as the proposer goes"):
        Engine(target(), config, proposer=DraftModel(Llama(short, weights)))

"""What a client sees is token for token, and bit for bit in its log-probabilities, what the one-sequence loop gives."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors import RequestError
from actors.runner import in_thread
from scheduler import PassCost, core
from spec import BestFirst, Draft, SamplingParams, SpecConfig
from tests.actors.harness import (
    GREEDY,
    SAMPLED,
    VOCAB,
    assert_all_back,
    config,
    engine,
    expected,
    fake,
    inline,
    lasting,
    lookup,
    prompts,
    read,
    read_all,
    request,
    run,
)

DRAFTS = ["none", "ngram", "prompt_lookup", "suffix"]
ids = st.integers(0, VOCAB - 1)


def drafts(most=5):
    suffix = st.builds(lambda nodes: SpecConfig(Draft.SUFFIX, shape=BestFirst(nodes, 0.01)), st.integers(1, most))
    return st.builds(SpecConfig.parse, st.sampled_from(DRAFTS), st.integers(1, most)) | suffix


@st.composite
def params(draw):
    """Half of them plain but for the temperature, the others anything."""
    temperature = draw(st.sampled_from([0, 0, 0.4, 1.0, 1.0, 1.7]))
    if draw(st.booleans()):
        return SamplingParams(temperature=temperature)
    return SamplingParams(
        temperature=temperature,
        top_k=draw(st.sampled_from([0, 0, 2, 5])),
        top_p=draw(st.sampled_from([1.0, 0.9, 0.5])),
        min_p=draw(st.sampled_from([0.0, 0.05])),
        repetition_penalty=draw(st.sampled_from([1.0, 1.3, 0.8])),
        presence_penalty=draw(st.sampled_from([0.0, 0.7, -0.5])),
        frequency_penalty=draw(st.sampled_from([0.0, 2.0, -2.0])),
        logit_bias=draw(st.dictionaries(ids, st.sampled_from([-3.0, 1.5]), max_size=2)),
        min_tokens=draw(st.sampled_from([0, 0, 4])),
        stop_token_ids=tuple(draw(st.lists(ids, max_size=1))),
    )


@st.composite
def requests(draw):
    """Prompts that share beginnings and repeat themselves."""
    base = [(i * i) % VOCAB for i in range(draw(st.integers(0, 13)))]
    tail = draw(st.lists(ids, min_size=1, max_size=4)) * draw(st.integers(1, 3))
    return request(
        [*base, *tail],
        params=draw(params()),
        max_tokens=draw(st.integers(1, 16)),
        seed=draw(st.integers(0, 3)),
        eos=tuple(draw(st.sampled_from([(), (), (2,)]))),
        priority=draw(st.integers(0, 2)),
        cache_salt=draw(st.sampled_from([None, None, "a"])),
        speculative=draw(st.none() | drafts()),
        verify=draw(st.sampled_from(["resample", "match"])),
        choice=draw(st.integers(0, 1)),
        logprobs=draw(st.sampled_from([True, True, False])),
    )


@st.composite
def configs(draw):
    """Small enough that chunks, preemption and pauses happen."""
    return {
        "num_blocks": draw(st.sampled_from([10, 12, 16, 64])),
        "block_tokens": draw(st.sampled_from([2, 3, 4, 5])),
        "max_batch_tokens": draw(st.sampled_from([6, 7, 11, 64])),
        "max_running": draw(st.integers(1, 6)),
        "max_model_len": draw(st.sampled_from([24, 40, 200])),
        "prefix_cache": draw(st.booleans()),
        "stream_tokens": draw(st.sampled_from([6, 9, 256])),
        "speculative": draw(drafts()),
    }


async def serve(running, wanted, leaves_after):
    """Read what is wanted of each request; None where it was refused."""

    async def client(wanted, num_tokens):
        try:
            stream = running.submit(wanted)
        except RequestError:
            return None
        if num_tokens is None:
            return await read(stream)
        seen = []
        async for token in stream:
            seen.append(token)
            if len(seen) >= num_tokens:
                break
        return seen

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(client(*pair)) for pair in zip(wanted, leaves_after, strict=True)]
    return [task.result() for task in tasks]


EVENTS: Counter[str] = Counter()


@settings(max_examples=100)
@given(
    st.integers(1, 5),
    st.integers(1, 2),
    configs(),
    st.lists(st.tuples(requests(), st.sampled_from([None, None, None, 1, 4])), min_size=1, max_size=5),
    st.sampled_from([None, PassCost.linear(1.0, 0.01), PassCost.linear(1.0, 0.3)]),
    st.integers(0, 2**16),
)
def test_any_mix_of_requests_under_any_engine(seed, order, changes, mix, pass_cost, interleaving):
    """Two times the same clients: the second time the prefix cache knows them."""
    wanted, leaves_after = zip(*mix, strict=True)

    async def main():
        running = engine(fake(seed, order=order), **changes, pass_cost=pass_cost)
        async with running:
            for _ in range(2):
                for wants, seen in zip(wanted, await serve(running, wanted, leaves_after), strict=True):
                    EVENTS["refused" if seen is None else "served"] += 1
                    if seen is None:
                        continue
                    whole = expected(wants, running.config, fake(seed, order=order))
                    if isinstance(seen, list):
                        assert [token.id for token in seen] == whole.tokens[: len(seen)]
                        assert [token.logprob for token in seen] == whole.logprobs[: len(seen)]
                    else:
                        assert seen == whole
            await asyncio.sleep(1)
            assert_all_back(running)
            counters = running.stats().counters
            assert counters.num_restarts == 0
            EVENTS["preempted"] += counters.num_preemptions > 0
            EVENTS["cached"] += counters.num_cached_tokens > 0
            EVENTS["accepted"] += counters.num_accepted > 0

    run(main(), interleaving)


def test_the_mixes_had_something_in_them():
    """Runs after them: preemption, prefix hits and accepted drafts were not left to chance."""
    assert min(EVENTS[event] for event in ("preempted", "cached", "accepted")) >= 5, EVENTS
    assert EVENTS["served"] > 5 * EVENTS["refused"], EVENTS


MIX = [
    request(
        prompt,
        seed=i,
        max_tokens=30,
        params=[GREEDY, SAMPLED, SamplingParams(temperature=0.9, top_p=0.8, frequency_penalty=1.0)][i % 3],
        verify=["resample", "match"][i // 3 % 2],
        speculative=SpecConfig.parse(DRAFTS[i % 3], 1 + i % 4),
        priority=i % 2,
    )
    for i, prompt in enumerate(prompts(9))
]


@pytest.mark.parametrize("changes", [{}, {"num_blocks": 16}, {"max_batch_tokens": 7}, {"max_running": 1}])
@pytest.mark.parametrize("block_tokens", [1, 3, 16])
def test_a_fixed_mix_whatever_the_measures(changes, block_tokens):
    if changes.get("num_blocks"):
        changes = {"num_blocks": -(-64 // block_tokens)}

    async def main():
        async with engine(block_tokens=block_tokens, **changes) as running:
            seen = await read_all([running.submit(wants) for wants in MIX])
            assert seen == [expected(wants, running.config) for wants in MIX]
            if "num_blocks" in changes:
                assert running.stats().counters.num_preemptions > 0
            assert_all_back(running)

    run(main())


def test_drafters_that_have_to_catch_up_change_no_text(monkeypatch):
    """The prompt is in the prefix cache, and its drafter takes in one token a pass, with nothing else to do."""
    monkeypatch.setattr(core, "NUM_CAUGHT_UP", 1)
    wanted = [request([1, 2, 3, 4] * 12, max_tokens=30, params=params, seed=7) for params in (SamplingParams(), GREEDY)]

    async def main():
        async with engine() as running:
            for wants in [*wanted, *wanted]:
                assert await read(running.submit(wants)) == expected(wants, running.config)

    run(main())


async def test_a_fixed_mix_with_passes_in_a_thread():
    async with engine(run_pass=in_thread, num_blocks=16) as running:
        seen = await read_all([running.submit(wants) for wants in MIX])
        assert seen == [expected(wants, running.config) for wants in MIX]
        assert_all_back(running)


@pytest.mark.parametrize("verify", ["resample", "match"])
@pytest.mark.parametrize("k", [1, 3, 8])
def test_matched_drafts_change_no_text_and_resampled_ones_only_by_their_kind(verify, k):
    def texts(speculative):
        async def main():
            async with engine(speculative=speculative, num_blocks=16) as running:
                wanted = [request(p, seed=i, params=SAMPLED, verify=verify) for i, p in enumerate(prompts(6))]
                seen = await read_all([running.submit(wants) for wants in wanted])
                assert seen == [expected(wants, running.config) for wants in wanted]
                return [s.tokens for s in seen]

        return run(main())

    plain, drafted = texts(SpecConfig.parse("none", 1)), texts(lookup(k))
    if verify == "match":
        assert drafted == plain


@pytest.mark.parametrize("num_neighbours", [0, 1, 5, 12])
def test_neighbours_do_not_change_a_seeded_text(num_neighbours):
    wanted = request([3, 1, 2, 3, 1], params=SamplingParams(), seed=99, max_tokens=40)

    async def main():
        async with engine(num_blocks=20) as running:
            others = [running.submit(request(p, params=SAMPLED, seed=i)) for i, p in enumerate(prompts(num_neighbours))]
            seen, *_ = await read_all([running.submit(wanted), *others])
            return seen

    assert run(main()) == expected(wanted, config())


@pytest.mark.parametrize("run_pass", [inline, lasting])
def test_the_same_seed_is_the_same_run(run_pass):
    def messages(seed):
        async def main():
            async with engine(run_pass=run_pass, num_blocks=16) as running:
                streams = [running.submit(wants) for wants in MIX]
                reading = asyncio.create_task(read_all(streams[1:]))
                await asyncio.sleep(0.5)
                await streams[0].cancel()
                await reading
                return running._scheduler._tap.messages

        return run(main(), seed)

    assert messages(None) == messages(None)
    assert messages(5) == messages(5)

"""What a server needs to see of the engine: accepted drafts in a stream, prefix hits, who holds which block."""

from actors import EVICTABLE, FREE, Engine, EngineConfig, Request
from models import FakeModel
from spec import SamplingParams, SpecConfig

GREEDY = SamplingParams(temperature=0)
PROMPT = list(range(20))


def engine(**config):
    return Engine(FakeModel(1, 64, 1, 8.0), EngineConfig(num_blocks=64, **config))


async def test_accepted_drafts_are_marked():
    async with engine(speculative=SpecConfig.parse("prompt_lookup", 4)) as running:
        stream = running.submit(Request(prompt=PROMPT, params=GREEDY, max_tokens=100))
        marks = [token.is_accepted async for token in stream]
        counters = running.stats().counters
    assert 0 < sum(marks) == sum(stream.accepted_by_draft) == counters.num_accepted
    assert stream.num_drafted == counters.num_drafted
    assert len(stream.accepted_by_draft) == counters.num_drafts
    #   a round delivers its accepted run and one token more, or is cut by the length
    assert stream.num_rounds == counters.num_rounds
    assert len(marks) - sum(marks) in (stream.num_rounds, stream.num_rounds - 1)


async def test_prefix_hits_are_told_at_admission():
    async with engine() as running:
        for expected in (0, 16):
            stream = running.submit(Request(prompt=PROMPT, params=GREEDY, max_tokens=3))
            assert stream.num_cached_tokens is None
            assert [token.is_accepted async for token in stream] == [False] * 3
            assert stream.num_cached_tokens == expected


async def test_snapshot_names_owners_and_states():
    async with engine() as running:
        warm = running.submit(Request(prompt=PROMPT, params=GREEDY, max_tokens=1))
        assert len([token async for token in warm]) == 1
        assert sorted(set(running.snapshot(9, 64).owners)) == [EVICTABLE, FREE]
        pair = [running.submit(Request(prompt=PROMPT, params=GREEDY, max_tokens=200)) for _ in range(2)]
        async for token in pair[0]:
            if token.index == 50:
                break
        seen = running.snapshot(1, 64)
        part = running.snapshot(1, 3)
        held = running.stats().blocks.held
    assert seen.num_sequences == 2
    assert len(seen.sequences) == 1
    assert seen.sequences[0].num_emitted >= 50
    assert sum(owner >= 0 for owner in seen.owners) == held
    assert len(seen.shared) == 1  # the first block, from the prefix cache
    assert {1, 2} <= set(seen.owners)
    assert part.owners == seen.owners[:3]

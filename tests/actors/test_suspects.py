"""A request that makes every pass over it raise fails alone, with the cause; the others get what they are to get."""

import asyncio

import pytest

from actors import EngineFailed
from models import FakeModel
from spec import SamplingParams
from tests.actors.harness import (
    SAMPLED,
    VOCAB,
    assert_all_back,
    engine,
    expected,
    inline,
    lasting,
    prompts,
    read,
    read_all,
    request,
    run,
)

POISON = VOCAB - 1


class Poisonable(FakeModel):
    """Raises in a pass that feeds position `end - 1` or a later one of a text with the last id of the vocabulary."""

    def __init__(self, end=1):
        super().__init__(1, VOCAB, 1, 4.0)
        self.end = end
        self.poisoned = set()  # by the first block of a text

    def forward(self, chunks):
        for chunk in chunks:
            if chunk.start == 0:
                (self.poisoned.add if POISON in chunk.ids else self.poisoned.discard)(chunk.table[0])
            if chunk.table[0] in self.poisoned and chunk.start + len(chunk.ids) >= self.end:
                raise ValueError("this text is poison")
        return super().forward(chunks)


#   one that never draws the poison itself
CLEAN = SamplingParams(temperature=0, logit_bias={POISON: float("-inf")})


def healthy(num=5):
    kinds = [CLEAN, SamplingParams(temperature=0.8, logit_bias={POISON: float("-inf")})]
    return [
        request([t % POISON for t in prompt], seed=i, params=kinds[i % 2], max_tokens=20)
        for i, prompt in enumerate(prompts(num))
    ]


def poisoned(**changes):
    return request([POISON, 1, 2, 1, 2], **{"params": CLEAN, "max_tokens": 20, **changes})


@pytest.mark.parametrize("run_pass", [inline, lasting])
@pytest.mark.parametrize("at", [[0], [2], [5], [0, 1], [4, 5], [1, 3]])
@pytest.mark.parametrize("changes", [{}, {"max_batch_tokens": 8}, {"num_blocks": 22}, {"max_running": 3}])
def test_requests_whose_passes_raise_fail_alone_with_the_cause(at, changes, run_pass):
    async def main():
        wanted = healthy()
        for place in at:
            wanted.insert(place, poisoned())
        async with engine(Poisonable(), run_pass, prefix_cache=False, **changes) as running:
            streams = [running.submit(wants) for wants in wanted]
            seen = await read_all(streams)
            for wants, s, stream in zip(wanted, seen, streams, strict=True):
                if POISON in wants.prompt:
                    assert (s.reason, s.tokens) == ("error", [])
                    assert "runner: ValueError: this text is poison" in stream.error
                else:
                    assert s == expected(wants, running.config)
            assert running.failure is None
            assert running.stats().counters.num_failed == len(at)
            assert_all_back(running)
            assert await read_all([running.submit(wants) for wants in healthy()]) == [
                expected(wants, running.config) for wants in healthy()
            ]

    run(main())


def test_as_many_may_be_poisoned_as_are_healthy():
    async def main():
        async with engine(Poisonable(), prefix_cache=False) as running:
            streams = [running.submit(wants) for wants in (*(poisoned() for _ in range(5)), *healthy())]
            seen = await read_all(streams)
            assert [s.reason for s in seen] == ["error"] * 5 + ["length"] * 5
            assert seen[5:] == [expected(wants, running.config) for wants in healthy()]
            assert running.failure is None
            assert_all_back(running)

    run(main())


@pytest.mark.parametrize("end", [8, 14, 20, 25])
@pytest.mark.parametrize("changes", [{}, {"max_batch_tokens": 8}])
def test_so_does_one_that_raises_only_later(end, changes):
    """In a later chunk of its prompt, or when it has emitted some tokens already."""

    async def main():
        wanted = healthy()
        wanted.insert(2, request([POISON, 1, 2] * 4, params=SamplingParams(), seed=5, max_tokens=30))
        async with engine(Poisonable(end), prefix_cache=False, **changes) as running:
            streams = [running.submit(wants) for wants in wanted]
            seen = await read_all(streams)
            assert [s for i, s in enumerate(seen) if i != 2] == [expected(w, running.config) for w in healthy()]
            assert seen[2].reason == "error"
            assert seen[2].tokens == expected(wanted[2], running.config).tokens[: len(seen[2].tokens)]
            assert (len(seen[2].tokens) > 0) == (end > 16)
            assert running.failure is None
            assert_all_back(running)

    run(main())


def test_an_idle_engine_outlives_several_one_after_the_other():
    async def main():
        async with engine(Poisonable()) as running:
            for _ in range(3):
                assert (await read(running.submit(poisoned()))).reason == "error"
            assert await read(running.submit(healthy(1)[0])) == expected(healthy(1)[0], running.config)
            assert_all_back(running)

    run(main())


def test_a_suspect_may_leave():
    async def main():
        async with engine(Poisonable(), lasting) as running:
            bad = running.submit(poisoned())
            streams = [running.submit(wants) for wants in healthy()]
            await asyncio.sleep(2.5)
            await bad.cancel()
            assert await read_all(streams) == [expected(wants, running.config) for wants in healthy()]
            assert running._scheduler._suspects._cases == {}
            assert_all_back(running)

    run(main())


class Broken(FakeModel):
    def forward(self, chunks):
        raise RuntimeError("gone for good")


@pytest.mark.parametrize("num_at_once", [1, 2, 6])
def test_a_model_that_is_broken_for_good_is_given_up(num_at_once):
    async def main():
        async with engine(Broken(1, VOCAB, 1, 4.0), max_restarts=3) as running:
            for _ in range(6):
                try:
                    streams = [running.submit(request(params=SAMPLED)) for _ in range(num_at_once)]
                except EngineFailed:
                    break
                assert {s.reason for s in await read_all(streams)} == {"error"}
                assert all("RuntimeError: gone for good" in stream.error for stream in streams)
            assert running.failure == "runner: RuntimeError: gone for good"
            assert_all_back(running)

    run(main())

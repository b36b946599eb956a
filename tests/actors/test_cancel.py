"""Cancel is legal at every instant; when it returns the sequence holds nothing, and no token follows."""

import asyncio
import math

import pytest

from spec import SamplingParams
from tests.actors.harness import (
    PASS_S,
    assert_all_back,
    engine,
    expected,
    is_prefix,
    lasting,
    lookup,
    read,
    request,
    run,
)

LONG = request(max_tokens=100, params=SamplingParams(), seed=3)


@pytest.mark.parametrize("at_s", [i / 4 for i in range(40)])
@pytest.mark.parametrize("seed", [None, 1])
def test_cancel_is_legal_at_every_instant_and_returns_when_nothing_is_held(at_s, seed):
    """A prompt of 30 tokens in chunks of 8, then rounds; a pass lasts from each full second to the next."""

    async def main():
        leaving = request([1, 2, 3, 4, 5, 6] * 5, max_tokens=20, params=SamplingParams(), seed=1)
        async with engine(run_pass=lasting, max_batch_tokens=8, speculative=lookup(3)) as running:
            loop = asyncio.get_running_loop()
            stream = running.submit(leaving)
            reader = asyncio.create_task(read(stream))
            await asyncio.sleep(at_s)
            num_before = stream.num_emitted
            await stream.cancel()
            assert loop.time() <= math.ceil(at_s * PASS_S + (at_s == int(at_s)))
            assert_all_back(running)
            assert stream.num_emitted == num_before
            assert is_prefix(await reader, expected(leaving, running.config))
            await stream.cancel()
            assert running.stats().counters.num_cancelled == (stream.finish_reason == "cancelled") == 1
            again = running.submit(leaving)
            assert await read(again) == expected(leaving, running.config)

    run(main(), seed)


def test_what_a_cancel_wasted_and_where_it_struck_are_counted():
    async def main():
        async with engine(run_pass=lasting, max_batch_tokens=8, max_running=1, speculative=lookup(3)) as running:
            phases = []
            for at_s in (0.0, 0.5, 1.5, 6.5):
                stream = running.submit(request([1, 2, 3, 4, 5, 6] * 5, max_tokens=30, params=SamplingParams()))
                waiting = running.submit(request())
                if at_s:
                    await asyncio.sleep(at_s)
                before = running.stats().counters
                waiting.leave()
                await stream.cancel()
                after = running.stats().counters
                phases.append(
                    {k: n - before.cancels_by_phase.get(k, 0) for k, n in after.cancels_by_phase.items()}
                    | {"wasted": after.num_wasted_tokens - before.num_wasted_tokens > 0}
                )
                await asyncio.sleep(1 - at_s % 1)
            assert [{k for k, n in phase.items() if n} for phase in phases] == [
                {"waiting"},
                {"waiting", "prefill_pass", "wasted"},
                {"waiting", "prefill_pass", "wasted"},
                {"waiting", "decode_pass", "wasted"},
            ]

    run(main())


def test_cancel_in_the_tick_of_the_submit_takes_nothing():
    async def main():
        async with engine() as running:
            before = running.stats().blocks
            stream = running.submit(LONG)
            await stream.cancel()
            assert (stream.finish_reason, stream.num_emitted) == ("cancelled", 0)
            assert running.stats().blocks == before
            counters = running.stats().counters
            assert (counters.num_steps, counters.num_cancelled) == (0, 1)
            assert (await read(running.submit(request()))).reason == "length"

    run(main())


@pytest.mark.parametrize("changes", [{"max_tokens": 1}, {"max_tokens": 2}, {"eos": tuple(range(8)), "max_tokens": 9}])
def test_cancel_in_the_pass_that_would_have_been_the_last(changes):
    async def main():
        async with engine(run_pass=lasting) as running:
            stream, other = running.submit(request(**changes)), running.submit(request())
            await asyncio.sleep(0.5)
            await stream.cancel()
            assert (stream.finish_reason, stream.num_emitted) == ("cancelled", 0)
            assert running.stats().counters.num_finished == {"stop": 0, "length": 0}
            assert await read(other) == expected(request(), running.config)
            counters = running.stats().counters
            assert (counters.num_emitted_tokens, counters.num_wasted_tokens > 0) == (12, True)
            assert_all_back(running)

    run(main())


def test_cancel_twice_at_once_and_after_the_end():
    async def main():
        async with engine(run_pass=lasting) as running:
            stream = running.submit(LONG)
            await asyncio.sleep(2.5)
            async with asyncio.TaskGroup() as group:
                for _ in range(3):
                    group.create_task(stream.cancel())
            await stream.cancel()
            assert running.stats().counters.num_cancelled == 1
            ended = running.submit(request())
            seen = await read(ended)
            await ended.cancel()
            await ended.aclose()
            assert (seen.reason, ended.finish_reason) == ("length", "length")
            assert running.stats().counters.num_cancelled == 1
            assert_all_back(running)

    run(main())


def test_a_wait_for_a_cancel_may_itself_be_cancelled():
    async def main():
        async with engine(run_pass=lasting) as running:
            stream = running.submit(LONG)
            await asyncio.sleep(2.5)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await stream.cancel()
            assert stream.finish_reason is None, "the pass is still under way"
            await asyncio.sleep(1)
            assert stream.finish_reason == "cancelled"
            assert_all_back(running)

    run(main())


@pytest.mark.parametrize("at_s", [0.0, 0.5, 2.0, 2.5])
def test_an_id_can_be_used_again_as_soon_as_cancel_returns(at_s):
    async def main():
        async with engine(run_pass=lasting) as running:
            first = running.submit(request(id="a", max_tokens=100, params=SamplingParams()))
            await asyncio.sleep(at_s)
            await first.cancel()
            second = running.submit(request(id="a"))
            first.leave()
            await first.cancel()
            assert await read(second) == expected(request(), running.config)
            assert_all_back(running)

    run(main())

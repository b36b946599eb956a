"""How engines served clients that had left, let some wait for ever, or told wrong numbers about them."""

import asyncio
import itertools

import pytest

from actors.messages import Step
from spec import SamplingParams
from tests.actors.harness import (
    GREEDY,
    SAMPLED,
    Log,
    assert_all_back,
    engine,
    expected,
    inline,
    is_prefix,
    lasting,
    lookup,
    prompts,
    read,
    read_all,
    request,
    run,
)

TWO_BLOCKS = [1, 2, 3, 4, 5, 6, 7, 0, 1]
LONG = [t % 7 for t in range(90)]


@pytest.mark.parametrize(
    ("phase", "at_s"),
    [("waiting", 0.0), ("waiting", 2.5), ("prefill", 0.5), ("prefill", 1.25), ("decode", 20.5), ("decode", 21.0)],
)
def test_after_a_client_has_left_no_step_is_begun_for_it(phase, at_s):
    """Generation went on after the client had left, and queued requests of gone clients still ran."""

    async def main():
        async with engine(run_pass=lasting, max_batch_tokens=8, max_running=1, speculative=lookup(3)) as running:
            log = running._scheduler._tap
            wanted = request(LONG, max_tokens=50, params=SamplingParams())
            first, second = running.submit(wanted), running.submit(wanted)
            gone = second if phase == "waiting" else first
            if at_s:
                await asyncio.sleep(at_s)
            gone.leave()
            num_messages = len(log.messages)
            await gone.cancel()
            await asyncio.sleep(3.0)
            (struck,) = running.stats().counters.cancels_by_phase
            assert struck.startswith(phase)
            later = [m for _, _, m in log.messages[num_messages:] if isinstance(m, Step)]
            assert later
            assert all(feed.seq != gone.seq for step in later for feed in step.feeds)

    run(main())


def count_messages(run_pass=lasting):
    async def main():
        async with engine(run_pass=run_pass, max_running=1) as running:
            await read(running.submit(request(max_tokens=8)))
        return running._scheduler._tap.num

    return run(main())


class Leaver(Log):
    """Lets a stream be left at a given message: between any two stages of a round."""

    def __init__(self, number):
        super().__init__()
        self.number = number
        self.stream = None

    def __call__(self, time_s, sender, receiver, message):
        super().__call__(time_s, sender, receiver, message)
        if self.num == self.number:
            asyncio.get_running_loop().call_soon(self.stream.leave)


@pytest.mark.parametrize("is_at_once", [False, True])
def test_cancel_between_any_two_stages_of_a_round_releases_the_place(is_at_once):
    """Left between draft and verification, the only running place is never given to another."""
    num_messages = count_messages()
    assert num_messages > 20
    for number in range(2, num_messages):

        async def main(number=number):
            leaver = Leaver(number)
            async with engine(run_pass=lasting, max_running=1, tap=leaver) as running:
                leaver.stream = running.submit(request(max_tokens=8))
                other = running.submit(request(TWO_BLOCKS))
                seen = await read(leaver.stream)
                assert is_prefix(seen, expected(request(max_tokens=8), running.config))
                assert await read(other) == expected(request(TWO_BLOCKS), running.config)
                assert_all_back(running)

        run(main(), seed=number if is_at_once else None)


@pytest.mark.parametrize("at_s", [0.0, 0.5, 1.0, 3.5])
def test_a_late_abort_does_not_strike_the_next_request_of_that_id(at_s):
    """Aborts went by id and came late: the next request with that id was killed."""

    async def main():
        async with engine(run_pass=lasting) as running:
            for _ in range(3):
                gone = running.submit(request(id="same", max_tokens=60, params=SamplingParams()))
                await asyncio.sleep(at_s)
                gone.leave()
                await gone.cancel()
            last = running.submit(request(id="same", max_tokens=20))
            gone.leave()
            assert await read(last) == expected(request(max_tokens=20), running.config)

    run(main())


@pytest.mark.parametrize("run_pass", [inline, lasting])
def test_the_gauges_are_at_zero_when_everything_was_cancelled(run_pass):
    """Gauges froze at their last values after everything had been cancelled."""

    async def main():
        async with engine(run_pass=run_pass, max_running=3, stream_tokens=6) as running:
            streams = [running.submit(request(p, max_tokens=60, params=SamplingParams())) for p in prompts(8)]
            await asyncio.sleep(3.5)
            assert running.stats().num_waiting > 0
            for stream in streams:
                stream.leave()
            await asyncio.gather(*(stream.cancel() for stream in streams))
            assert_all_back(running)
            stats = running.stats()
            assert (stats.mailbox_depth, stats.counters.num_cancelled) == (0, 8)
            assert sum(stats.counters.cancels_by_phase.values()) == 8

    run(main())


def test_the_gap_between_the_tokens_of_a_stream_is_bounded_under_endless_long_prompts():
    """Prefill went first: a running stream got a token every half minute."""

    async def main():
        async with engine(run_pass=lasting, max_batch_tokens=16, num_blocks=200, prefix_cache=False) as running:
            loop = asyncio.get_running_loop()
            stream = running.submit(request(max_tokens=60, params=SamplingParams()))
            crowd = []
            times = []
            async for _ in stream:
                times.append(loop.time())
                while len(crowd) < 2 * len(times):
                    crowd.append(running.submit(request(LONG, max_tokens=1, seed=len(crowd), priority=-1)))
            assert max(later - earlier for earlier, later in itertools.pairwise(times)) <= 1.0
            assert any(c.finish_reason == "length" for c in crowd), "and the prompts are not starved either"

    run(main())


class Budget(Log):
    """No pass feeds more than it may, drafts included."""

    most = 0

    def __call__(self, time_s, sender, receiver, message):
        super().__call__(time_s, sender, receiver, message)
        if isinstance(message, Step):
            self.most = max(self.most, sum(len(feed.ids) for feed in message.feeds))


@pytest.mark.parametrize("budget", [5, 6, 9, 17, 40])
def test_no_pass_feeds_more_than_the_budget_drafts_included(budget):
    """Drafts were not counted, and a pass was larger than its buffers."""

    async def main():
        async with engine(tap=Budget(), max_batch_tokens=budget) as running:
            wanted = [request(p, seed=i, params=[GREEDY, SAMPLED][i % 2]) for i, p in enumerate(prompts(8))]
            assert await read_all([running.submit(w) for w in wanted]) == [expected(w, running.config) for w in wanted]
            assert budget - 4 <= running._scheduler._tap.most <= budget

    run(main())


def test_priorities_drafts_and_a_tight_pool_with_clients_that_come_and_go():
    """A victim that had been planned in the same step kept its budget, its blocks or its drafts."""

    async def main(seed):
        async with engine(num_blocks=24, max_batch_tokens=20, max_running=6, block_tokens=1) as running:

            async def client(i):
                await asyncio.sleep(i % 5 / 10)
                wants = request(
                    [(i + j) % 5 for j in range(3 + i % 6)],
                    max_tokens=3 + 2 * (i % 7),
                    seed=seed,
                    params=[GREEDY, SAMPLED][i % 2],
                    priority=i % 3,
                )
                stream = running.submit(wants)
                whole = expected(wants, running.config)
                if i % 4:
                    assert await read(stream) == whole
                    return
                async for token in stream:
                    if token.index == i % 3:
                        break
                await stream.cancel()
                assert is_prefix(await read(stream), whole)

            await asyncio.gather(*(client(i) for i in range(24)))
            assert_all_back(running)
            return running.stats().counters.num_preemptions

    assert sum(run(main(seed), seed) for seed in range(8)) > 4

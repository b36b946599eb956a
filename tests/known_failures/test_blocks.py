"""How engines lost, shared or gave twice the blocks they held."""

import asyncio

import pytest

from actors.messages import Reserve, Settle, Settled, Step
from kvpool import blocks_for
from models import ReplayModel
from scheduler import State
from spec import SamplingParams
from tests.actors.harness import (
    GREEDY,
    SAMPLED,
    VOCAB,
    Log,
    assert_all_back,
    engine,
    expected,
    lasting,
    lookup,
    prompts,
    read,
    read_all,
    request,
    run,
)
from tests.scheduler.rig import CYCLE, Rig

TWO_BLOCKS = [1, 2, 3, 4, 5, 6, 7, 0, 1]


@pytest.mark.parametrize("at_s", [0.0, 0.5, 0.99])
def test_a_block_is_not_shared_before_the_pass_that_fills_it_has_returned(at_s):
    """A block indexed when it is scheduled is hit by others although the pass never ran."""

    async def main():
        async with engine(run_pass=lasting) as running:
            first = running.submit(request(TWO_BLOCKS))
            if at_s:
                await asyncio.sleep(at_s)
            await first.cancel()
            again = running.submit(request(TWO_BLOCKS))
            assert await read(again) == expected(request(TWO_BLOCKS), running.config)
            assert again.num_cached_tokens == 0
            third = running.submit(request(TWO_BLOCKS))
            await read(third)
            assert third.num_cached_tokens == 8, "what was computed is shared"
            assert_all_back(running)

    run(main())


def test_two_that_start_together_share_nothing_that_is_not_there_yet():
    async def main():
        async with engine() as running:
            streams = [running.submit(request(TWO_BLOCKS, seed=i)) for i in range(3)]
            assert await read_all(streams) == [expected(request(TWO_BLOCKS), running.config)] * 3
            assert [stream.num_cached_tokens for stream in streams] == [0, 0, 0]

    run(main())


def test_prefixes_are_shared_within_a_salt_only():
    async def main():
        async with engine() as running:
            found = []
            for salt in (None, "a", "b", "a", None):
                stream = running.submit(request(TWO_BLOCKS, cache_salt=salt))
                await read(stream)
                found.append(stream.num_cached_tokens)
            assert found == [0, 0, 0, 8, 8]

    run(main())


def test_drafted_tokens_are_shared_only_once_they_are_accepted():
    """The draft fills a block and is turned down: a prompt that goes on as drafted finds nothing cached."""

    async def main():
        recorded = [([1, 2, 3, 4, 1, 2, 3], [7, 7, 7])]
        async with engine(ReplayModel(recorded, VOCAB, 0), speculative=lookup(3)) as running:
            await read(running.submit(request(recorded[0][0], max_tokens=4)))
            assert running._scheduler._tap.of(Step)[0].feeds[0].round.draft == [4, 1, 2]
            as_drafted = running.submit(request([1, 2, 3, 4, 1, 2, 3, 4, 1]))
            as_emitted = running.submit(request([1, 2, 3, 4, 1, 2, 3, 7, 1]))
            await read_all([as_drafted, as_emitted])
            assert (as_drafted.num_cached_tokens, as_emitted.num_cached_tokens) == (4, 8)

    run(main())


def test_blocks_of_one_cancelled_during_a_pass_come_back_once_and_after_it():
    """Freed on the cancel and again when the late output arrives; or given to another that the pass overwrites."""

    async def main():
        async with engine(run_pass=lasting, num_blocks=13, max_running=4) as running:
            leaver = running.submit(request(TWO_BLOCKS, max_tokens=30, params=SamplingParams()))
            await asyncio.sleep(2.5)
            held = running.stats().blocks.held
            others = [running.submit(request(p, max_tokens=20)) for p in prompts(4)]
            leaver.leave()
            await asyncio.sleep(0.25)
            assert running.stats().blocks.held == held > 0, "the pass may still write them"
            assert leaver.finish_reason is None
            await leaver.cancel()
            seen = await read_all(others)
            assert seen == [expected(request(p, max_tokens=20), running.config) for p in prompts(4)]
            releases = [seq for settle in running._scheduler._tap.of(Settle) for seq in settle.releases]
            assert releases.count(leaver.seq) == 1
            assert_all_back(running)

    run(main())


def test_one_that_finished_in_a_tick_is_not_preempted_in_it():
    """The last in rank, the next victim, has just finished: it would give its blocks back twice."""
    rig = Rig(lambda planned: [1] if planned.sequence.seq < 2 else [0])
    sequences = rig.decoding(2, prompt=CYCLE + CYCLE[:3], params=SamplingParams(), eos=(0,))
    last = rig.submit(CYCLE, params=SamplingParams(), eos=(0,))
    feeds, _ = rig.plan()
    rig.reserve(feeds)
    rig.settle(feeds)
    assert (last.state, last in rig.ended) == (State.FINISHED, True)
    rig.hog(leave=0)
    _, preempted = rig.plan()
    assert preempted == [sequences[1]]


class Auditor(Log):
    """Looks at everything, at every message; between a pass and the next, at the exact length of every table."""

    def __call__(self, time_s, sender, receiver, message):
        super().__call__(time_s, sender, receiver, message)
        if self.engine is None:
            return
        ledger, core = self.engine._blocks.ledger, self.engine._scheduler.core
        ledger.check()
        stats = ledger.pool.stats()
        assert stats.free + stats.evictable + stats.held == stats.total
        if isinstance(message, Settled):
            for seq, sequence in core.running.items():
                assert len(ledger.table(seq)) == blocks_for(ledger.cached(seq), ledger.pool.block_tokens)
                assert ledger.cached(seq) == sequence.cached
            self.num_settled += 1

    engine = None
    num_settled = 0


@pytest.mark.parametrize("block_tokens", [1, 2, 3, 4, 16])
def test_what_was_taken_for_drafts_is_back_after_every_round(block_tokens):
    """Tails of drafts that cross the border of a block leak, or the sum is off by one under load only."""

    async def main():
        auditor = Auditor()
        async with engine(tap=auditor, block_tokens=block_tokens, num_blocks=-(-120 // block_tokens)) as running:
            auditor.engine = running
            for seed in range(3):
                await read_all([running.submit(request(p, seed=seed, params=SAMPLED)) for p in prompts(12)])
            assert auditor.num_settled > 10
            assert_all_back(running)
            auditor.engine = None

    run(main())


def test_a_thousand_requests_with_drafts_leave_every_block():
    async def main():
        async with engine(num_blocks=120, block_tokens=3, max_running=40, audit_every=50) as running:
            for first in range(0, 1000, 100):
                streams = [
                    running.submit(request(p, seed=first + i, params=SAMPLED, max_tokens=6))
                    for i, p in enumerate(prompts(100, length=8, seed=first))
                ]
                await read_all(streams)
            assert running.stats().counters.num_finished["length"] == 1000
            assert running.stats().counters.num_drafted > 1000
            assert_all_back(running)

    run(main())


def test_after_a_rewind_across_a_border_every_holder_of_ids_agrees():
    """Blocks of 4, 6 cached, 3 drafts into the third block all rejected: a stale id in a side table is used later."""

    async def main():
        prompt = [1, 2, 3, 1, 2, 3]
        recorded = [(prompt, [7, 7, 6, 5, 7, 4])]
        async with engine(ReplayModel(recorded, VOCAB, 0), speculative=lookup(3), prefix_cache=False) as running:
            stream = running.submit(request(prompt, max_tokens=6))
            log, core = running._scheduler._tap, running._scheduler.core
            seen = await read(stream)
            assert seen.tokens == [7, 7, 6, 5, 7, 4]
            first = log.of(Step)[0].feeds[0]
            assert (first.start, first.ids, len(first.table)) == (0, [*prompt, 1, 2, 3], 3)
            assert (log.of(Settle)[0].commits, log.of(Settled)[0].num_trimmed) == ([(0, prompt, None)], 1)
            ctx = prompt + seen.tokens
            for step in log.of(Step):
                (feed,) = step.feeds
                pending = len(feed.ids) - len(feed.round.draft)
                assert feed.ids[:pending] == ctx[feed.start : feed.start + pending]
                assert len(feed.table) == blocks_for(feed.start + len(feed.ids), 4)
                assert feed.table[: blocks_for(feed.start, 4)] == first.table[: blocks_for(feed.start, 4)]
            assert core.running == {}

    run(main())


def test_nothing_of_a_preempted_round_is_applied_later():
    """Stale drafts or late output after a preemption; and counters that go below zero."""

    async def main():
        wanted = [
            request(p, max_tokens=24, params=[GREEDY, SAMPLED][i % 2], seed=i, priority=i % 3)
            for i, p in enumerate(prompts(8))
        ]
        async with engine(num_blocks=14, max_running=8) as running:
            streams = [running.submit(wants) for wants in wanted]
            reading = asyncio.create_task(read_all(streams))
            while not reading.done():
                stats = running.stats()
                assert min(stats.num_running, stats.num_waiting, stats.num_paused, *stats.blocks) >= 0
                await asyncio.sleep(0)
            assert reading.result() == [expected(wants, running.config) for wants in wanted]
            assert running.stats().counters.num_preemptions > 3
            assert_all_back(running)

    run(main())


def test_room_in_the_last_block_is_counted_before_anybody_gives_way():
    """Two sequences half a block short of full in a pool with no block left: both go on."""

    async def main():
        config = {"num_blocks": 4, "speculative": lookup(1), "prefix_cache": False}
        async with engine(**config) as running:
            wanted = [request([i, 1, 2, 3, 5], max_tokens=3, seed=i) for i in range(2)]
            seen = await read_all([running.submit(wants) for wants in wanted])
            assert seen == [expected(wants, running.config) for wants in wanted]
            counters = running.stats().counters
            assert (counters.num_preemptions, running.stats().blocks.held) == (0, 0)
            peak = max(4 - reserved for reserved in availables(running))
            assert peak == 4, "the pool was full"

    run(main())


def availables(running):
    for _, _, message in running._scheduler._tap.messages:
        if hasattr(message, "available"):
            yield message.available


def test_a_step_reserves_then_runs_then_settles():
    """A table handed to the model before its blocks are reserved, or given back before the pass has returned."""

    async def main():
        async with engine() as running:
            await read_all([running.submit(request(p)) for p in prompts(3)])
            return [m for _, _, m in running._scheduler._tap.messages if isinstance(m, (Reserve, Step, Settle))]

    order = [type(message) for message in run(main())]
    assert order == [Reserve, Step, Settle] * (len(order) // 3)
    assert order

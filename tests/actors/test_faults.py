"""What breaks under the engine: its clients get the tokens they would have had, or an error; the pool is whole."""

import asyncio
import itertools
import threading
from collections.abc import Callable

import numpy as np
import pytest

from actors import EngineFailed
from actors.messages import Admit, ForgetAll
from actors.runner import in_thread
from models import FakeModel, ReplayModel
from spec import SamplingParams
from tests.actors.harness import (
    PASS_S,
    SAMPLED,
    VOCAB,
    assert_all_back,
    engine,
    expected,
    fake,
    inline,
    is_prefix,
    lasting,
    lookup,
    prompts,
    read,
    read_all,
    request,
    run,
    some_requests,
    until,
    wholes,
)


class Trouble(RuntimeError):
    pass


class Troubled(FakeModel):
    """Calls `trouble(n)` in its pass number n, counted from 1 over all its copies, before it computes anything."""

    def __init__(self, trouble: Callable[[int], None]) -> None:
        super().__init__(1, VOCAB, 1, 4.0)
        self.trouble = trouble
        self.passes = itertools.count(1)

    def forward(self, chunks):
        self.trouble(next(self.passes))
        return super().forward(chunks)


def raising(*numbers):
    def trouble(number):
        if number in numbers:
            raise Trouble(f"in pass {number}")

    return trouble


@pytest.mark.parametrize("numbers", [(1,), (2,), (4,), (1, 2, 3), (3, 6, 9)])
@pytest.mark.parametrize("changes", [{}, {"max_batch_tokens": 9, "num_blocks": 12}, {"prefix_cache": False}])
def test_a_pass_that_raises_is_computed_again_and_no_client_sees_it(numbers, changes):
    async def main():
        async with engine(Troubled(raising(*numbers)), **changes) as running:
            seen = await read_all([running.submit(request) for request in some_requests()])
            assert seen == wholes(running)
            counters = running.stats().counters
            assert counters.num_restarts == len(numbers)
            assert counters.num_wasted_tokens > 0
            assert counters.num_failed == 0
            assert_all_back(running)
            assert len(running._scheduler._tap.of(ForgetAll)) == len(numbers)

    run(main())


def test_a_model_that_raises_too_often_ends_every_stream_and_the_engine():
    async def main():
        async with engine(Troubled(raising(3, 4, 5, 6)), max_restarts=3, max_running=3) as running:
            streams = [running.submit(request) for request in some_requests()]
            seen = await read_all(streams)
            assert {s.reason for s in seen} == {"error"}
            assert all(is_prefix(s, whole) for s, whole in zip(seen, wholes(running), strict=True))
            assert all("Trouble: in pass 6" in stream.error for stream in streams)
            assert any(s.tokens for s in seen)
            assert_all_back(running)
            with pytest.raises(EngineFailed, match="runner: Trouble: in pass 6"):
                running.submit(request())
            await streams[0].cancel()
        assert_all_back(running)
        assert running.failure == "runner: Trouble: in pass 6"

    run(main())


def test_crashes_far_enough_apart_are_never_too_many():
    async def main():
        troubled = Troubled(raising(*range(2, 40, 3)))
        async with engine(troubled, lasting, max_restarts=2, restart_period_s=5 * PASS_S) as running:
            assert await read_all([running.submit(request) for request in some_requests()]) == wholes(running)
            assert running.stats().counters.num_restarts > 2

    run(main())


def test_no_restart_at_all_may_be_asked_for():
    async def main():
        async with engine(Troubled(raising(1)), max_restarts=0) as running:
            assert (await read(running.submit(request()))).reason == "error"
            with pytest.raises(EngineFailed):
                running.submit(request())

    run(main())


def test_a_model_that_cannot_be_restarted_ends_every_stream_and_the_engine():
    class Unbindable(Troubled):
        def bind(self, num_blocks, block_tokens):
            if hasattr(self, "was_bound"):
                raise Trouble("no memory")
            self.was_bound = True
            super().bind(num_blocks, block_tokens)

    async def main():
        async with engine(Unbindable(raising(2))) as running:
            seen = await read_all([running.submit(request) for request in some_requests()])
            assert {s.reason for s in seen} == {"error"}
            with pytest.raises(EngineFailed, match="in pass 2; then, restarting: Trouble: no memory"):
                running.submit(request())
            assert_all_back(running)

    run(main())


def hanging(number):
    """A pass that never returns; given up, it still writes to memory a little later."""
    count = itertools.count(1)

    async def run_pass(work, num_tokens):
        if next(count) == number:
            try:
                await asyncio.Event().wait()
            finally:
                for late_s in (0.5, 1.5, 2.5, 3.5):
                    asyncio.get_running_loop().call_later(late_s, work)
        return await lasting(work, num_tokens)

    return run_pass


@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_pass_that_hangs_is_given_up_and_what_it_writes_late_is_read_by_nobody(number):
    async def main():
        async with engine(run_pass=hanging(number), pass_timeout_s=10.0, num_blocks=14) as running:
            assert await read_all([running.submit(request) for request in some_requests()]) == wholes(running)
            assert running.stats().counters.num_restarts == 1
            assert_all_back(running)

    run(main())


def test_a_late_pass_writes_into_no_block_that_somebody_else_has_by_then():
    """Who was in the pass has left, and another, whose every token counts, has its blocks when what hung goes on."""

    async def main():
        changes = {"num_blocks": 4, "max_running": 1, "prefix_cache": False, "pass_timeout_s": 10.0}
        async with engine(fake(order=6), run_pass=hanging(2), **changes) as running:
            first = running.submit(request([5, 6, 7, 5, 6, 7], max_tokens=8))
            second = request([1, 2, 3, 4, 5, 6], max_tokens=8)
            waits = running.submit(second)
            await until(lambda: first.num_emitted)
            first.leave()
            assert await read(waits) == expected(second, running.config, fake(order=6))
            assert running.stats().counters.num_restarts == 1
            assert_all_back(running)

    run(main())


async def test_a_pass_that_hangs_in_its_thread_is_given_up_too():
    gate, is_late_done = threading.Event(), threading.Event()

    class Hangs(Troubled):
        def forward(self, chunks):
            number = next(self.passes)
            if number == 3:
                gate.wait()
            rows = FakeModel.forward(self, chunks)
            if number == 3:
                is_late_done.set()
            return rows

    async with engine(Hangs(raising()), in_thread, pass_timeout_s=0.3, num_blocks=14) as running:
        assert await read_all([running.submit(request) for request in some_requests()]) == wholes(running)
        streams = [running.submit(request) for request in some_requests()]
        await until(lambda: any(stream.num_emitted for stream in streams))
        gate.set()
        assert await read_all(streams) == wholes(running)
        assert await asyncio.to_thread(is_late_done.wait, 10)
        assert await read_all([running.submit(request) for request in some_requests()]) == wholes(running)
        assert running.stats().counters.num_restarts == 1
    assert_all_back(running)


async def test_a_pass_that_raises_in_its_thread_is_computed_again():
    async with engine(Troubled(raising(2)), in_thread) as running:
        assert await read_all([running.submit(request) for request in some_requests()]) == wholes(running)
        assert running.stats().counters.num_restarts == 1
    assert_all_back(running)


class Poisoned(FakeModel):
    """Gives rows of nonsense to a sequence that feeds the last id of the vocabulary."""

    nonsense = np.nan

    def forward(self, chunks):
        rows = super().forward(chunks)
        at = 0
        for chunk in chunks:
            if VOCAB - 1 in chunk.ids:
                rows[at : at + chunk.num_rows] = self.nonsense
            at += chunk.num_rows
        return rows


@pytest.mark.parametrize("nonsense", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("params", [SAMPLED, request().params, SamplingParams(frequency_penalty=0.5)])
def test_rows_of_nonsense_fail_their_own_request_and_no_other(nonsense, params):
    class Model(Poisoned):
        pass

    Model.nonsense = nonsense

    async def main():
        healthy = [request(p, seed=i, params=SamplingParams(logit_bias={7: -np.inf})) for i, p in enumerate(ZEROS)]
        async with engine(Model(1, VOCAB, 1, 4.0)) as running:
            bad = running.submit(request([1, 2, VOCAB - 1], params=params))
            assert (await read_all([bad, *map(running.submit, healthy)]))[1:] == [
                expected(h, running.config) for h in healthy
            ]
            assert (bad.finish_reason, bad.num_emitted) == ("error", 0)
            assert "row" in bad.error
            assert running.stats().counters.num_failed == 1
            assert running.stats().counters.num_restarts == 0
            assert_all_back(running)

    run(main())


ZEROS = [[t % 7 for t in prompt] for prompt in prompts(4)]


def test_a_round_that_a_recording_cannot_verify_fails_its_own_request_and_no_other():
    async def main():
        model = ReplayModel([([1, 2], [3, 4, 5]), ([2, 2], [1, 1, 1])], VOCAB, 0)
        async with engine(model) as running:
            streams = [running.submit(request([1, 2], eos=(0,)))]
            streams.append(running.submit(request([2, 2], params=SAMPLED)))
            streams.append(running.submit(request([2, 2], eos=(0,))))
            seen = await read_all(streams)
            assert [s.tokens for s in seen] == [[3, 4, 5, 0], [], [1, 1, 1, 0]]
            assert [s.reason for s in seen] == ["stop", "error", "stop"]
            assert "temperature 0" in streams[1].error
            assert running.stats().counters.num_restarts == 0
            assert_all_back(running)

    run(main())


@pytest.mark.parametrize("seed", range(20))
def test_faults_of_all_kinds_in_any_order_of_events(seed):
    """Passes that raise and hang, clients that leave: whoever stays gets all of its tokens."""

    async def main():
        troubled = Troubled(raising(3, 7, 11))
        run_pass = [inline, hanging(5)][seed % 2]
        async with engine(troubled, run_pass, pass_timeout_s=9.0, num_blocks=14, max_restarts=9) as running:
            streams = [running.submit(request) for request in some_requests()]
            gone = streams[seed % 6]

            async def leave():
                await asyncio.sleep(seed / 3)
                await gone.cancel()

            leaving = asyncio.create_task(leave())
            seen = await read_all(streams)
            await leaving
            for stream, s, whole in zip(streams, seen, wholes(running), strict=True):
                assert s == whole or (stream is gone and is_prefix(s, whole))
            assert_all_back(running)

    run(main(), seed)


def test_a_crash_leaves_room_for_all_who_ran():
    """They are admitted again at once, and not one by one as the counts come right."""

    async def main():
        async with engine(Troubled(raising(2)), num_blocks=12, max_running=3, speculative=lookup(1)) as running:
            await read_all([running.submit(request([i, 1, 2] * 4, max_tokens=5)) for i in range(3)])
            assert [len(a.candidates) for a in running._scheduler._tap.of(Admit)] == [3, 3]

    run(main())

"""An actor that dies takes nothing with it but what it must: streams end with an error, and the engine goes on."""

import asyncio

import pytest

from actors import EngineFailed
from actors.messages import Admit, Reserve, Reserved, Settle, Step
from kvpool import KvPoolError
from tests.actors.harness import (
    PASS_S,
    assert_all_back,
    engine,
    is_prefix,
    lasting,
    post,
    read,
    read_all,
    request,
    run,
    some_requests,
    until,
    wholes,
)


class BreaksOnce:
    """A block manager's ledger, of which one call of a method raises."""

    def __init__(self, blocks, method):
        self._blocks, self._ledger, self._method = blocks, blocks.ledger, method
        blocks.ledger = self

    def __getattr__(self, name):
        return self._break if name == self._method else getattr(self._ledger, name)

    def _break(self, *args):
        self._blocks.ledger = self._ledger
        raise KvPoolError("injected")


@pytest.mark.parametrize("method", ["admit", "extend", "commit", "release", "check"])
def test_a_block_manager_that_crashes_ends_the_open_streams_and_the_engine_goes_on(method):
    async def main():
        async with engine(run_pass=lasting, max_running=3) as running:
            streams = [running.submit(request) for request in some_requests()]
            await asyncio.sleep(1.5 * PASS_S)
            BreaksOnce(running._blocks, method)
            later = running.submit(request(id="later"))
            seen = await read_all([*streams, later])
            ended = [s for s in seen if s.reason != "error"]
            errors = [stream.error for stream in streams if stream.finish_reason == "error"]
            assert all("blocks: KvPoolError: injected" in error for error in errors)
            assert all(is_prefix(s, whole) for s, whole in zip(seen, wholes(running), strict=False))
            assert len(ended) < len(seen) - 1
            assert_all_back_after_crash(running, method)
            assert await read_all([running.submit(request) for request in some_requests()]) == wholes(running)
            assert_all_back_after_crash(running, method)
        assert_all_back_after_crash(running, method)

    run(main())


def assert_all_back_after_crash(running, method):
    running.check()
    stats = running.stats()
    assert (stats.num_running, stats.num_waiting, stats.blocks.held) == (0, 0, 0)
    assert stats.num_violations == (method == "check")


@pytest.mark.parametrize("at_s", [0.0, 0.5, 1.0, 2.5])
def test_a_scheduler_that_crashes_ends_the_open_streams_and_the_engine_goes_on(at_s):
    """Requests that came in while it crashed end too, or are served: none is left behind."""

    async def main():
        async with engine(run_pass=lasting, max_running=3, max_restarts=1) as running:
            streams = [running.submit(request) for request in some_requests()]
            await asyncio.sleep(at_s)
            running._send(Settle([], []))  # it knows no such message
            streams += [running.submit(request) for request in some_requests()]
            left = running.submit(request())
            left.leave()
            seen = await read_all([*streams, left])
            assert {s.reason for s in seen[:6]} == {"error"}
            assert "the scheduler was restarted: scheduler: TypeError: scheduler does not know" in streams[0].error
            for s, whole in zip(seen, wholes(running) * 2, strict=False):
                assert is_prefix(s, whole)
                assert s.reason == "error" or s == whole
            assert await read_all([running.submit(request) for request in some_requests()]) == wholes(running)
            assert running.failure is None
            assert_all_back(running)

    run(main())


def test_a_scheduler_that_crashes_too_often_ends_the_engine():
    async def main():
        async with engine(max_restarts=1) as running:
            for _ in range(2):
                stream = running.submit(request())
                running._send(Settle([], []))
                assert (await read(stream)).reason == "error"
            with pytest.raises(EngineFailed, match="scheduler does not know Settle"):
                running.submit(request())
            assert_all_back(running)

    run(main())


def test_a_block_manager_that_crashes_too_often_ends_the_engine():
    async def main():
        async with engine(max_restarts=1) as running:
            for _ in range(2):
                stream = running.submit(request())
                BreaksOnce(running._blocks, "admit")
                assert (await read(stream)).reason == "error"
            with pytest.raises(EngineFailed, match="blocks: KvPoolError: injected"):
                running.submit(request())
            assert_all_back(running)

    run(main())


def stray(running, actor):
    """A message that kills an actor while nobody waits for its answer."""
    post(getattr(running, actor), Settle([], []) if actor == "_runner" else Step(0, []))


@pytest.mark.parametrize("num_turns", range(12))
def test_a_runner_that_dies_between_two_messages_is_noticed(num_turns):
    """Its memory is gone and no pass has failed: the next one must not read what is not there."""

    async def main():
        async with engine(max_restarts=1) as running:  # found out by its memory alone, it would crash again
            streams = [running.submit(request) for request in some_requests()]
            await until(lambda: streams[0].num_emitted > 3)
            for _ in range(num_turns):
                await asyncio.sleep(0)
            stray(running, "_runner")
            assert await read_all(streams) == wholes(running)
            assert running.stats().counters.num_restarts == 1
            assert_all_back(running)

    run(main())


@pytest.mark.parametrize("actor", ["_runner", "_blocks"])
def test_an_actor_that_is_given_up_between_two_messages_is_noticed(actor):
    async def main():
        async with engine(max_restarts=0, run_pass=lasting) as running:
            stray(running, actor)
            await asyncio.sleep(PASS_S)
            assert "does not know" in running.failure
            with pytest.raises(EngineFailed):
                running.submit(request())
        assert_all_back(running)
        async with engine(max_restarts=0, run_pass=lasting) as running:
            streams = [running.submit(request) for request in some_requests()]
            await asyncio.sleep(1.5 * PASS_S)
            stray(running, actor)
            seen = await read_all(streams)
            assert {s.reason for s in seen} == {"error"}
            assert_all_back(running)

    run(main())


def test_crashes_of_the_block_manager_far_enough_apart_are_never_too_many():
    """No request is to blame for these: they are counted, and forgotten again."""

    async def main():
        async with engine(max_restarts=2, restart_period_s=5 * PASS_S, run_pass=lasting) as running:
            for _ in range(6):
                stray(running, "_blocks")
                await asyncio.sleep(4 * PASS_S)
            assert (await read(running.submit(request()))).reason == "error", "it is told that the pool was lost"
            assert (await read(running.submit(request()))).reason == "length"
            assert running.failure is None

    run(main())


def test_a_reservation_that_cannot_be_kept_is_a_crash_and_not_a_wrong_table():
    async def main():
        async with engine(num_blocks=8) as running:
            running._blocks.ledger.admit(99, [1, 2], None, 0)
            with pytest.raises(KvPoolError, match="promised room for 40 tokens"):
                await running._blocks.handle(Reserve([(99, 40)]))
            running._blocks.ledger.release(99)

    run(main())


def test_after_a_restart_there_is_room_for_as_many_as_before():
    """As many as fit are admitted at once, and not one by one as the counts come right."""

    async def main():
        async with engine(num_blocks=40, stream_tokens=5) as running:
            large = [running.submit(request([i, 1, 2] * 10, max_tokens=40)) for i in range(4)]
            await until(lambda: running.stats().num_paused == 4)
            running._send(Settle([], []))
            assert {s.reason for s in await read_all(large)} == {"error"}
            num_before = len(running._scheduler._tap.of(Admit))
            await read_all([running.submit(request([i, 3] * 5, max_tokens=2)) for i in range(5)])
            assert [len(a.candidates) for a in running._scheduler._tap.of(Admit)[num_before:]] == [5]

    run(main())


def test_a_check_of_everything_walks_the_prefix_index():
    async def main():
        async with engine() as running:
            await read(running.submit(request([1, 2, 3] * 4)))
            running.check()
            index = running._blocks.ledger.pool._index
            next(iter(index._roots.values())).unlink_all()  # its blocks are known, and found by nobody
            with pytest.raises(KvPoolError, match="prefix index"):
                running.check()
            assert running.stats().num_violations == 1
            running._blocks.ledger.forget_all()

    run(main())


def test_an_answer_of_another_kind_than_was_asked_for_is_an_error():
    async def main():
        async with engine() as running:
            with pytest.raises(TypeError, match="blocks answered Settled, not Reserved"):
                await running._scheduler.ask(running._blocks, Settle([], []), Reserved)

    run(main())

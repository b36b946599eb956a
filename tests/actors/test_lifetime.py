"""Leaving the engine's block ends whatever is open, and every block is back, whichever way it is left."""

import asyncio

import pytest

from spec import SamplingParams
from tests.actors.harness import (
    assert_all_back,
    engine,
    expected,
    inline,
    is_prefix,
    lasting,
    prompts,
    read,
    request,
    run,
    until,
)


class Left(Exception):
    pass


def long_requests(num=6):
    return [request(prompt, max_tokens=150, params=SamplingParams(), seed=i) for i, prompt in enumerate(prompts(num))]


async def open_some(running):
    """Requests of which some run and some wait, or are paused, and one that has ended."""
    await read(running.submit(request(max_tokens=1)))
    streams = [running.submit(long) for long in long_requests()]
    await until(lambda: any(stream.num_emitted for stream in streams))
    return streams


def assert_ended(running, streams):
    assert_all_back(running)
    assert {stream.finish_reason for stream in streams} == {"cancelled"}
    assert running.stats().counters.num_cancelled == len(streams)


@pytest.mark.parametrize("run_pass", [inline, lasting])
@pytest.mark.parametrize("changes", [{}, {"max_running": 2}, {"stream_tokens": 5}, {"num_blocks": 45}])
def test_by_its_end(run_pass, changes):
    async def main():
        async with engine(run_pass=run_pass, **changes) as running:
            streams = await open_some(running)
        assert_ended(running, streams)
        for stream, long in zip(streams, long_requests(), strict=True):
            seen = await read(stream)  # what is unread stays to be read
            assert is_prefix(seen, expected(long, running.config))

    run(main())


@pytest.mark.parametrize("run_pass", [inline, lasting])
def test_by_an_exception_which_goes_on_as_it_is(run_pass):
    async def main():
        running, streams = engine(run_pass=run_pass), []

        async def client():
            async with running:
                streams.extend(await open_some(running))
                raise Left("so")

        with pytest.raises(Left, match="so"):
            await client()
        assert_ended(running, streams)

    run(main())


@pytest.mark.parametrize("num_cancels", [1, 2, 3])
@pytest.mark.parametrize("run_pass", [inline, lasting])
def test_by_cancelling_the_task_that_is_in_it_however_often(run_pass, num_cancels):
    async def main():
        running, streams = engine(run_pass=run_pass), []

        async def client():
            async with running:
                streams.extend(await open_some(running))
                await asyncio.Event().wait()

        task = asyncio.create_task(client())
        await until(lambda: streams)
        for _ in range(num_cancels):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert_ended(running, streams)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main())


def test_by_a_timeout():
    async def main():
        running, streams = engine(run_pass=lasting), []

        async def client():
            async with asyncio.timeout(7.5), running:
                streams.extend(await open_some(running))
                await asyncio.Event().wait()

        with pytest.raises(TimeoutError):
            await client()
        assert_ended(running, streams)
        assert asyncio.get_running_loop().time() == 8.0, "the pass under way was awaited, and no other"

    run(main())


def test_before_anything_was_taken_in():
    async def main():
        async with engine() as running:
            streams = [running.submit(request()) for _ in range(3)]
        assert_ended(running, streams)
        assert running.stats().counters.num_steps == 0

    run(main())


def test_with_a_request_that_came_during_the_last_pass():
    """It has not been seen when the engine is told to stop, and ends like the others."""

    async def main():
        async with engine(run_pass=lasting) as running:
            streams = [running.submit(long_requests(1)[0])]
            await asyncio.sleep(1.5)
            streams.append(running.submit(request()))
        assert_ended(running, streams)

    run(main())


def test_with_nothing_open():
    async def main():
        async with engine() as running:
            pass
        assert_all_back(running)
        async with engine() as running:
            assert (await read(running.submit(request()))).reason == "length"
        assert_all_back(running)

    run(main())


def test_clients_that_wait_are_woken():
    async def main():
        async with engine(run_pass=lasting) as running:
            readers = [asyncio.create_task(read(running.submit(long))) for long in long_requests()]
            await asyncio.sleep(2.5)
        for seen, long in zip(await asyncio.gather(*readers), long_requests(), strict=True):
            assert seen.reason == "cancelled"
            assert is_prefix(seen, expected(long, running.config))

    run(main())

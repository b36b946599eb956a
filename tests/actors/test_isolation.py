"""What an engine shares with its neighbours in the process: nothing that one of them could spoil."""

import asyncio
import threading

import anyio
import anyio.to_thread
import pytest

from actors.runner import in_thread
from models import RunnerTarget
from tests.actors.harness import (
    assert_all_back,
    engine,
    expected,
    fake,
    inline,
    lasting,
    read,
    read_all,
    request,
    run,
    some_requests,
    wholes,
)


@pytest.mark.parametrize("run_pass", [inline, lasting])
def test_one_model_may_serve_several_engines(run_pass):
    async def main():
        model = fake()
        async with engine(model, run_pass) as one, engine(model, run_pass, num_blocks=20, block_tokens=8) as two:
            streams = [running.submit(request) for request in some_requests() for running in (one, two)]
            seen = await read_all(streams)
            assert (seen[::2], seen[1::2]) == (wholes(one), wholes(two))
            for running in (one, two):
                assert_all_back(running)
                assert running.stats().counters.num_restarts == 0

    run(main())


def test_a_model_may_serve_an_engine_and_a_target_of_one_sequence():
    async def main():
        model = fake()
        target = RunnerTarget(model, 16, 4)
        first = target.extend([1, 2, 3])
        async with engine(model) as running:
            beside = RunnerTarget(model, 8, 2)
            streams = [running.submit(request) for request in some_requests()]
            reading = asyncio.create_task(read_all(streams))
            for token in (4, 5, 6, 7):
                await asyncio.sleep(0)
                beside.extend([token])
                target.extend([token])
            assert await reading == wholes(running)
        fresh = RunnerTarget(fake(), 16, 4)
        assert (fresh.extend([1, 2, 3]) == first).all()
        assert (fresh.extend([4, 5, 6, 7, 1])[-1] == target.extend([1])[-1]).all()
        assert (RunnerTarget(fake(), 8, 2).extend([4, 5, 6, 7, 1])[-1] == beside.extend([1])[-1]).all()

    run(main())


async def test_passes_wait_for_no_thread_of_the_program():
    """All threads that anyio gives a process are busy, until the request has been served."""
    gate = threading.Event()
    num_threads = int(anyio.to_thread.current_default_thread_limiter().total_tokens)
    async with anyio.create_task_group() as busy:
        for _ in range(num_threads):
            busy.start_soon(anyio.to_thread.run_sync, gate.wait)
        await anyio.sleep(0.05)
        try:
            async with engine(run_pass=in_thread) as running:
                async with asyncio.timeout(20):
                    assert await read(running.submit(request())) == expected(request(), running.config)
        finally:
            gate.set()

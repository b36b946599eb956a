"""Whoever cancels a task of the engine ends the engine: every stream ends and every block is back, within a pass."""

import asyncio
import itertools
import threading

import msgspec
import pytest

from actors import EngineFailed
from actors.runner import in_thread
from models import FakeModel
from tests.actors.harness import (
    PASS_S,
    VOCAB,
    assert_all_back,
    engine,
    expected,
    inline,
    is_prefix,
    lasting,
    read,
    read_all,
    request,
    run,
    some_requests,
    until,
    wholes,
)

TASKS = ("scheduler", "blocks", "runner")


def long_requests():
    """Some that nobody will have read to their end."""
    return [msgspec.structs.replace(request, max_tokens=100) for request in some_requests()]


def task_named(running, name):
    return next(task for task in running._tasks if task.get_name() == name)


async def wait_all(tasks):
    """Wait for tasks to end, whatever they end with, like `asyncio.run` on its way out."""
    return await asyncio.gather(*tasks, return_exceptions=True)


async def assert_over(running, streams):
    """All is over now, not later, and what was emitted was right."""
    assert_all_back(running)
    assert {stream.finish_reason for stream in streams} == {"cancelled"}
    for stream, wants in zip(streams, long_requests(), strict=True):
        assert is_prefix(await read(stream), expected(wants, running.config))
    assert len(running._streams) == 0


@pytest.mark.parametrize("run_pass", [inline, lasting])
@pytest.mark.parametrize("at_s", [0.0, 0.5, 1.5, 2.0, 4.5])
@pytest.mark.parametrize("names", [*itertools.permutations(TASKS), *((name,) for name in TASKS)])
def test_cancelled_tasks_end_the_engine_within_a_pass(names, at_s, run_pass):
    async def main():
        async with engine(run_pass=run_pass, max_running=3, stream_tokens=5) as running:
            streams = [running.submit(request) for request in long_requests()]
            await asyncio.sleep(at_s)
            for name in names:
                task_named(running, name).cancel()
                await asyncio.sleep(0)
            await asyncio.sleep(0.9 * PASS_S)
            await assert_over(running, streams)
            assert all(task.done() for task in running._tasks)
            with pytest.raises(EngineFailed, match="its task was cancelled"):
                running.submit(request())
            await streams[0].cancel()
        assert_all_back(running)

    for seed in (None, 1, 2):
        run(main(), seed)


@pytest.mark.parametrize("run_pass", [inline, lasting])
@pytest.mark.parametrize("num_rounds", [1, 2, 7])
@pytest.mark.parametrize("at_s", [0.0, 0.5, 3.0])
def test_cancelling_every_task_there_is_again_and_again_ends_them_all(at_s, num_rounds, run_pass):
    async def main():
        running, streams, cleaned_up = engine(run_pass=run_pass, stream_tokens=5), [], []

        async def serve():
            async with running:
                streams.extend(running.submit(request) for request in long_requests())
                try:
                    await asyncio.Event().wait()
                finally:
                    cleaned_up.append(True)

        serving = asyncio.create_task(serve())
        await asyncio.sleep(at_s)
        if not streams:
            await asyncio.sleep(0)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for _ in range(num_rounds):
            for task in tasks:
                task.cancel()
            await asyncio.sleep(0)
        await wait_all(tasks)
        assert serving.cancelled()
        assert cleaned_up
        assert asyncio.get_running_loop().time() <= at_s + PASS_S
        await assert_over(running, streams)

    for seed in (None, *range(4)):
        run(main(), seed)


def test_cancelled_before_they_ever_ran_they_end_the_engine_too():
    async def main():
        async with engine() as running:
            streams = [running.submit(request) for request in long_requests()]
            for task in running._tasks:
                task.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await assert_over(running, streams)

    run(main())


@pytest.mark.parametrize("run_pass", [lasting, in_thread])
def test_a_program_may_end_while_a_task_of_its_own_serves(run_pass):
    """`asyncio.run` cancels every task and waits for them."""
    running, streams = engine(run_pass=run_pass, stream_tokens=5), []

    async def serve():
        async with running:
            streams.extend(running.submit(request) for request in long_requests())
            await asyncio.Event().wait()

    async def main():
        holds = asyncio.create_task(serve())
        await until(lambda: streams and streams[0].num_emitted)
        assert not holds.done()

    if run_pass is in_thread:
        thread = threading.Thread(target=asyncio.run, args=(main(),), daemon=True)
        thread.start()
        thread.join(30)
        assert not thread.is_alive()
    else:
        run(main())
    assert_all_back(running)
    assert {stream.finish_reason for stream in streams} == {"cancelled"}


async def test_a_paused_stream_ends_when_a_runner_is_given_up_between_two_passes():
    """No pass is to come that could find out."""
    async with engine(max_restarts=0, stream_tokens=5) as running:
        stream = running.submit(request(max_tokens=60))
        await until(lambda: running.stats().num_paused == 1)
        running._runner.mailbox.post("no envelope at all")
        await until(lambda: stream.finish_reason)
        assert stream.finish_reason == "error"
        assert "runner: AttributeError" in stream.error
        assert_all_back(running)


# what nobody sent is a crash


class Whim(BaseException):
    pass


NOT_SENT = [asyncio.CancelledError, GeneratorExit, Whim, StopIteration]


class Moody(FakeModel):
    """Raises in its second pass, over all its copies."""

    def __init__(self, error):
        super().__init__(1, VOCAB, 1, 4.0)
        self.error = error
        self.passes = itertools.count(1)

    def forward(self, chunks):
        if next(self.passes) == 2:
            raise self.error("of itself")
        return super().forward(chunks)


@pytest.mark.parametrize("error", NOT_SENT)
@pytest.mark.parametrize("run_pass", [inline, lasting])
def test_a_model_that_raises_what_is_otherwise_sent_is_computed_again(error, run_pass):
    async def main():
        async with engine(Moody(error), run_pass, pass_timeout_s=5.0) as running:
            assert await read_all([running.submit(request) for request in some_requests()]) == wholes(running)
            assert running.stats().counters.num_restarts == 1
            assert running.failure is None
            assert_all_back(running)

    run(main())


@pytest.mark.parametrize("error", NOT_SENT)
async def test_so_is_one_that_does_in_its_thread(error):
    async with engine(Moody(error), in_thread) as running:
        assert await read_all([running.submit(request) for request in some_requests()]) == wholes(running)
        assert running.stats().counters.num_restarts == 1
        assert_all_back(running)


@pytest.mark.parametrize("error", NOT_SENT)
@pytest.mark.parametrize("always", [False, True])
def test_a_way_of_running_passes_may_raise_them_too(error, always):
    count = itertools.count(1)

    async def run_pass(work, num_tokens):
        await asyncio.sleep(0)
        if next(count) == 2 or always:
            raise error("of itself")
        return work()

    async def main():
        async with engine(run_pass=run_pass, max_restarts=2) as running:
            streams = [running.submit(request) for request in some_requests()]
            seen = await read_all(streams)
            assert_all_back(running)
            if not always:
                assert seen == wholes(running)
                return
            assert {s.reason for s in seen} == {"error"}
            name = "RuntimeError: coroutine raised" if error is StopIteration else error.__name__
            assert f"runner: {name}" in streams[0].error
            with pytest.raises(EngineFailed, match=name):
                running.submit(request())

    run(main())


def test_a_model_that_raises_it_when_it_is_bound_again_ends_the_engine():
    class Unbindable(Moody):
        def bind(self, num_blocks, block_tokens):
            if hasattr(self, "was_bound"):
                raise asyncio.CancelledError("no memory")
            self.was_bound = True
            super().bind(num_blocks, block_tokens)

    async def main():
        async with engine(Unbindable(ValueError)) as running:
            seen = await read_all([running.submit(request) for request in some_requests()])
            assert {s.reason for s in seen} == {"error"}
            with pytest.raises(EngineFailed, match="then, restarting: CancelledError: no memory"):
                running.submit(request())
            assert_all_back(running)

    run(main())


def test_an_actor_whose_coroutine_is_closed_is_not_run_on():
    """A loop that is thrown away closes what it ran; who asks for more then breaks its end."""
    running = engine()

    async def main():
        await running.__aenter__()
        return [running.submit(request) for request in some_requests()]

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(main())
        for task in running._tasks:
            task._log_destroy_pending = False
            task.get_coro().close()
    finally:
        loop.close()


def test_a_cancel_during_the_end_of_the_engine_goes_on_after_it():
    async def main():
        running, came_further = engine(run_pass=lasting), []

        async def client():
            async with running:
                running.submit(request())
                await asyncio.sleep(0.5)
            came_further.append(True)

        task = asyncio.create_task(client())
        await asyncio.sleep(0.7)  # it waits for the pass that is under way
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert not came_further
        assert_all_back(running)

    run(main())


def test_a_request_that_comes_while_the_engine_closes_is_refused():
    async def main():
        running, refused = engine(run_pass=lasting), []

        async def late():
            await asyncio.sleep(0.7)
            with pytest.raises(RuntimeError, match="not running"):
                running.submit(request())
            refused.append(True)

        coming = asyncio.create_task(late())
        async with running:
            stream = running.submit(request())
            await asyncio.sleep(0.5)
        await coming
        assert refused
        assert running.stats().counters.num_submitted == 1
        assert is_prefix(await read(stream), expected(request(), running.config))
        assert_all_back(running)

    run(main())

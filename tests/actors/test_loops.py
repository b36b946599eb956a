"""An engine belongs to the event loop that it was entered on; anything else is told so."""

import asyncio
import threading

import anyio
import pytest

from tests.actors.harness import assert_all_back, engine, expected, read, request, run, until

AT_MODULE_LEVEL = engine()


@pytest.fixture
async def entered():
    """Its end is run by another task than its beginning."""
    async with engine() as running:
        yield running
    assert_all_back(running)


async def test_a_fixture_may_hold_an_engine(entered):
    assert await read(entered.submit(request())) == expected(request(), entered.config)


def test_it_may_be_left_in_another_task_than_it_was_entered_in():
    async def main():
        running = engine()
        await asyncio.create_task(running.__aenter__())
        streams = [running.submit(request(max_tokens=90)) for _ in range(3)]
        await until(lambda: streams[0].num_emitted)
        await asyncio.create_task(running.__aexit__(None, None, None))
        assert {stream.finish_reason for stream in streams} == {"cancelled"}
        assert_all_back(running)

    run(main())


def test_it_may_be_made_where_there_is_no_loop():
    async def main():
        async with AT_MODULE_LEVEL as running:
            assert await read(running.submit(request())) == expected(request(), running.config)

    run(main())


def test_it_runs_once():
    async def main():
        async with engine() as running:
            with pytest.raises(RuntimeError, match="an engine runs once"):
                await running.__aenter__()
        with pytest.raises(RuntimeError, match="an engine runs once"):
            await running.__aenter__()

    run(main())


def in_another_thread(call):
    """What a call raises in a thread without a loop."""
    raised = []

    def target():
        try:
            call()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    thread.join(10)
    return raised


def on_another_loop(call):
    """What a coroutine raises on the loop of another thread."""
    return in_another_thread(lambda: asyncio.run(call()))


async def test_another_thread_is_refused_and_loses_nothing():
    async with engine() as running:
        stream = running.submit(request(id="a"))
        for refused in (
            in_another_thread(lambda: running.submit(request())),
            in_another_thread(stream.leave),
            on_another_loop(stream.cancel),
            on_another_loop(stream.aclose),
            on_another_loop(lambda: read(stream)),
            on_another_loop(lambda: running.__aexit__(None, None, None)),
        ):
            assert [type(error) for error in refused] == [RuntimeError]
            assert "loop" in str(refused[0])
        assert running.stats().counters.num_submitted <= 1
        assert await read(stream) == expected(request(), running.config)
        assert_all_back(running)


async def test_what_has_ended_may_be_read_anywhere():
    async with engine() as running:
        stream = running.submit(request())
        await until(lambda: stream.finish_reason)
    seen = []

    async def read_it():
        seen.append(await read(stream))
        await stream.cancel()

    assert on_another_loop(read_it) == []
    assert seen == [expected(request(), running.config)]


def test_under_trio_it_is_refused():
    async def main():
        with pytest.raises(RuntimeError, match="asyncio event loop"):
            async with engine():
                pass

    anyio.run(main, backend="trio")

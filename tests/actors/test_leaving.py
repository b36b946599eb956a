"""A client that leaves its loop, by whatever way, cancels its request and troubles no other."""

import asyncio

import pytest

from spec import SamplingParams
from tests.actors.harness import (
    assert_all_back,
    engine,
    expected,
    inline,
    lasting,
    lookup,
    read_all,
    request,
    run,
    some_requests,
    until,
    wholes,
)

LONG = request(max_tokens=100, params=SamplingParams(), seed=3)


class Left(Exception):
    pass


async def by_break(stream, num_tokens, seen):
    async for token in stream:
        seen.append(token.id)
        if len(seen) == num_tokens:
            break


async def by_exception(stream, num_tokens, seen):
    try:
        async for token in stream:
            seen.append(token.id)
            if len(seen) == num_tokens:
                raise Left
    except Left:
        pass


async def by_closing_the_iterator(stream, num_tokens, seen):
    tokens = aiter(stream)
    while len(seen) < num_tokens:
        seen.append((await anext(tokens)).id)
    await tokens.aclose()


async def by_closing_the_stream(stream, num_tokens, seen):
    async for token in stream:
        seen.append(token.id)
        if len(seen) == num_tokens:
            await stream.aclose()


async def by_cancel(stream, num_tokens, seen):
    async for token in stream:
        seen.append(token.id)
        if len(seen) == num_tokens:
            await stream.cancel()


async def by_leaving(stream, num_tokens, seen):
    async for token in stream:
        seen.append(token.id)
        if len(seen) == num_tokens:
            stream.leave()


async def by_task_cancel_in_the_body(stream, num_tokens, seen):
    async def client():
        async for token in stream:
            seen.append(token.id)
            if len(seen) == num_tokens:
                await asyncio.Event().wait()

    task = asyncio.create_task(client())
    await until(lambda: len(seen) == num_tokens)
    task.cancel()
    await asyncio.wait([task])


async def by_task_cancel_while_waiting(stream, num_tokens, seen):
    async def client():
        async for token in stream:
            seen.append(token.id)

    task = asyncio.create_task(client())
    await until(lambda: len(seen) >= num_tokens)
    task.cancel()
    await asyncio.wait([task])


async def by_another_task(stream, num_tokens, seen):
    async def client():
        async for token in stream:
            seen.append(token.id)

    task = asyncio.create_task(client())
    await until(lambda: len(seen) >= num_tokens)
    await stream.cancel()
    await task


WAYS = [
    by_break,
    by_exception,
    by_closing_the_iterator,
    by_closing_the_stream,
    by_cancel,
    by_leaving,
    by_task_cancel_in_the_body,
    by_task_cancel_while_waiting,
    by_another_task,
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("num_tokens", [1, 2, 5])
@pytest.mark.parametrize("run_pass", [inline, lasting])
def test_leaving_cancels_the_request_and_wastes_one_step_at_most(way, num_tokens, run_pass):
    async def main():
        async with engine(run_pass=run_pass, speculative=lookup(3)) as running:
            stream = running.submit(LONG)
            seen = []
            await way(stream, num_tokens, seen)
            num_steps = running.stats().counters.num_steps
            await until(lambda: stream.finish_reason)
            assert stream.finish_reason == "cancelled"
            assert running.stats().counters.num_steps <= num_steps + 1
            assert_all_back(running)
            assert seen == expected(LONG, running.config).tokens[: len(seen)]
            assert [token async for token in stream] == [], "no token follows"
            assert running.stats().counters.num_cancelled == 1

    run(main())


@pytest.mark.parametrize("way", [by_break, by_cancel, by_task_cancel_while_waiting])
def test_neighbours_of_one_who_leaves_see_nothing_of_it(way):
    async def main():
        async with engine(num_blocks=50) as running:
            streams = [running.submit(request) for request in some_requests()]
            gone = asyncio.create_task(way(running.submit(LONG), 3, []))
            assert await read_all(streams) == wholes(running)
            await gone

    run(main())


def test_what_was_there_and_not_read_does_not_follow_either():
    async def main():
        async with engine() as running:
            stream = running.submit(LONG)
            await until(lambda: stream.num_unread > 3)
            tokens = aiter(stream)
            await anext(tokens)
            stream.leave()
            assert stream.num_unread == 0
            assert [token async for token in tokens] == []
            assert stream.finish_reason == "cancelled"

    run(main())

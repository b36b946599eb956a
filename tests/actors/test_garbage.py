"""Nothing of a request outlives it, and no collector is needed for that."""

import asyncio
import gc
from collections import Counter

import pytest

from actors import Stream
from actors.mailbox import Envelope
from actors.messages import Cancel, Message
from scheduler import Request, Sequence
from spec import Drafter, SamplingParams
from tests.actors.harness import assert_all_back, engine, lookup, prompts, read, request, run

KINDS = (Sequence, Stream, Drafter, Request, Message, Envelope, asyncio.Future)


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield alive()  # of the tests before this one: whatever a failed one holds on to
    gc.enable()


def alive():
    counts = Counter()
    for thing in gc.get_objects():
        for kind in KINDS:
            if isinstance(thing, kind) and not isinstance(thing, asyncio.Task):
                counts[kind.__name__] += 1
    return counts


async def finish(running, i):
    await read(running.submit(request(prompts(7)[i % 7], seed=i, max_tokens=5)))


async def leave_early(running, i):
    async for _ in running.submit(request(seed=i, max_tokens=60)):
        break


async def cancel_at_once(running, i):
    await running.submit(request(seed=i)).cancel()


async def cancel_in_the_queue(running, i):
    streams = [running.submit(request(seed=i, max_tokens=2, priority=(7 * j) % 5)) for j in range(6)]
    for stream in streams[1::2]:
        await stream.cancel()
    for stream in streams[::2]:
        await read(stream)


async def read_slowly(running, i):
    stream = running.submit(request(seed=i, max_tokens=20, params=SamplingParams()))
    await asyncio.sleep(0.1)
    await read(stream)


@pytest.mark.parametrize(
    ("life", "num"),
    [(finish, 1000), (leave_early, 200), (cancel_at_once, 200), (cancel_in_the_queue, 60), (read_slowly, 100)],
)
def test_of_what_has_ended_nothing_is_alive(life, num, no_collector):
    async def main():
        class Forgetful:
            def __call__(self, *_message):
                pass

        async with engine(
            tap=Forgetful(), speculative=lookup(3), stream_tokens=8, max_running=3, audit_every=64
        ) as running:
            await life(running, 0)
            await asyncio.sleep(1)
            before = alive()
            for first in range(1, num, 20):
                await asyncio.gather(*(life(running, i) for i in range(first, first + 20)))
            await asyncio.sleep(1)
            after = alive()
            assert after == before
            for kind in ("Sequence", "Stream", "Drafter"):
                assert after[kind] == no_collector[kind]
            assert_all_back(running)

    run(main())


def test_nothing_is_remembered_of_cancels_that_came_too_late():
    """Of a request that ended as its client left."""

    async def main():
        async with engine(tap=lambda *_message: None) as running:
            for i in range(20):
                stream = running.submit(request(seed=i, max_tokens=3))
                await asyncio.sleep(0)
                running._send(Cancel(stream.seq))
                running._send(Cancel(stream.seq))
                await read(stream)
            assert running._scheduler._cancelled_unseen == set()
            assert_all_back(running)

    run(main())

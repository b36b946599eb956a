"""Server-sent events: one writer at a time, comments into silence, and no patience without end."""

import asyncio
import json
from contextlib import closing

import anyio
import pytest

from server.config import ServerConfig
from server.events import EventSink


def no_matter(*_):
    """What is not looked at."""


async def test_a_write_that_never_ends_is_given_up():
    given_up = anyio.Event()

    async def stuck(message):
        await anyio.sleep_forever()

    async with asyncio.TaskGroup() as tasks:
        with closing(EventSink(stuck, ServerConfig(write_timeout_s=0.05), given_up.set, tasks.create_task)) as sink:
            writer = tasks.create_task(sink.put({}))
            with anyio.fail_after(10):
                await given_up.wait()
            writer.cancel()


@pytest.mark.parametrize("character", ["\u0085", "\u2028", "\u2029"])
async def test_no_character_ends_a_line_within_an_event(character):
    sent = []

    async def send(message):
        sent.append(message.get("body"))

    text = f"a{character}b\u00c2\u0080é€{character}"
    with closing(EventSink(send, ServerConfig(), no_matter, no_matter)) as sink:
        await sink.put({"text": text})
        await sink.end({"text": text})
    for body in sent:
        lines = body.decode().splitlines()
        assert json.loads(lines[0].removeprefix("data: ")) == {"text": text}
        assert set(lines[1:]) <= {"", "data: [DONE]"}


async def test_whoever_writes_events_come_whole_and_silence_is_filled():
    sent = []
    is_sending = False
    has_pinged = anyio.Event()

    async def send(message):
        nonlocal is_sending
        assert not is_sending
        is_sending = True
        await anyio.sleep(0.001)
        is_sending = False
        sent.append(message.get("body"))
        if sent[-1] == b": ping\n\n":
            has_pinged.set()

    async with asyncio.TaskGroup() as tasks:
        with closing(EventSink(send, ServerConfig(ping_s=0.02), no_matter, tasks.create_task)) as sink:
            await sink.start({"x-request-id": "1"})
            async with anyio.create_task_group() as writers:
                for i in range(5):
                    writers.start_soon(sink.put, i)
            with anyio.fail_after(10):
                await has_pinged.wait()
            await sink.end({"usage": 1})
    num_sent = len(sent)
    await anyio.sleep(0.05)
    assert len(sent) == num_sent, "nothing is sent after the end"
    assert sorted(body for body in sent[1:-1] if body != b": ping\n\n") == [b"data: %d\n\n" % i for i in range(5)]
    assert sent[-1] == b'data: {"usage":1}\n\ndata: [DONE]\n\n'


async def test_who_is_gone_is_not_looked_after():
    """Neither while silent nor in a write that never ends: timers would go on for ever, one for every answer."""
    looks = []
    has_pinged, has_given_up = anyio.Event(), anyio.Event()

    async def stuck(message):
        await anyio.sleep_forever()

    async def send(message):
        """Take it."""

    def spawn(ping):
        ping.close()
        looks.append("ping")
        has_pinged.set()

    def give_up():
        looks.append("give up")
        has_given_up.set()

    config = ServerConfig(ping_s=0.01, write_timeout_s=0.01)
    silent, writing = EventSink(send, config, give_up, spawn), EventSink(stuck, config, give_up, spawn)
    writer = asyncio.create_task(writing.put({}))
    with anyio.fail_after(10):  # both are looked after until they are closed
        await has_pinged.wait()
        await has_given_up.wait()
    silent.close()
    writing.close()
    writer.cancel()
    looks.clear()
    await anyio.sleep(0.1)
    assert not looks


async def test_what_is_held_goes_with_what_comes_next_in_one_write():
    sent = []

    async def send(message):
        sent.append((message.get("body"), message.get("more_body")))

    with closing(EventSink(send, ServerConfig(), no_matter, no_matter)) as sink:
        sink.hold(1)
        sink.hold(2)
        await sink.put(3)
        sink.hold(4)
        await sink.end()
    assert sent == [
        (b"data: 1\n\ndata: 2\n\ndata: 3\n\n", True),
        (b"data: 4\n\ndata: [DONE]\n\n", False),
    ]

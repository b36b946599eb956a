"""Text to ids: what cannot fit is refused before it is looked at, and what is long holds up nobody."""

import threading
import time

import anyio
import pytest

from actors import Engine, EngineConfig
from models.toy import ToyModel, ToyTokenizer
from server.app import build_app
from server.bodies import BodyReader
from server.config import ServerConfig
from server.encoding import Encoder
from server.errors import ApiError
from server.model import Served
from server.service import Service
from server.wire import CompletionBody

TOO_LONG = "context_length_exceeded"


class Watched(ToyTokenizer):
    """Notes where it works, and how many at once."""

    def __init__(self):
        super().__init__()
        self.threads, self.at_once, self.most_at_once = [], 0, 0

    def encode(self, text):
        self.threads.append(threading.current_thread())
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        if len(text) > 1000:
            time.sleep(0.005)
        try:
            return super().encode(text)
        finally:
            self.at_once -= 1


async def code_of(call):
    with pytest.raises(ApiError) as raised:
        await call
    return raised.value.body["error"]["code"]


async def test_what_has_too_many_bytes_is_never_encoded():
    tokenizer = Watched()
    encoder = Encoder(tokenizer, 100)  # of three bytes at most
    for text in ("x" * 301, "é" * 151, "x" * 10_000_000):
        assert await code_of(encoder.text(text, "prompt")) == TOO_LONG
        assert await code_of(encoder.conversation([{"role": "user", "content": text}])) == TOO_LONG
    many = [{"role": "user", "content": "x" * 30}] * 11
    assert await code_of(encoder.conversation(many)) == TOO_LONG
    assert tokenizer.threads == []
    #   what may fit is, up to the last token
    assert len(await encoder.text(" ba" * 100, "prompt")) == 100
    assert await code_of(encoder.text(" ba" * 99 + "xy", "prompt")) == TOO_LONG
    assert await encoder.decode([300] * 100)
    assert await code_of(encoder.decode([300] * 101)) == TOO_LONG
    assert await code_of(encoder.decode([430])) == "invalid_value"
    assert await code_of(encoder.text("\ud800", "prompt")) == "invalid_value"


async def test_long_texts_take_turns_off_the_loop():
    tokenizer = Watched()
    encoder = Encoder(tokenizer, 100_000)
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(encoder.text, " ba" * 2000, "prompt")
    assert threading.main_thread() not in tokenizer.threads
    assert (len(tokenizer.threads), tokenizer.most_at_once) == (5, 1)
    await encoder.text("ba", "prompt")
    assert tokenizer.threads[-1] is threading.main_thread()


async def test_who_has_left_has_nothing_encoded():
    """Many large prompts wait for their turn, and all but the first have nobody who waits for them."""
    tokenizer = Watched()
    served = Served(ToyModel(0, 1, 800.0), tokenizer, "fake", None)
    body = b'{"max_tokens": 1, "prompt": "' + b" ba" * 6000 + b'"}'
    statuses = []

    async def visit(app, stays):
        messages = [{"type": "http.request", "body": body}]

        async def receive():
            if messages:
                return messages.pop()
            if stays:
                await anyio.sleep_forever()
            return {"type": "http.disconnect"}

        async def send(message):
            statuses.append(message.get("status"))

        headers = [(b"content-type", b"application/json"), (b"host", b"localhost")]
        path = "/v1/completions"
        scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b""}
        await app(scope, receive, send)

    async with Engine(served.model, EngineConfig(num_blocks=1024)) as engine:
        app = build_app(Service(engine, served, ServerConfig()))
        async with anyio.create_task_group() as visits:
            for i in range(20):
                visits.start_soon(visit, app, i == 0)
        assert engine.stats().counters.num_submitted == 1
    assert sorted(status for status in statuses if status) == [200] + [499] * 19
    assert len(tokenizer.threads) <= 2


async def test_between_two_large_bodies_others_have_their_turn(monkeypatch):
    bodies = BodyReader(ServerConfig(), print)
    ticks, decoded_at = 0, []
    decode = bodies._decode

    def slow(data, kind):
        time.sleep(0.03)
        decoded_at.append(ticks)
        return decode(data, kind)

    monkeypatch.setattr(bodies, "_decode", slow)

    async def tick():
        nonlocal ticks
        while True:
            await anyio.sleep(0.001)
            ticks += 1

    large = b'{"prompt": "' + b"x" * 100_000 + b'"}'
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        async with anyio.create_task_group() as readers:
            for _ in range(3):
                readers.start_soon(bodies.decode, large, CompletionBody)
        tasks.cancel_scope.cancel()
    first, second, third = decoded_at
    assert min(second - first, third - second) > 3

"""The server beside mock servers: answers of 64 tokens a second, streamed and whole, to 64 connections and to one.

Every server is a process on the first core; the client, this process, has the last one. Connections stay open and ask
again as an answer ends. Greedy, unless it says sampled. Rounds are interleaved; figures are medians.
"""

import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from actors import Request
from benchmarks import mock_servers
from benchmarks.mock_servers import NUM_TOKENS
from cli.collector import calm_collector
from server.config import load_config
from server.serve import make_engine
from spec import SamplingParams

ROUNDS = 3
SECONDS = 1.0
OURS, ENGINE = "outrider serve", "its engine alone, on the client's core"
_PORT = 18731
_END_OF_CHUNKS = b"0\r\n\r\n"


class Load(NamedTuple):
    """What is asked for: over how many connections, streamed or whole, greedy or sampled."""

    num_connections: int
    is_stream: bool
    temperature: float = 0.0


LOADS = {
    "64 streams": Load(64, True),
    "64 whole": Load(64, False),
    "64 streams, sampled": Load(64, True, 1.0),
    "1 stream": Load(1, True),
    "1 whole": Load(1, False),
}


class Asker(asyncio.Protocol):
    """One connection that asks, reads to the end of the answer, and asks again until `end_s`."""

    def __init__(self, load: Load, number: int, end_s: float) -> None:
        self.num_answers = 0
        self.last = b""
        self.done = asyncio.get_running_loop().create_future()
        body = {
            "model": "fake",
            "prompt": f"Tell me of lama and budo, {number}.",
            "max_tokens": NUM_TOKENS,
            "stream": load.is_stream,
            "temperature": load.temperature,
            "seed": number,
            "ignore_eos": True,
        }
        data = json.dumps(body).encode()
        head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        self._request = f"{head}content-length: {len(data)}\r\n\r\n".encode() + data
        self._end_s = end_s
        self._parts: list[bytes] = []
        self._num_left: int | None = None  # bytes of an answer of known length

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Read on, up to the end of an answer."""
        if not self._parts:
            head, _, rest = data.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), data
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            self._num_left = int(length) - len(rest) if length else None
        elif self._num_left is not None:
            self._num_left -= len(data)
        self._parts.append(data)
        if self._num_left == 0 or (self._num_left is None and data.endswith(_END_OF_CHUNKS)):
            self._answered()

    def connection_lost(self, error: Exception | None) -> None:
        """Fail, unless all is said."""
        if not self.done.done():
            self.done.set_exception(error or ConnectionError("the server closed the connection"))

    def _answered(self) -> None:
        self.num_answers += 1
        self.last, self._parts = b"".join(self._parts), []
        if time.perf_counter() < self._end_s:
            self._transport.write(self._request)
        else:
            self.done.set_result(None)
            self._transport.close()


async def ask(port: int, load: Load, seconds: float) -> float:
    """Give answers per second."""
    loop = asyncio.get_running_loop()
    start_s = time.perf_counter()
    askers = [Asker(load, i, start_s + seconds) for i in range(load.num_connections)]
    for asker in askers:
        await loop.create_connection(lambda asker=asker: asker, "127.0.0.1", port)  # type: ignore[misc]
    await asyncio.gather(*(asker.done for asker in askers))
    assert not load.is_stream or b"[DONE]" in askers[0].last
    return sum(asker.num_answers for asker in askers) / (time.perf_counter() - start_s)


@contextlib.contextmanager
def running(command: list[str], port: int, core: int) -> Iterator[None]:
    """Run a server on one core, once it listens."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.sched_setaffinity(process.pid, {core})  # its threads inherit it
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        else:
            raise RuntimeError(f"{command[0]} does not listen on port {port}")
        yield
    finally:
        process.terminate()
        process.wait(20)


async def ask_engine(load: Load, seconds: float) -> float:
    """Give answers per second of the engine that our server has, without HTTP, in this process."""
    engine, served = make_engine(load_config(None, {}))
    num_answers = 0

    async def client(number: int) -> None:
        nonlocal num_answers
        while time.perf_counter() < end_s:
            prompt = served.tokenizer.encode(f"Tell me of lama and budo, {number}.")
            params = SamplingParams(temperature=load.temperature)
            request = Request(prompt=prompt, params=params, max_tokens=NUM_TOKENS, seed=number, logprobs=False)
            async for _ in engine.submit(request).rounds():
                pass
            num_answers += 1

    async with engine:
        start_s = time.perf_counter()
        end_s = start_s + seconds
        async with asyncio.TaskGroup() as clients:
            for i in range(load.num_connections):
                clients.create_task(client(i))
        return num_answers / (time.perf_counter() - start_s)


def main() -> None:
    """Print answers per second of each server, and what our engine makes without one."""
    calm_collector()
    cores = sorted(os.sched_getaffinity(0))
    serve = [sys.executable, "-c", "import sys; from cli.serve import serve; serve(sys.argv[1:])", "--port"]
    servers: dict[str, tuple[int, list[str]]] = {OURS: (_PORT, [*serve, str(_PORT), "--log-level", "warning"])}
    for i, (name, start) in enumerate(mock_servers.found().items(), 1):
        servers[name] = _PORT + i, start(_PORT + i)
    rates: dict[tuple[str, str], list[float]] = {}
    with contextlib.ExitStack() as stack:
        for port, command in servers.values():
            stack.enter_context(running(command, port, cores[0]))
        os.sched_setaffinity(0, {cores[-1]})
        for i in range(1 + ROUNDS):  # the first one warms up
            for what, load in LOADS.items():
                asked = {name: ask(port, load, SECONDS) for name, (port, _) in servers.items()}
                for name, asking in {**asked, ENGINE: ask_engine(load, SECONDS)}.items():
                    rate = asyncio.run(asking)
                    if i:
                        rates.setdefault((name, what), []).append(rate)
    print(f"| answers a second | {' | '.join(LOADS)} |")
    print("|---" * (1 + len(LOADS)) + "|")
    for name in (*servers, ENGINE):
        print(f"| {name} | " + " | ".join(f"{statistics.median(rates[name, what]):.0f}" for what in LOADS) + " |")


if __name__ == "__main__":
    main()

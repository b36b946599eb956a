"""One request of a load: a client over a real socket that streams, and may leave."""

import asyncio
import itertools
import json
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal, NamedTuple

Ending = Literal["finished", "left", "refused", "failed"]

_CONNECTING_AT_ONCE = 128


class Plan(NamedTuple):
    """A request that is to be made."""

    number: int
    """It is the request's seed, and begins its prompt."""
    prompt: str
    max_tokens: int
    leave_after: int | None
    """Pieces of text after which its client leaves: -1 is before the headers; None stays to the end."""


class Outcome(NamedTuple):
    """What became of one request; times in seconds, counted from when it should have been sent."""

    plan: Plan
    ending: Ending
    late_s: float | None = None
    """When it was sent; None for one that never was."""
    ttft_s: float | None = None
    gaps_s: tuple[float, ...] = ()
    e2e_s: float | None = None
    """To the end of the stream, of one that finished."""
    num_tokens: int = 0
    text: str = ""
    problem: str | None = None


class LoadClient:
    """Makes requests of one server."""

    def __init__(self, host: str, port: int, api_key: str | None, timeout_s: float) -> None:
        self._host, self._port, self._api_key, self._timeout_s = host, port, api_key, timeout_s
        self._door = asyncio.Semaphore(_CONNECTING_AT_ONCE)

    async def ask(self, plan: Plan, due_s: float) -> Outcome:
        """Make a request that should be sent at `due_s` by the loop's clock, which is now or has been."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._exchange(plan, due_s)
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            return Outcome(plan, "failed", problem=f"{type(error).__name__}: {error}")

    async def metrics(self) -> str:
        """Read the server's metrics. OSError where it does not answer."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            writer.write(self._http("GET", "/metrics"))
            status, headers = await _head(reader)
            if status != 200:
                raise ConnectionError(f"GET /metrics: status {status}")
            return b"".join([piece async for piece in _pieces(reader, headers)]).decode()
        finally:
            writer.close()

    async def _exchange(self, plan: Plan, due_s: float) -> Outcome:
        async with self._door:
            reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            body = {"prompt": plan.prompt, "max_tokens": plan.max_tokens, "stream": True, "seed": plan.number}
            writer.write(self._http("POST", "/v1/completions", {**body, "stream_options": {"include_usage": True}}))
            late_s = now_s() - due_s
            if plan.leave_after == -1:
                await writer.drain()
                return Outcome(plan, "left", late_s)
            status, headers = await _head(reader)
            if status == 429:
                return Outcome(plan, "refused", late_s)
            if status != 200:
                return Outcome(plan, "failed", late_s, problem=f"status {status}")
            return await self._stream(plan, due_s, late_s, _events(reader, headers))
        finally:
            if plan.leave_after is not None and plan.number % 2:  # every other one leaves without a goodbye
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.close()

    async def _stream(self, plan: Plan, due_s: float, late_s: float, events: AsyncIterator[str]) -> Outcome:
        came_s: list[float] = []
        pieces: list[str] = []
        num_tokens = 0

        def outcome(ending: Ending, e2e_s: float | None = None) -> Outcome:
            ttft_s = came_s[0] - due_s if came_s else None
            gaps_s = tuple(after - before for before, after in itertools.pairwise(came_s))
            return Outcome(plan, ending, late_s, ttft_s, gaps_s, e2e_s, num_tokens, "".join(pieces))

        async for event in events:
            if plan.leave_after is not None and len(pieces) >= plan.leave_after:
                return outcome("left")
            if event == "[DONE]":
                return outcome("finished", now_s() - due_s)
            chunk = json.loads(event)
            if "error" in chunk:
                return outcome("failed")._replace(problem=chunk["error"]["message"])
            if chunk["usage"] is not None:
                num_tokens = chunk["usage"]["completion_tokens"]
            elif text := chunk["choices"][0]["text"]:
                came_s.append(now_s())
                pieces.append(text)
        return outcome("failed")._replace(problem="the stream ended without [DONE]")

    def _http(self, method: str, path: str, body: Any = None) -> bytes:
        data = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", f"host: {self._host}", "connection: close"]
        lines += [f"content-length: {len(data)}"]
        lines += ["content-type: application/json"] if data else []
        lines += [f"authorization: Bearer {self._api_key}"] if self._api_key else []
        return ("\r\n".join(lines) + "\r\n\r\n").encode() + data


def now_s() -> float:
    """Read the clock of the loop: a monotonic one."""
    return asyncio.get_running_loop().time()


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines if line)
    return int(first.split(" ")[1]), headers


async def _pieces(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
    if headers.get("transfer-encoding") != "chunked":
        yield await reader.read()
        return
    while size := int(await reader.readline(), 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)


async def _events(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> AsyncIterator[str]:
    """Give the data of each server-sent event."""
    rest = b""
    async for piece in _pieces(reader, headers):
        *events, rest = (rest + piece).split(b"\n\n")
        for event in events:
            if event.startswith(b"data: "):
                yield event[6:].decode()

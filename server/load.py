"""Many clients over real sockets, some of whom leave, and whether the server is whole afterwards."""

import asyncio
import json
import random
import re
import resource
import socket
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

Ending = Literal["finished", "left", "refused", "failed"]

_SETTLE_S = 10.0
_CONNECTING_AT_ONCE = 128


class LoadConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The traffic: each of `num_clients` opens connection after connection until `num_requests` are made."""

    host: str
    port: int
    num_clients: int
    num_requests: int
    leave_share: float
    """Share of the requests whose client closes its connection at a random point."""
    prompt_chars: int
    max_tokens: int
    seed: int
    timeout_s: float
    api_key: str | None


class Outcome(NamedTuple):
    """What became of one request; times in seconds."""

    ending: Ending
    ttft_s: float | None = None
    gaps_s: tuple[float, ...] = ()
    num_tokens: int = 0
    problem: str | None = None


class LoadReport(msgspec.Struct, frozen=True):
    """What clients saw, and what the server says of itself when all are gone."""

    endings: dict[str, int]
    elapsed_s: float
    num_tokens: int
    ttft_s: dict[str, float]
    gap_s: dict[str, float]
    problems: dict[str, int]
    blocks: dict[str, float]
    num_open: float
    num_violations: float
    num_cancels: float
    accept_rate: float

    @property
    def is_whole(self) -> bool:
        """Nobody failed, nothing is open, no block is held, and the blocks always added up."""
        return not (self.endings["failed"] or self.num_open or self.blocks["held"] or self.num_violations)


async def run_load(config: LoadConfig) -> LoadReport:
    """Make the requests, wait until the server has settled, and report. OSError where no server answers."""
    raise_file_limit()
    total = sum((await _blocks(config)).values())
    chance = random.Random(config.seed)
    plans = iter([(i, _leaving_point(chance, config)) for i in range(config.num_requests)])
    outcomes: list[Outcome] = []
    door = asyncio.Semaphore(_CONNECTING_AT_ONCE)

    async def client() -> None:
        for number, leave_after in plans:
            outcomes.append(await _request(config, number, leave_after, door))

    start_s = time.monotonic()
    await asyncio.gather(*(client() for _ in range(config.num_clients)))
    elapsed_s = time.monotonic() - start_s
    metrics = await _settled(config)
    blocks = _by_state(metrics)
    problems = Counter(o.problem for o in outcomes if o.problem is not None)
    if sum(blocks.values()) != total:
        problems[f"{sum(blocks.values()):.0f} blocks of {total:.0f} are accounted for"] += 1
    counted = Counter(outcome.ending for outcome in outcomes)
    return LoadReport(
        endings={ending: counted[ending] for ending in ("finished", "left", "refused", "failed")},
        elapsed_s=elapsed_s,
        num_tokens=sum(outcome.num_tokens for outcome in outcomes),
        ttft_s=_quantiles([outcome.ttft_s for outcome in outcomes if outcome.ttft_s is not None]),
        gap_s=_quantiles([gap for outcome in outcomes for gap in outcome.gaps_s]),
        problems=dict(problems),
        blocks=blocks,
        num_open=_sum(metrics, "vllm:num_requests_running") + _sum(metrics, "vllm:num_requests_waiting"),
        num_violations=_sum(metrics, "tl_engine_conservation_violations_total"),
        num_cancels=_sum(metrics, "tl_engine_cancels_total"),
        accept_rate=_sum(metrics, "tl_engine_spec_accept_rate"),
    )


def raise_file_limit() -> None:
    """Allow this process as many open connections as it may allow itself."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _leaving_point(chance: random.Random, config: LoadConfig) -> int | None:
    """Tell after how many pieces of text a client leaves: -1 is before the headers; None stays to the end."""
    if chance.random() >= config.leave_share:
        return None
    return chance.randint(-1, max(1, config.max_tokens // 2))


async def _request(config: LoadConfig, number: int, leave_after: int | None, door: asyncio.Semaphore) -> Outcome:
    try:
        async with asyncio.timeout(config.timeout_s):
            return await _exchange(config, number, leave_after, door)
    except (OSError, ValueError, asyncio.IncompleteReadError) as error:
        return Outcome("failed", problem=f"{type(error).__name__}: {error}")


async def _exchange(config: LoadConfig, number: int, leave_after: int | None, door: asyncio.Semaphore) -> Outcome:
    async with door:
        reader, writer = await asyncio.open_connection(config.host, config.port)
    try:
        prompt = (f"{number} " + "ba ni do " * config.prompt_chars)[: config.prompt_chars]
        body = {"prompt": prompt, "max_tokens": config.max_tokens, "stream": True, "seed": number}
        start_s = last_s = time.monotonic()
        writer.write(_http("POST", "/v1/completions", config, {**body, "stream_options": {"include_usage": True}}))
        if leave_after == -1:
            await writer.drain()
            return Outcome("left")
        status, headers = await _head(reader)
        if status == 429:
            return Outcome("refused")
        if status != 200:
            return Outcome("failed", problem=f"status {status}")
        ttft_s: float | None = None
        gaps_s: list[float] = []
        num_pieces = num_tokens = 0
        async for event in _events(reader, headers):
            if leave_after is not None and num_pieces >= leave_after:
                return Outcome("left", ttft_s, tuple(gaps_s), num_tokens)
            if event == "[DONE]":
                return Outcome("finished", ttft_s, tuple(gaps_s), num_tokens)
            chunk = json.loads(event)
            if "error" in chunk:
                return Outcome("failed", problem=chunk["error"]["message"])
            if chunk["usage"] is not None:
                num_tokens = chunk["usage"]["completion_tokens"]
            elif chunk["choices"][0]["text"]:
                now_s = time.monotonic()
                if ttft_s is None:
                    ttft_s = now_s - start_s
                else:
                    gaps_s.append(now_s - last_s)
                last_s = now_s
                num_pieces += 1
        return Outcome("failed", problem="the stream ended without [DONE]")
    finally:
        if leave_after is not None and number % 2:  # every other one leaves without a goodbye
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.close()


def _http(method: str, path: str, config: LoadConfig, body: Any = None) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", f"host: {config.host}", "connection: close", f"content-length: {len(data)}"]
    lines += ["content-type: application/json"] if data else []
    lines += [f"authorization: Bearer {config.api_key}"] if config.api_key else []
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + data


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


async def _metrics(config: LoadConfig) -> str:
    reader, writer = await asyncio.open_connection(config.host, config.port)
    try:
        writer.write(_http("GET", "/metrics", config))
        status, headers = await _head(reader)
        if status != 200:
            raise ConnectionError(f"GET /metrics: status {status}")
        return b"".join([piece async for piece in _pieces(reader, headers)]).decode()
    finally:
        writer.close()


async def _settled(config: LoadConfig) -> str:
    """Read the metrics once nothing is open any more, or at last as they are."""
    end_s = time.monotonic() + _SETTLE_S
    while True:
        metrics = await _metrics(config)
        num_open = _sum(metrics, "vllm:num_requests_running") + _sum(metrics, "vllm:num_requests_waiting")
        if time.monotonic() > end_s or not (num_open or _by_state(metrics)["held"]):
            return metrics
        await asyncio.sleep(0.1)


async def _blocks(config: LoadConfig) -> dict[str, float]:
    return _by_state(await _metrics(config))


def _by_state(metrics: str) -> dict[str, float]:
    found = re.findall(r'^tl_engine_blocks\{.*state="(\w+)"\} (\S+)$', metrics, re.MULTILINE)
    return {state: float(value) for state, value in found}


def _sum(metrics: str, name: str) -> float:
    return sum(map(float, re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", metrics, re.MULTILINE)))


def _quantiles(values: list[float]) -> dict[str, float]:
    if not values:
        return {}
    ordered = sorted(values)
    return {name: ordered[int(q * (len(ordered) - 1))] for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))}

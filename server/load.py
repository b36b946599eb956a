"""Many clients over real sockets, some of whom leave, and whether the server is whole afterwards."""

import asyncio
import random
import re
import resource
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from server.load_client import LoadClient, Outcome, Plan, now_s

PERCENTILES = "linear between ranks"

_SETTLE_S = 10.0


class LoadConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The traffic: `num_requests` requests, either way.

    In a closed loop, each of `num_clients` makes one request after the other. In an open loop, with `times_s`, requests
    are sent at those seconds from the start, whatever became of the ones before.
    """

    host: str
    port: int
    num_clients: int
    num_requests: int
    times_s: Sequence[float] | None = None
    leave_share: float
    """Share of the requests whose client closes its connection at a random point."""
    prompt_chars: int
    max_tokens: int
    seed: int
    timeout_s: float
    api_key: str | None


class Quantiles(msgspec.Struct, frozen=True):
    """Of `count` times in seconds, interpolated linearly between ranks; None where there was none."""

    count: int = 0
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    max: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Quantiles":
        """Summarise times."""
        if not len(values):
            return cls()
        return cls(len(values), *np.percentile(values, [50, 90, 99, 100]).tolist())


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """What clients saw, and what the server says of itself when all are gone.

    Times count from when a request should have been sent: in an open loop when it was due, in a closed one when its
    client was free. Connecting counts.
    """

    num_requests: int
    """That were asked for; `endings` are those of all that were made."""
    endings: dict[str, int]
    is_broken_off: bool
    """Ended before its time: `endings` has those under way as `broken_off`."""
    elapsed_s: float
    num_tokens: int
    late_s: Quantiles
    """From when requests should have been sent until they were."""
    ttft_s: Quantiles
    gap_s: Quantiles
    """Between two deliveries of text."""
    e2e_s: Quantiles
    """To the end, of requests that finished."""
    percentiles: str = PERCENTILES
    problems: dict[str, int]
    blocks: dict[str, float]
    num_open: float
    num_violations: float
    num_cancels: float
    accept_rate: float

    @property
    def is_whole(self) -> bool:
        """Nobody failed, nothing is open or held, no count was wrong, and somebody was served if there was time."""
        is_shown = self.endings["finished"] + self.endings["left"] > 0 or self.is_broken_off
        is_clean = not (self.endings["failed"] or self.num_open or self.blocks["held"] or self.num_violations)
        return is_shown and is_clean


class Load(NamedTuple):
    """A report, and each request's outcome in the order they ended."""

    report: LoadReport
    outcomes: list[Outcome]


async def run_load(config: LoadConfig, watch: Callable[[int], None] = lambda _num_ended: None) -> Load:
    """Make the requests, wait until the server has settled, and report. OSError where no server of ours answers.

    `watch` is told how many requests have ended. Cancelled, it makes no more, leaves those under way, and reports what
    was until then.
    """
    raise_file_limit()
    client = LoadClient(config.host, config.port, config.api_key, config.timeout_s)
    total = sum(_by_state(await client.metrics()).values())
    if not total:
        raise ConnectionError("GET /metrics tells of no blocks: this is no server of Outrider's")
    outcomes: list[Outcome] = []
    num_made = 0

    async def ask(plan: Plan, due_s: float) -> None:
        nonlocal num_made
        num_made += 1
        outcomes.append(await client.ask(plan, due_s))
        watch(len(outcomes))

    start_s = now_s()
    is_broken_off = await _is_broken_off(_traffic(config, ask))
    elapsed_s = now_s() - start_s
    metrics = await _settled(client)
    blocks = _by_state(metrics)
    problems = Counter(outcome.problem for outcome in outcomes if outcome.problem is not None)
    if sum(blocks.values()) != total:
        problems[f"{sum(blocks.values()):.0f} blocks of {total:.0f} are accounted for"] += 1
    counted = Counter[str](outcome.ending for outcome in outcomes)
    counted["broken_off"] = num_made - len(outcomes)
    report = LoadReport(
        num_requests=config.num_requests,
        endings={ending: counted[ending] for ending in ("finished", "left", "refused", "failed", "broken_off")},
        is_broken_off=is_broken_off,
        elapsed_s=elapsed_s,
        num_tokens=sum(outcome.num_tokens for outcome in outcomes),
        late_s=Quantiles.of([outcome.late_s for outcome in outcomes if outcome.late_s is not None]),
        ttft_s=Quantiles.of([outcome.ttft_s for outcome in outcomes if outcome.ttft_s is not None]),
        gap_s=Quantiles.of([gap for outcome in outcomes for gap in outcome.gaps_s]),
        e2e_s=Quantiles.of([outcome.e2e_s for outcome in outcomes if outcome.e2e_s is not None]),
        problems=dict(problems),
        blocks=blocks,
        num_open=_sum(metrics, "vllm:num_requests_running") + _sum(metrics, "vllm:num_requests_waiting"),
        num_violations=_sum(metrics, "tl_engine_conservation_violations_total"),
        num_cancels=_sum(metrics, "tl_engine_cancels_total"),
        accept_rate=_sum(metrics, "tl_engine_spec_accept_rate"),
    )
    return Load(report, outcomes)


def raise_file_limit() -> None:
    """Allow this process as many open connections as it may allow itself."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _traffic(config: LoadConfig, ask: Callable[[Plan, float], Coroutine[Any, Any, None]]) -> None:
    """Make every request at its time."""
    chance = random.Random(config.seed)
    plans = iter([_plan(config, number, chance) for number in range(config.num_requests)])

    async def client() -> None:
        for plan in plans:
            await ask(plan, now_s())

    async with asyncio.TaskGroup() as group:
        if config.times_s is None:
            for _ in range(config.num_clients):
                group.create_task(client())
            return
        start_s = now_s()
        for plan, at_s in zip(plans, config.times_s, strict=True):
            due_s = start_s + at_s
            await asyncio.sleep(due_s - now_s())
            group.create_task(ask(plan, due_s))


def _plan(config: LoadConfig, number: int, chance: random.Random) -> Plan:
    is_leaving = chance.random() < config.leave_share
    leave_after = chance.randint(-1, max(1, config.max_tokens // 2)) if is_leaving else None
    prompt = (f"{number} " + "ba ni do " * config.prompt_chars)[: config.prompt_chars]
    return Plan(number, prompt, config.max_tokens, leave_after)


async def _is_broken_off(traffic: Coroutine[Any, Any, None]) -> bool:
    """Run the traffic, and tell whether it was cancelled before its end."""
    try:
        await traffic
    except asyncio.CancelledError:
        return True
    return False


async def _settled(client: LoadClient) -> str:
    """Read the metrics once nothing is open any more, or at last as they are."""
    end_s = now_s() + _SETTLE_S
    while True:
        metrics = await client.metrics()
        num_open = _sum(metrics, "vllm:num_requests_running") + _sum(metrics, "vllm:num_requests_waiting")
        if now_s() > end_s or not (num_open or _by_state(metrics)["held"]):
            return metrics
        await asyncio.sleep(0.1)


def _by_state(metrics: str) -> dict[str, float]:
    """Count the blocks in each state, of all replicas together."""
    found = re.findall(r'^tl_engine_blocks\{.*state="(\w+)"\} (\S+)$', metrics, re.MULTILINE)
    return {state: sum(float(value) for each, value in found if each == state) for state, _ in found}


def _sum(metrics: str, name: str) -> float:
    return sum(map(float, re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", metrics, re.MULTILINE)))

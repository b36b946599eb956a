"""The report of a simulation: what `--json` writes, and what text and page show."""

from collections.abc import Sequence

import msgspec
import numpy as np

from sims.config import SimConfig
from sims.workload import Source

_NUM_BINS = 48
PERCENTILES = "linear between ranks"


class Requests(msgspec.Struct, frozen=True):
    """Requests, each in one bin: `submitted` is the sum of the next four, `total` that and `never_submitted`."""

    total: int
    """Of the whole workload."""
    submitted: int
    completed: int
    cancelled: int
    failed: int
    refused: int
    stopped: int
    """Of those completed, the ones that a stop id ended; the others reached their length."""
    first_refusal: str | None
    never_submitted: int
    """The engine had given up, or the run was broken off, before their time came."""


class Tokens(msgspec.Struct, frozen=True):
    """Tokens, of requests that were admitted."""

    prompt: int
    cached: int
    """Of the prompt tokens, those found in the prefix cache at first admission."""
    emitted: int
    wasted: int
    """Fed to the model in a pass whose result was dropped."""
    fed: int
    """Fed to the model in all, drafts and what preemption made it compute again included."""


class Speculation(msgspec.Struct, frozen=True):
    """What drafts did."""

    drafted: int
    accepted: int
    accept_rate: float
    """Accepted over drafted; 0 where nothing was drafted."""
    tokens_per_round: float
    """Tokens emitted per round of a sequence: 1 without drafts, at most one more than a draft has layers."""
    nodes_per_round: float
    """Tokens drafted per round: of trees, nodes."""
    most_nodes: int
    """Of a draft: as configured, or as many as were found to pay. 0 where nothing was drafted."""
    rounds: int
    drafted_by_position: list[int]
    accepted_by_position: list[int]


class Blocks(msgspec.Struct, frozen=True):
    """The pool at the end, and its fullest moment. `free + evictable + held == total`."""

    total: int
    block_tokens: int
    peak_held: int
    free: int
    evictable: int
    """Without an owner, their content still known to the prefix cache."""
    held: int
    leaked: int
    """Held although every request has ended."""


class Audit(msgspec.Struct, frozen=True):
    """What was checked, and what was found wrong."""

    checks: int
    violations: int
    outputs_compared: int
    outputs_different: int


class Histogram(msgspec.Struct, frozen=True):
    """Counts between edges that grow by a constant factor: `counts[i]` lie in `[edges[i], edges[i + 1])`."""

    edges: list[float]
    counts: list[int]


class Latency(msgspec.Struct, frozen=True):
    """Milliseconds; None where nothing was measured."""

    count: int
    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    max: float | None
    histogram: Histogram

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Latency":
        """Summarise times given in seconds."""
        ms = np.asarray(seconds, np.float64) * 1e3
        if not len(ms):
            return cls(0, None, None, None, None, None, Histogram([], []))
        p50, p90, p99 = np.percentile(ms, [50, 90, 99]).tolist()
        return cls(len(ms), float(ms.mean()), p50, p90, p99, float(ms.max()), _histogram(ms))


class Latencies(msgspec.Struct, frozen=True):
    """Latencies as the clients saw them that read at once.

    A request that was due at a time counts from then, however late it was submitted; others, from submission.
    """

    late: Latency
    """From when a request was due to its submission; of every client that came at a time. 0 in virtual time."""
    ttft: Latency
    """Time to first token."""
    tpot: Latency
    """Time per output token after the first, of completed requests."""
    itl: Latency
    """Time between two arrivals of tokens; those of one round arrive together."""
    e2e: Latency
    """To the end, of completed requests."""
    percentiles: str = PERCENTILES
    """How they are taken."""


class BlocksBack(msgspec.Struct, frozen=True):
    """From a cancel to the moment the pool has the blocks back, in milliseconds; of sequences that held any."""

    count: int
    p50: float | None
    p99: float | None
    max: float | None


class Cancels(msgspec.Struct, frozen=True):
    """Requests that their clients left, by what the sequence was doing."""

    by_phase: dict[str, int]
    blocks_back_ms: BlocksBack


class Throughput(msgspec.Struct, frozen=True):
    """Per second of the simulation's clock."""

    tokens_per_s: float
    requests_per_s: float


class Baseline(msgspec.Struct, frozen=True):
    """The same requests without drafts, in virtual time."""

    tokens_per_s: float
    virtual_s: float
    speedup: float
    """Tokens a second with drafts over those without; arrivals at times of their own bound both."""
    ttft_p50_ms: float | None
    tpot_p50_ms: float | None
    e2e_p50_ms: float | None


class ReplicaChecks(msgspec.Struct, frozen=True):
    """What was checked in a replica."""

    checks: int
    violations: int


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """One replica, all its engines together."""

    sent: int
    """Requests that the router sent to it; `lost` of them went away with it before their end."""
    lost: int
    completed: int
    crashes: int
    drains: int
    down_s: float
    tokens: Tokens
    spec: Speculation
    blocks: Blocks
    audit: ReplicaChecks
    preemptions: int
    restarts: int
    latency_ms: Latencies
    """Of answers, or parts of them, that came from it."""
    cancel: Cancels
    faults: dict[str, int]
    throughput: Throughput
    steps: int
    messages: int
    digest: str
    series: "Series"


class FleetReport(msgspec.Struct, frozen=True):
    """What became of requests between replicas."""

    balance: float
    """Tokens fed by the replica that fed most, over the mean; 1 is even."""
    retries: int
    """Requests sent again because their replica had gone."""
    repeated: int
    """Tokens that were computed again for that, and not passed on."""
    left_between: int
    """Clients that left while their request was at no replica."""
    replicas: list[Replica]


class Series(msgspec.Struct, frozen=True):
    """Gauges over time, sampled evenly: one list entry per sample. Tokens and passes are counted from the start."""

    time_s: list[float]
    free: list[float]
    evictable: list[float]
    held: list[float]
    running: list[float]
    waiting: list[float]
    emitted: list[float]
    drafted: list[float]
    accepted: list[float]
    passes: list[float]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One simulation. In virtual time everything but `wall_s` is a function of `config` and the files it names."""

    requests: Requests
    tokens: Tokens
    spec: Speculation
    blocks: Blocks
    audit: Audit
    preemptions: int
    restarts: int
    latency_ms: Latencies
    cancel: Cancels
    faults: dict[str, int]
    """How often each kind of planted fault struck."""
    throughput: Throughput
    baseline: Baseline | None
    """None where nothing was drafted, or nobody asked."""
    steps: int
    messages: int
    problems: list[str]
    """What must not be: leaks, violations, differences, failures, a run of which nothing completed."""
    is_broken_off: bool
    """Ended by Ctrl-C: every client left at that moment, and no more came."""
    wall_s: float
    virtual_s: float
    """Seconds of the simulation's own clock; in `--clock wall` those are real ones."""
    digest: str
    """Of the message log: equal digests are equal runs."""
    source: Source | None
    fleet: FleetReport | None
    """None for one engine without a router."""
    config: SimConfig
    series: Series


def milliseconds_back(seconds: Sequence[float]) -> BlocksBack:
    """Summarise how long blocks took to come back, given in seconds."""
    ms = np.asarray(seconds, np.float64) * 1e3
    if not len(ms):
        return BlocksBack(0, None, None, None)
    p50, p99 = np.percentile(ms, [50, 99]).tolist()
    return BlocksBack(len(ms), p50, p99, float(ms.max()))


def _histogram(ms: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Histogram:
    positive = ms[ms > 0]
    low, high = (float(positive.min()), float(positive.max())) if len(positive) else (1.0, 1.0)
    low, high = max(low, high / 1e4), high * (1 + 1e-9)
    if low >= high / 1.02:
        low, high = low / 1.1, high * 1.1
    edges = np.geomspace(low, high, _NUM_BINS + 1)
    counts, _ = np.histogram(np.maximum(ms, edges[0]), edges)
    return Histogram(edges.tolist(), counts.tolist())

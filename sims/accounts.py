"""From what is left of a run to its report."""

from array import array
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

from actors import Counters, EngineStats
from scheduler import EngineConfig
from sims.clients import Crowd, Measures
from sims.config import SimConfig
from sims.fleet.replica import Replica as Kept
from sims.reference import Comparison
from sims.report import (
    Audit,
    Baseline,
    Blocks,
    Cancels,
    FleetReport,
    Latencies,
    Latency,
    Replica,
    ReplicaChecks,
    Report,
    Requests,
    Series,
    Speculation,
    Throughput,
    Tokens,
    milliseconds_back,
)
from sims.workload import Workload


class Logged(Protocol):
    """What a log has counted."""

    @property
    def num_messages(self) -> int:
        """Messages."""

    @property
    def peak_held(self) -> int:
        """Most blocks held."""

    @property
    def blocks_back_s(self) -> "array[float]":
        """From each cancel to the moment the pool had the blocks back."""

    @property
    def digest(self) -> str:
        """Of all messages."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a run when its engines are gone."""

    crowd: Crowd
    log: Logged
    engine: EngineConfig
    stats: EngineStats
    virtual_s: float
    series: Series
    problems: list[str]
    faults: dict[str, int]
    is_broken_off: bool
    fleet: FleetReport | None = None


def make_report(
    config: SimConfig, workload: Workload, run: Outcome, compared: Comparison, without_drafts: Report | None
) -> Report:
    """Make the report of a run, what was compared afterwards, and the same run without drafts."""
    stats, counters, crowd, log = run.stats, run.stats.counters, run.crowd, run.log
    requests = _requests(workload, crowd)
    problems = [*run.problems, *compared.differences, *_nothing_shown(requests, counters, run)]
    if stats.num_violations:
        problems.append(f"the conservation law was found broken {stats.num_violations} times")
    if without_drafts is not None:
        problems += [f"without drafts: {problem}" for problem in without_drafts.problems]
    figures = _figures(run.engine, stats, log, crowd.measures, requests.completed, run.virtual_s)
    throughput: Throughput = figures["throughput"]
    return Report(
        **figures,
        requests=requests,
        audit=Audit(
            checks=stats.num_checks,
            violations=stats.num_violations,
            outputs_compared=compared.num_compared,
            outputs_different=len(compared.differences),
        ),
        faults=run.faults,
        baseline=None if without_drafts is None else _baseline(throughput.tokens_per_s, without_drafts),
        problems=problems,
        is_broken_off=run.is_broken_off,
        wall_s=0.0,
        virtual_s=run.virtual_s,
        source=workload.source,
        fleet=run.fleet,
        config=config,
        series=run.series,
    )


def replica_of(kept: Kept, virtual_s: float) -> Replica:
    """Make the report of one replica."""
    stats = kept.stats()
    completed = sum(stats.counters.num_finished.values())
    return Replica(
        **_figures(kept.engine.config, stats, kept, kept.measures, completed, virtual_s),
        sent=kept.counts["sent"],
        lost=kept.counts["lost"],
        crashes=kept.counts["crashes"],
        drains=kept.counts["drains"],
        completed=completed,
        down_s=kept.down_s,
        audit=ReplicaChecks(stats.num_checks, stats.num_violations),
        faults=kept.faults(),
        series=Series(**kept.gauges.series()),
    )


def _figures(
    config: EngineConfig, stats: EngineStats, log: Logged, measures: Measures, num_completed: int, virtual_s: float
) -> dict[str, Any]:
    """Give the figures that an engine and a fleet have in common."""
    counters = stats.counters
    num_accepted, num_drafted = counters.num_accepted, counters.num_drafted
    k = config.speculative.tree_shape.max_depth if num_drafted else 0
    return {
        "tokens": Tokens(
            prompt=counters.num_prompt_tokens,
            cached=counters.num_cached_tokens,
            emitted=counters.num_emitted_tokens,
            wasted=counters.num_wasted_tokens,
            fed=counters.num_fed_tokens,
        ),
        "spec": Speculation(
            drafted=num_drafted,
            accepted=num_accepted,
            accept_rate=num_accepted / num_drafted if num_drafted else 0.0,
            tokens_per_round=counters.num_emitted_tokens / counters.num_rounds if counters.num_rounds else 0.0,
            nodes_per_round=num_drafted / counters.num_rounds if counters.num_rounds else 0.0,
            most_nodes=config.speculative.k if num_drafted else 0,
            rounds=counters.num_rounds,
            drafted_by_position=counters.drafted_by_position[:k],
            accepted_by_position=counters.accepted_by_position[:k],
        ),
        "blocks": Blocks(
            total=stats.blocks.total,
            block_tokens=config.block_tokens,
            peak_held=log.peak_held,
            free=stats.blocks.free,
            evictable=stats.blocks.evictable,
            held=stats.blocks.held,
            leaked=stats.blocks.held,
        ),
        "preemptions": counters.num_preemptions,
        "restarts": counters.num_restarts,
        "latency_ms": Latencies(
            late=Latency.of(measures.late_s),
            ttft=Latency.of(measures.ttft_s),
            tpot=Latency.of(measures.tpot_s),
            itl=Latency.of(measures.itl_s),
            e2e=Latency.of(measures.e2e_s),
        ),
        "cancel": Cancels(dict(sorted(counters.cancels_by_phase.items())), milliseconds_back(log.blocks_back_s)),
        "throughput": Throughput(
            tokens_per_s=counters.num_emitted_tokens / virtual_s if virtual_s else 0.0,
            requests_per_s=num_completed / virtual_s if virtual_s else 0.0,
        ),
        "steps": counters.num_steps,
        "messages": log.num_messages,
        "digest": log.digest,
    }


def _requests(workload: Workload, crowd: Crowd) -> Requests:
    endings = crowd.endings()
    submitted = endings.total() + crowd.num_refused
    return Requests(
        total=workload.num_requests,
        submitted=submitted,
        completed=endings["stop"] + endings["length"],
        cancelled=endings["cancelled"],
        failed=endings["error"],
        refused=crowd.num_refused,
        stopped=endings["stop"],
        first_refusal=crowd.first_refusal,
        never_submitted=workload.num_requests - submitted,
    )


def _nothing_shown(requests: Requests, counters: Counters, run: Outcome) -> Iterator[str]:
    """Say what keeps a run in which no law was broken from being a success."""
    if (
        requests.completed
        or run.is_broken_off
        or (requests.cancelled == requests.total and counters.num_emitted_tokens)
    ):
        return
    others = ("refused", "failed", "cancelled", "never_submitted")
    bins = ", ".join(f"{getattr(requests, b):,} {b.replace('_', ' ')}" for b in others if getattr(requests, b))
    reason = f"; the first was refused because {requests.first_refusal}" if requests.first_refusal else ""
    yield f"nothing was shown: none of {requests.total:,} requests completed ({bins}){reason}"


def _baseline(tokens_per_s: float, plain: Report) -> Baseline:
    latency, plain_per_s = plain.latency_ms, plain.throughput.tokens_per_s
    return Baseline(
        tokens_per_s=plain_per_s,
        virtual_s=plain.virtual_s,
        speedup=tokens_per_s / plain_per_s if plain_per_s else 0.0,
        ttft_p50_ms=latency.ttft.p50,
        tpot_p50_ms=latency.tpot.p50,
        e2e_p50_ms=latency.e2e.p50,
    )

"""A whole simulation, from its configuration to its report."""

import asyncio
import copy
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import anyio.to_thread
import msgspec

from actors import Counters, Engine, EngineStats
from actors.messages import Message, Step
from kvpool import KvPoolError
from scheduler import NO_DRAFTS, EngineConfig, PassCost
from sims.clients import Crowd
from sims.clock import run
from sims.config import SimConfig
from sims.faults import ByRate, faulty_passes, plant
from sims.gauges import Gauges
from sims.log import MessageLog
from sims.reference import Comparison
from sims.report import (
    Audit,
    Baseline,
    Blocks,
    Cancels,
    Latencies,
    Latency,
    Report,
    Requests,
    Series,
    Speculation,
    Throughput,
    Tokens,
    milliseconds_back,
)
from sims.timeline import Timeline
from sims.workload import Workload

T = TypeVar("T")

Phase = Literal["requests", "comparison", "baseline"]

_LATE_S = 1.0  # when a pass that hangs completes after all
_MOST_LOOKS = 1000  # at an engine that should be coming to rest


class Watch(Protocol):
    """Follows a simulation as it goes."""

    def __call__(self, phase: Phase, num_done: int, num_all: int, stats: EngineStats | None) -> None:
        """Look: how far a phase is, and the engine's numbers while one runs."""


class _Run(NamedTuple):
    """What is left of a run when its engine is gone."""

    crowd: Crowd
    engine: EngineConfig
    stats: EngineStats
    virtual_s: float
    series: Series
    problems: list[str]
    faults: dict[str, int]
    is_broken_off: bool


def simulate(config: SimConfig, *, watch: Watch | None = None, timeline: Timeline | None = None) -> Report:
    """Run a simulation. `watch` is called as it goes; `timeline` is given all that happens.

    SIGINT, where Python's own handler has it, breaks the run off: every client leaves, and the report is of what was.
    Raises SimError for a file that cannot be used.
    """
    started_s = time.perf_counter()
    workload = Workload(config)
    log = MessageLog(config.engine.num_blocks)
    main = _run(config, workload, log, watch and partial(watch, "requests"), timeline)
    order = config.seed if config.shuffle else None
    outcome = run(main, order) if config.clock == "virtual" else asyncio.run(main)
    compared, without_drafts = Comparison(), None
    if not outcome.is_broken_off:
        try:
            compared.go_on(
                outcome.crowd.compared,
                workload.model(),
                workload.proposer(),
                outcome.engine,
                watch and partial(watch, "comparison"),
            )
            if config.baseline:
                without_drafts = _without_drafts(config, watch)
        except KeyboardInterrupt:
            outcome = outcome._replace(is_broken_off=True)
    report = _report(config, workload, log, outcome, compared, without_drafts)
    return msgspec.structs.replace(report, wall_s=time.perf_counter() - started_s)


def _without_drafts(config: SimConfig, watch: Watch | None) -> Report:
    plain = msgspec.structs.replace(
        config,
        engine=msgspec.structs.replace(config.engine, speculative=NO_DRAFTS),
        verify="resample",
        baseline=False,
        compare=0,
    )
    told = None if watch is None else lambda _, *numbers: watch("baseline", *numbers)
    report = simulate(plain, watch=told)
    if report.is_broken_off:
        raise KeyboardInterrupt
    return report


async def _run(
    config: SimConfig, workload: Workload, log: MessageLog, watch: Callable[..., None] | None, timeline: Timeline | None
) -> _Run:
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    passes = _Passes(config)
    #   only in virtual time is the cost of a pass known beforehand
    cost = None
    if config.clock == "virtual":
        costs = config.cost
        cost = PassCost.linear(costs.seconds(0), costs.per_token_us / 1e6, costs.draft_seconds(1))
    agenda = ByRate(config.faults, config.seed)
    run_pass = passes.run if config.faults.are_none else faulty_passes(passes.run, agenda, _LATE_S)
    engine = Engine(
        workload.model(),
        config.engine,
        proposer=workload.proposer(),
        tap=log,
        run_pass=run_pass,
        pass_cost=cost,
    )
    if not config.faults.are_none:
        plant(engine, agenda)
    async with engine:
        crowd = Crowd(config, engine, log)
        gauges = Gauges(engine.stats)
        log.listeners.append(gauges)
        if timeline is not None:
            timeline.read = engine.stats
            log.listeners.append(timeline)
        if watch is not None:

            def look(time_s: float, sender: str, receiver: str, message: Message) -> None:
                del time_s, sender, receiver
                if isinstance(message, Step):
                    watch(crowd.num_gone, workload.num_requests, engine.stats())

            log.listeners.append(look)
        is_broken_off = await _is_broken_off(crowd.come_and_go(workload))
        problems = await _come_to_rest(config, engine, crowd, log)
        virtual_s = loop.time() - started_s
        gauges.sample(loop.time())
        stats = msgspec.structs.replace(engine.stats(), counters=copy.copy(engine.stats().counters))
    if engine.failure is not None:
        problems.append(f"the engine gave up: {engine.failure}")
    problems = crowd.problems + passes.errors + problems
    return _Run(
        crowd,
        engine.config,
        stats,
        virtual_s,
        Series(**gauges.series()),
        problems,
        {str(kind): count for kind, count in agenda.struck.items()},
        is_broken_off,
    )


async def _is_broken_off(traffic: Coroutine[Any, Any, None]) -> bool:
    """See the traffic to its end, or to the SIGINT at which the event loop cancels the task that waits for it."""
    task = asyncio.current_task()
    assert task is not None
    try:
        await traffic
    except asyncio.CancelledError:
        task.uncancel()
        return True
    return False


async def _come_to_rest(config: SimConfig, engine: Engine, crowd: Crowd, log: MessageLog) -> list[str]:
    """Wait until the engine has seen everybody leave, and look at what it still holds."""
    for _ in range(_MOST_LOOKS):
        stats = engine.stats()
        if not stats.num_running + stats.num_waiting:
            break
        await asyncio.sleep(config.cost.seconds(config.engine.max_batch_tokens))
    else:
        return [f"{stats.num_running} sequences run and {stats.num_waiting} wait although every client has gone"]
    problems = []
    if held := engine.stats().blocks.held:
        problems += [f"request {crowd.request_id(seq)} still holds blocks after its end" for seq in sorted(log.holding)]
        problems.append(f"{held} blocks are held after every request has ended")
    try:
        engine.check()
    except KvPoolError as error:
        problems.append(f"the pool does not add up at the end: {error}")
    return problems


class _Passes:
    """Carries out forward passes, and remembers what they raised: the engine would hide it behind a restart."""

    def __init__(self, config: SimConfig) -> None:
        self._config = config
        self.errors: list[str] = []

    async def run(self, work: Callable[[], T], num_tokens: int, num_layers: int = 0) -> T:
        """Run a pass: in virtual time here and now, then let its time go by; else in a worker thread."""
        try:
            if self._config.clock == "wall":
                return await anyio.to_thread.run_sync(work)
            result = work()
        except Exception as error:
            self.errors.append(f"a pass failed: {type(error).__name__}: {error}")
            raise
        cost = self._config.cost
        await asyncio.sleep(cost.draft_seconds(num_layers) if num_layers else cost.seconds(num_tokens))
        return result


def _report(
    config: SimConfig,
    workload: Workload,
    log: MessageLog,
    run: _Run,
    compared: Comparison,
    without_drafts: Report | None,
) -> Report:
    stats, counters, crowd = run.stats, run.stats.counters, run.crowd
    num_accepted, num_drafted = counters.num_accepted, counters.num_drafted
    k = run.engine.speculative.tree_shape.max_depth if num_drafted else 0
    virtual_s = run.virtual_s
    requests = _requests(workload, crowd)
    problems = [*run.problems, *compared.differences, *_nothing_shown(requests, counters, run)]
    if stats.num_violations:
        problems.append(f"the conservation law was found broken {stats.num_violations} times")
    if without_drafts is not None:
        problems += [f"without drafts: {problem}" for problem in without_drafts.problems]
    return Report(
        requests=requests,
        tokens=Tokens(
            prompt=counters.num_prompt_tokens,
            cached=counters.num_cached_tokens,
            emitted=counters.num_emitted_tokens,
            wasted=counters.num_wasted_tokens,
            fed=counters.num_fed_tokens,
        ),
        spec=Speculation(
            drafted=num_drafted,
            accepted=num_accepted,
            accept_rate=num_accepted / num_drafted if num_drafted else 0.0,
            tokens_per_round=counters.num_emitted_tokens / counters.num_rounds if counters.num_rounds else 0.0,
            nodes_per_round=num_drafted / counters.num_rounds if counters.num_rounds else 0.0,
            most_nodes=run.engine.speculative.k if num_drafted else 0,
            rounds=counters.num_rounds,
            drafted_by_position=counters.drafted_by_position[:k],
            accepted_by_position=counters.accepted_by_position[:k],
        ),
        blocks=Blocks(
            total=stats.blocks.total,
            block_tokens=config.engine.block_tokens,
            peak_held=log.peak_held,
            free=stats.blocks.free,
            evictable=stats.blocks.evictable,
            held=stats.blocks.held,
            leaked=stats.blocks.held,
        ),
        audit=Audit(
            checks=stats.num_checks,
            violations=stats.num_violations,
            outputs_compared=compared.num_compared,
            outputs_different=len(compared.differences),
        ),
        preemptions=counters.num_preemptions,
        restarts=counters.num_restarts,
        latency_ms=Latencies(
            late=Latency.of(crowd.measures.late_s),
            ttft=Latency.of(crowd.measures.ttft_s),
            tpot=Latency.of(crowd.measures.tpot_s),
            itl=Latency.of(crowd.measures.itl_s),
            e2e=Latency.of(crowd.measures.e2e_s),
        ),
        cancel=Cancels(dict(sorted(counters.cancels_by_phase.items())), milliseconds_back(log.blocks_back_s)),
        faults=run.faults,
        throughput=Throughput(
            tokens_per_s=counters.num_emitted_tokens / virtual_s if virtual_s else 0.0,
            requests_per_s=requests.completed / virtual_s if virtual_s else 0.0,
        ),
        baseline=None
        if without_drafts is None
        else _baseline(counters.num_emitted_tokens / virtual_s if virtual_s else 0.0, without_drafts),
        steps=counters.num_steps,
        messages=log.num_messages,
        problems=problems,
        is_broken_off=run.is_broken_off,
        wall_s=0.0,
        virtual_s=virtual_s,
        digest=log.digest,
        source=workload.source,
        config=config,
        series=run.series,
    )


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


def _nothing_shown(requests: Requests, counters: Counters, run: _Run) -> Iterator[str]:
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

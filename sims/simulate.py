"""A whole simulation, from its configuration to its report."""

import asyncio
import copy
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

import anyio.to_thread
import msgspec

from actors import Engine, EngineStats
from actors.messages import Message, Step
from kvpool import KvPoolError
from scheduler import PassCost
from sims.clients import Crowd
from sims.clock import run
from sims.config import SimConfig
from sims.faults import ByRate, faulty_passes, plant
from sims.gauges import Gauges
from sims.log import MessageLog
from sims.reference import differences
from sims.report import (
    Audit,
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

_LATE_S = 1.0  # when a pass that hangs completes after all
_MOST_LOOKS = 1000  # at an engine that should be coming to rest


class Watch(Protocol):
    """Follows a simulation as it goes."""

    def __call__(self, num_gone: int, num_requests: int, stats: EngineStats) -> None:
        """Look as a pass begins: clients that have gone, of how many, and the engine's numbers."""


class _Run(NamedTuple):
    """What is left of a run when its engine is gone."""

    crowd: Crowd
    stats: EngineStats
    virtual_s: float
    series: Series
    problems: list[str]
    faults: dict[str, int]


def simulate(config: SimConfig, *, watch: Watch | None = None, timeline: Timeline | None = None) -> Report:
    """Run a simulation. `watch` is called at every pass; `timeline` is given all that happens.

    Raises SimError for a file that cannot be used.
    """
    started_s = time.perf_counter()
    workload = Workload(config)
    log = MessageLog(config.engine.num_blocks)
    main = _run(config, workload, log, watch, timeline)
    order = config.seed if config.shuffle else None
    outcome = run(main, order) if config.clock == "virtual" else asyncio.run(main)
    different = differences(outcome.crowd.compared, workload.model(), config.engine)
    report = _report(config, workload, log, outcome, different)
    return msgspec.structs.replace(report, wall_s=time.perf_counter() - started_s)


async def _run(
    config: SimConfig, workload: Workload, log: MessageLog, watch: Watch | None, timeline: Timeline | None
) -> _Run:
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    passes = _Passes(config)
    #   only in virtual time is the cost of a pass known beforehand
    cost = (
        PassCost.linear(config.cost.seconds(0), config.cost.per_token_us / 1e6) if config.clock == "virtual" else None
    )
    agenda = ByRate(config.faults, config.seed)
    run_pass = passes.run if config.faults.are_none else faulty_passes(passes.run, agenda, _LATE_S)
    engine = Engine(workload.model(), config.engine, tap=log, run_pass=run_pass, pass_cost=cost)
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
        await crowd.come_and_go(workload)
        problems = await _come_to_rest(config, engine, crowd, log)
        virtual_s = loop.time() - started_s
        gauges.sample(loop.time())
        stats = msgspec.structs.replace(engine.stats(), counters=copy.copy(engine.stats().counters))
    if engine.failure is not None:
        problems.append(f"the engine gave up: {engine.failure}")
    problems = crowd.problems + passes.errors + problems
    return _Run(
        crowd,
        stats,
        virtual_s,
        Series(**gauges.series()),
        problems,
        {str(kind): count for kind, count in agenda.struck.items()},
    )


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

    async def run(self, work: Callable[[], T], num_tokens: int) -> T:
        """Run a pass: in virtual time here and now, then let its time go by; else in a worker thread."""
        try:
            if self._config.clock == "wall":
                return await anyio.to_thread.run_sync(work)
            result = work()
        except Exception as error:
            self.errors.append(f"a pass failed: {type(error).__name__}: {error}")
            raise
        await asyncio.sleep(self._config.cost.seconds(num_tokens))
        return result


def _report(config: SimConfig, workload: Workload, log: MessageLog, run: _Run, different: list[str]) -> Report:
    stats, counters, crowd = run.stats, run.stats.counters, run.crowd
    num_completed = sum(counters.num_finished.values())
    num_accepted, num_drafted = counters.num_accepted, counters.num_drafted
    k = config.engine.speculative.k if num_drafted else 0
    problems = [*run.problems, *different]
    if stats.num_violations:
        problems.append(f"the conservation law was found broken {stats.num_violations} times")
    virtual_s = run.virtual_s
    return Report(
        requests=Requests(
            submitted=counters.num_submitted + crowd.num_refused,
            completed=num_completed,
            cancelled=counters.num_cancelled,
            failed=counters.num_failed,
            refused=crowd.num_refused,
            stopped=counters.num_finished["stop"],
            first_refusal=crowd.first_refusal,
        ),
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
            outputs_compared=len(crowd.compared),
            outputs_different=len(different),
        ),
        preemptions=counters.num_preemptions,
        restarts=counters.num_restarts,
        latency_ms=Latencies(
            ttft=Latency.of(crowd.measures.ttft_s),
            tpot=Latency.of(crowd.measures.tpot_s),
            itl=Latency.of(crowd.measures.itl_s),
            e2e=Latency.of(crowd.measures.e2e_s),
        ),
        cancel=Cancels(dict(sorted(counters.cancels_by_phase.items())), milliseconds_back(log.blocks_back_s)),
        faults=run.faults,
        throughput=Throughput(
            tokens_per_s=counters.num_emitted_tokens / virtual_s if virtual_s else 0.0,
            requests_per_s=num_completed / virtual_s if virtual_s else 0.0,
        ),
        steps=counters.num_steps,
        messages=log.num_messages,
        problems=problems,
        wall_s=0.0,
        virtual_s=virtual_s,
        digest=log.digest,
        source=workload.source,
        config=config,
        series=run.series,
    )

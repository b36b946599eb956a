"""A whole simulation, from its configuration to its report."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Literal, Protocol

import msgspec

from actors import Engine, EngineStats, Stream
from actors.messages import Message, Step
from scheduler import NO_DRAFTS
from sims.accounts import Outcome, make_report, replica_of
from sims.clients import Crowd
from sims.clock import run
from sims.config import SimConfig
from sims.fleet.door import FleetDoor
from sims.gauges import Gauges
from sims.reference import Comparison
from sims.report import FleetReport, Report, Series
from sims.rig import Rig
from sims.timeline import Timeline
from sims.workload import Client, Workload

Phase = Literal["requests", "comparison", "baseline"]


class Watch(Protocol):
    """Follows a simulation as it goes."""

    def __call__(self, phase: Phase, num_done: int, num_all: int, stats: EngineStats | None) -> None:
        """Look: how far a phase is, and the engine's numbers while one runs."""


def simulate(config: SimConfig, *, watch: Watch | None = None, timeline: Timeline | None = None) -> Report:
    """Run a simulation. `watch` is called as it goes; `timeline` is given all that happens.

    SIGINT, where Python's own handler has it, breaks the run off: every client leaves, and the report is of what was.
    Raises SimError for a file that cannot be used.
    """
    started_s = time.perf_counter()
    workload = Workload(config)
    told = watch and partial(watch, "requests")
    main = _run(config, workload, told, timeline) if config.fleet is None else _run_fleet(config, workload, told)
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
            outcome = msgspec.structs.replace(outcome, is_broken_off=True)
    report = make_report(config, workload, outcome, compared, without_drafts)
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


class _OneEngine(msgspec.Struct):
    """Takes clients' requests to an engine."""

    engine: Engine

    @property
    def failure(self) -> str | None:
        """Why it gave up."""
        return self.engine.failure

    def submit(self, client: Client) -> Stream:
        """Submit a client's request."""
        return self.engine.submit(client.request)


async def _run(
    config: SimConfig, workload: Workload, watch: Callable[..., None] | None, timeline: Timeline | None
) -> Outcome:
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    rig = Rig(config, workload)
    engine, log = rig.engine, rig.log
    async with engine:
        crowd = Crowd(config, _OneEngine(engine), log)
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
        problems = await rig.come_to_rest(crowd.request_id)
        virtual_s = loop.time() - started_s
        gauges.sample(loop.time())
        stats = engine.stats()
    if engine.failure is not None:
        problems.append(f"the engine gave up: {engine.failure}")
    return Outcome(
        crowd=crowd,
        log=log,
        engine=engine.config,
        stats=stats,
        virtual_s=virtual_s,
        series=Series(**gauges.series()),
        problems=crowd.problems + rig.passes.errors + problems,
        faults=rig.faults(),
        is_broken_off=is_broken_off,
    )


async def _run_fleet(config: SimConfig, workload: Workload, watch: Callable[..., None] | None) -> Outcome:
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    door = FleetDoor(config, workload)
    crowd = Crowd(config, door, door, door.measures_of)
    gauges = Gauges(door.stats)

    def look(time_s: float, sender: str, receiver: str, message: Message) -> None:
        gauges(time_s, sender, receiver, message)
        if watch is not None and isinstance(message, Step):
            watch(crowd.num_gone, workload.num_requests, door.stats())

    async with asyncio.TaskGroup() as group:
        for replica in door.replicas:
            replica.listeners.append(look)
            group.create_task(replica.keep(), name=f"replica {replica.index}")
        await asyncio.sleep(0)  # each has made its engine
        is_broken_off = await _is_broken_off(crowd.come_and_go(workload))
        virtual_s = loop.time() - started_s
        for replica in door.replicas:
            replica.stop()
    gauges.sample(loop.time())
    stats = door.stats()
    replicas = [replica_of(replica, virtual_s) for replica in door.replicas]
    fed = [replica.tokens.fed for replica in replicas]
    moved = door.moved
    fleet = FleetReport(
        balance=max(fed) * len(fed) / sum(fed) if any(fed) else 1.0,
        retries=door.num_retries,
        repeated=sum(routed.num_repeated for routed in moved),
        left_between=sum(routed.has_left_between for routed in moved),
        replicas=replicas,
    )
    texts = [f"request {routed.request.id}: {routed.diverged}" for routed in moved if routed.diverged is not None]
    stats.counters.num_emitted_tokens -= fleet.repeated
    if fleet.left_between:
        stats.counters.cancels_by_phase["between"] = fleet.left_between
    return Outcome(
        crowd=crowd,
        log=door,
        engine=door.replicas[0].engine.config,
        stats=stats,
        virtual_s=virtual_s,
        series=Series(**gauges.series()),
        problems=crowd.problems + texts + [problem for replica in door.replicas for problem in replica.problems],
        faults=dict(sum((Counter(replica.faults) for replica in replicas), Counter())),
        is_broken_off=is_broken_off,
        fleet=fleet,
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

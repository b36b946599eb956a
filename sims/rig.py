"""One engine under observation: what it runs on, and everything that looks at it."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread

from actors import Engine
from kvpool import KvPoolError
from scheduler import PassCost
from sims.config import SimConfig
from sims.faults import ByRate, faulty_passes, plant
from sims.log import MessageLog
from sims.workload import Workload

T = TypeVar("T")

_LATE_S = 1.0  # when a pass that hangs completes after all
_MOST_LOOKS = 1000  # at an engine that should be coming to rest


class Rig:
    """An engine, not yet entered, with its message log, what its passes raise and the faults in it.

    Of several engines, `name` keeps the faults of each apart.
    """

    def __init__(self, config: SimConfig, workload: Workload, name: str = "") -> None:
        self._config = config
        self.log = MessageLog(config.engine.num_blocks)
        self.passes = _Passes(config)
        #   only in virtual time is the cost of a pass known beforehand
        cost = None
        if config.clock == "virtual":
            costs = config.cost
            cost = PassCost.linear(costs.seconds(0), costs.per_token_us / 1e6, costs.draft_seconds(1))
        self.agenda = ByRate(config.faults, f"{config.seed}{name}")
        self.engine = Engine(
            workload.model(),
            config.engine,
            proposer=workload.proposer(),
            tap=self.log,
            run_pass=self.passes.run
            if config.faults.are_none
            else faulty_passes(self.passes.run, self.agenda, _LATE_S),
            pass_cost=cost,
        )
        if not config.faults.are_none:
            plant(self.engine, self.agenda)

    def faults(self) -> dict[str, int]:
        """Count how often each kind of planted fault struck."""
        return {str(kind): count for kind, count in self.agenda.struck.items()}

    async def come_to_rest(self, request_id: Callable[[int], str]) -> list[str]:
        """Wait until the engine has seen everybody leave, and tell what it still holds or what does not add up."""
        engine = self.engine
        for _ in range(_MOST_LOOKS):
            stats = engine.stats()
            if not stats.num_running + stats.num_waiting:
                break
            await asyncio.sleep(self._config.cost.seconds(self._config.engine.max_batch_tokens))
        else:
            return [f"{stats.num_running} sequences run and {stats.num_waiting} wait although every client has gone"]
        problems = []
        if held := engine.stats().blocks.held:
            problems += [
                f"request {request_id(seq)} still holds blocks after its end" for seq in sorted(self.log.holding)
            ]
            problems.append(f"{held} blocks are held after every request has ended")
        return problems + self.check()

    def check(self) -> list[str]:
        """Tell what of the pool does not add up now."""
        try:
            self.engine.check()
        except KvPoolError as error:
            return [f"the pool does not add up at the end: {error}"]
        return []


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
        await asyncio.sleep((cost.seconds(num_tokens) if num_tokens else 0.0) + cost.draft_seconds(num_layers))
        return result

"""A replica: one engine after another, as it crashes, drains and comes back."""

import asyncio
import contextlib
import hashlib
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import msgspec

from actors import Counters, Engine, EngineStats
from actors.messages import Message
from kvpool import PoolStats
from sims.clients import Measures
from sims.config import SimConfig
from sims.fleet.config import Outage
from sims.fleet.routing import Router
from sims.fleet.stream import RoutedStream
from sims.gauges import Gauges
from sims.log import Listener
from sims.rig import Rig
from sims.workload import Workload, request_id

_CHECK_S = 0.01  # how often a draining replica is looked at
_RESTART_S = 10.0  # an engine that has given up is replaced after so long


class Replica:
    """Takes requests while it is up, and tells the router of its queue.

    `lost` is called with the requests that its engine took along, when that is gone; `came_up` when it takes
    requests again.
    """

    def __init__(
        self,
        index: int,
        config: SimConfig,
        workload: Workload,
        router: Router,
        lost: Callable[[list[RoutedStream]], None],
        came_up: Callable[[], None],
    ) -> None:
        assert config.fleet is not None
        self.index = index
        self.measures = Measures()
        self.rigs: list[Rig] = []
        """Its engines so far, each with what looked at it."""
        self.problems: list[str] = []
        self.counts = {"sent": 0, "lost": 0, "crashes": 0, "drains": 0}
        self.down_s = 0.0
        self.is_able = False
        """Takes requests."""
        self.gauges = Gauges(self.stats)
        self.listeners: list[Listener] = []
        self._config = config
        self._fleet = config.fleet
        self._workload = workload
        self._router = router
        self._lost = lost
        self._came_up = came_up
        self._open: dict[int, RoutedStream] = {}
        self._by_seq: list[int] = []  # of the engine that runs: the request's place in the workload
        self._has_sample = False
        self._crash: Outage | None = None
        self._drain: Outage | None = None
        self._over = asyncio.Event()
        self._news = asyncio.Event()

    #   all its engines together, as one log

    @property
    def num_messages(self) -> int:
        """Messages."""
        return sum(rig.log.num_messages for rig in self.rigs)

    @property
    def peak_held(self) -> int:
        """Most blocks held at any moment."""
        return max(rig.log.peak_held for rig in self.rigs)

    @property
    def blocks_back_s(self) -> "array[float]":
        """From each cancel to the moment the pool had the blocks back."""
        return array("d", chain.from_iterable(rig.log.blocks_back_s for rig in self.rigs))

    @property
    def digest(self) -> str:
        """Of the messages in its engines."""
        whole = hashlib.blake2b(digest_size=16)
        for rig in self.rigs:
            whole.update(rig.log.digest.encode())
        return whole.hexdigest()

    def faults(self) -> dict[str, int]:
        """Count how often each kind of planted fault struck."""
        return dict(sum((Counter(rig.faults()) for rig in self.rigs), Counter()))

    @property
    def engine(self) -> Engine:
        """The engine that runs, or ran last."""
        return self.rigs[-1].engine

    def submit(self, routed: RoutedStream) -> None:
        """Take a request; raises what an engine raises."""
        rig = self.rigs[-1]
        stream = rig.engine.submit(routed.request)
        self._by_seq.append(routed.seq)
        self.counts["sent"] += 1
        self._open[routed.seq] = routed
        routed.placed(self.index, rig.engine, stream)
        if routed.watcher is not None:
            rig.log.watch(stream.seq, routed.watcher)

    @property
    def _is_over(self) -> bool:
        return self._over.is_set()

    async def keep(self) -> None:
        """Run engines until it is to `stop`, and go away and come back as the schedule says."""
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        timers = [
            loop.call_at(start_s + outage.at_s, self._strike, outage, kind)
            for kind, outages in (("crashes", self._fleet.crashes), ("drains", self._fleet.drains))
            for outage in outages
            if outage.replica == self.index
        ]
        try:
            while not self._is_over:
                down_s = await self._run_engine()
                gone_s = loop.time()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(down_s):
                        await self._over.wait()
                self.down_s += loop.time() - gone_s
        finally:
            for timer in timers:
                timer.cancel()

    def stop(self) -> None:
        """End the engine that runs, once it is at rest, and start no other."""
        self._over.set()
        self._news.set()

    def stats(self) -> EngineStats:
        """Give the numbers of all its engines together, and the blocks of the last."""
        return msgspec.structs.replace(
            total([rig.engine.stats() for rig in self.rigs]), blocks=self.engine.stats().blocks
        )

    async def _run_engine(self) -> float:
        """Run an engine until it is gone; for how many seconds there is none then."""
        rig = Rig(self._config, self._workload, f" {self.index}.{len(self.rigs)}")
        self.rigs.append(rig)
        self._by_seq.clear()
        rig.log.listeners += [self.gauges, self._hear, *self.listeners]
        async with rig.engine:
            for task in rig.engine._tasks:
                task.add_done_callback(lambda _: self._news.set())
            self.is_able = True
            self._came_up()
            await self._until_gone(rig)
            self.is_able = False
            if self._crash is not None:
                #   what it leaves behind adds up in the middle of everything
                self.problems += rig.check()
                for task in rig.engine._tasks:
                    task.cancel()
            elif rig.engine.failure is None:
                self.problems += await rig.come_to_rest(lambda seq: request_id(self._by_seq[seq]))
        self._router.forget(self.index)
        self._give_back(rig)
        outage = self._crash or self._drain
        self._crash = self._drain = None  # what strikes a replica that is away strikes nothing
        return _RESTART_S if outage is None else outage.down_s

    async def _until_gone(self, rig: Rig) -> None:
        """Wait for a crash, or until there is nothing left to do where a drain or the end asks for that."""
        while self._crash is None and rig.engine.failure is None:
            if self._is_over:
                return
            if self._drain is not None:
                self.is_able = False
                if not len(self._still_open()):
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_CHECK_S):
                        await self._news.wait()
            else:
                await self._news.wait()
            self._news.clear()

    def _give_back(self, rig: Rig) -> None:
        """Hand over what the engine took along."""
        for routed in self._open.values():
            routed.close_attempt()
        lost = [routed for routed in self._open.values() if routed.is_between]
        self._open.clear()
        self.counts["lost"] += len(lost)
        self.problems += rig.passes.errors
        if rig.engine.failure is not None and self._crash is None:
            self.counts["crashes"] += 1
            if self._config.faults.are_none:
                self.problems.append(f"replica {self.index} gave up: {rig.engine.failure}")
        if held := rig.engine.stats().blocks.held:
            self.problems.append(f"replica {self.index}: {held} blocks are held after its end")
        self._lost(lost)

    def _strike(self, outage: Outage, kind: str) -> None:
        """Go away, unless it is away already."""
        if not self.is_able and not (kind == "crashes" and self._drain is not None):
            return
        self.counts[kind] += 1
        if kind == "crashes":
            self._crash = outage
        else:
            self._drain = outage
        self.is_able = False
        self._news.set()

    def _still_open(self) -> dict[int, RoutedStream]:
        for seq, routed in list(self._open.items()):
            stream = routed.engine_stream
            if stream is not None and stream.finish_reason is not None:
                routed.close_attempt()
                del self._open[seq]
        return self._open

    def _num_to_feed(self) -> int:
        """Tokens that its next passes have to feed: of prompts what is not cached, of others one."""
        num = 0
        for routed in self._still_open().values():
            stream = routed.engine_stream
            if stream is not None:
                is_prompt = not stream.num_emitted
                num += len(routed.request.prompt) - (stream.num_cached_tokens or 0) if is_prompt else 1
        return num

    def _hear(self, time_s: float, sender: str, receiver: str, message: Message) -> None:
        """Let the router know soon that something has changed."""
        del time_s, sender, receiver, message
        if not self._has_sample:
            self._has_sample = True
            asyncio.get_running_loop().call_later(self._fleet.lag_s, self._tell)

    def _tell(self) -> None:
        self._has_sample = False
        if self.is_able:
            self._router.told(self.index, self._num_to_feed(), asyncio.get_running_loop().time())


def total(several: Sequence[EngineStats]) -> EngineStats:
    """Add up what engines say."""
    numbers = {
        field: sum(getattr(stats, field) for stats in several)
        for field in EngineStats.__struct_fields__
        if field not in ("blocks", "counters")
    }
    counters = Counters()
    for field in Counters.__struct_fields__:
        values = [getattr(stats.counters, field) for stats in several]
        if isinstance(values[0], dict):
            added: Any = {key: sum(v.get(key, 0) for v in values) for key in dict.fromkeys(chain(*values))}
        elif isinstance(values[0], list):
            added = [sum(column) for column in zip(*values, strict=True)]
        else:
            added = sum(values)
        setattr(counters, field, added)
    blocks = PoolStats(*(sum(column) for column in zip(*(stats.blocks for stats in several), strict=True)))
    return EngineStats(**numbers, blocks=blocks, counters=counters)

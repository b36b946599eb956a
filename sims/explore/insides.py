"""The engine's insides, as the checks see them: the one place that knows its private names."""

import asyncio

import numpy as np
from numpy.typing import NDArray

from actors import Engine
from actors.actor import Actor
from actors.blocks import BlockManager
from actors.runner import ModelRunner
from actors.scheduling import SchedulerActor
from actors.stream import OpenStreams
from kvpool import KvPool, Ledger
from kvpool.ledger import _Sequence as Held
from kvpool.prefix import _Node as Node
from scheduler import Scheduler, Sequence


class Insides:
    """An engine, opened up."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.scheduler: SchedulerActor = engine._scheduler
        self.blocks: BlockManager = engine._blocks
        self.runner: ModelRunner = engine._runner
        self.streams: OpenStreams = engine._streams

    @property
    def actors(self) -> tuple[Actor, ...]:
        """All three."""
        return (self.scheduler, self.blocks, self.runner)

    @property
    def tasks(self) -> "dict[str, asyncio.Task[None]]":
        """What runs each actor, by its name."""
        return {task.get_name(): task for task in self.engine._tasks}

    @property
    def is_over(self) -> bool:
        """The engine has ended: no block is given to anyone any more."""
        return self.engine._is_over

    @property
    def has_suspects(self) -> bool:
        """Sequences are tried alone, because a pass over them raised."""
        return bool(self.scheduler._suspects._cases)

    @property
    def core(self) -> Scheduler:
        """The scheduler's policy and queues."""
        return self.scheduler.core

    @property
    def live(self) -> dict[int, Sequence]:
        """Sequences that have not ended."""
        return self.scheduler._live

    @property
    def open_seqs(self) -> tuple[int, ...]:
        """Sequences whose streams have not ended."""
        return tuple(self.streams._by_seq)

    @property
    def last_seq(self) -> int:
        """The latest sequence that the scheduler has taken in."""
        return self.scheduler._last_seq

    @property
    def available(self) -> int:
        """What the scheduler thinks the pool could hand out."""
        return self.scheduler._available

    @property
    def leftovers(self) -> dict[str, int]:
        """What the scheduler still has to do or to remember, by name."""
        scheduler, core = self.scheduler, self.core
        return {
            "sequences live": len(scheduler._live),
            "sequences running": len(core.running),
            "sequences waiting": len(core.waiting),
            "sequences parked": len(core.parked),
            "streams to end": len(scheduler._ending),
            "sequences to release": len(scheduler._releases),
            "cancels of unknown sequences": len(scheduler._cancelled_unseen),
            "open streams": len(self.streams),
            "messages undelivered": sum(len(actor.mailbox) for actor in self.actors),
        }

    @property
    def ledger(self) -> Ledger:
        """The block tables."""
        return self.blocks.ledger

    @property
    def pool(self) -> KvPool:
        """The blocks."""
        return self.blocks.ledger.pool

    @property
    def held(self) -> dict[int, Held]:
        """The block table, and how far it is cached and reserved, of each sequence that has one."""
        return self.ledger._sequences

    @property
    def nodes(self) -> dict[int, Node]:
        """The prefix index: where in the trie each indexed block is."""
        return self.pool._index._nodes

    @property
    def proposed(self) -> NDArray[np.uint64]:
        """The checksum in every slot of the proposer's memory, like `written`."""
        sums: NDArray[np.uint64] = self.runner._proposer._memory._sums  # type: ignore[union-attr]  # a fake one
        return sums

    @property
    def written(self) -> NDArray[np.uint64]:
        """The checksum in every slot of the model's memory, `[num_blocks, block_tokens]`."""
        sums: NDArray[np.uint64] = self.runner._model._memory._sums  # type: ignore[attr-defined]  # a fake target
        return sums

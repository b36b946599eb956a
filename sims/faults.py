"""Faults that an engine is put through: planted from outside, at the places where real ones strike."""

import asyncio
import contextlib
import random
from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Literal, Protocol, TypeVar, get_args

import msgspec

from actors import Engine
from actors.actor import Actor, ActorCrashed, ActorGivenUp
from actors.mailbox import Envelope, Mailbox
from actors.runner import RunPass
from kvpool import KvPool, OutOfBlocks
from sims.errors import SimError

T = TypeVar("T")

FaultKind = Literal["raise", "raise_late", "hang", "die_runner", "die_blocks", "die_scheduler", "out_of_blocks"]
KINDS: tuple[FaultKind, ...] = get_args(FaultKind)
"""The model raises as a pass begins, or when it has written; a pass hangs and is given up; an actor dies between two
messages; the pool is out of blocks at an allocation. Only the last two kinds of death, and too many crashes, end
streams with an error."""


class Injected(RuntimeError):
    """A fault that was planted."""


class Agenda(Protocol):
    """Says of every opportunity for a fault whether it strikes."""

    def strikes(self, kind: FaultKind) -> bool:
        """Tell whether this opportunity is taken."""


class Nth:
    """Strikes at listed opportunities: `(kind, n)` at the n-th of its kind, from 0."""

    def __init__(self, faults: Iterable[tuple[FaultKind, int]]) -> None:
        self._faults = frozenset(faults)
        self._kinds = frozenset(kind for kind, _ in self._faults)
        self._seen: Counter[FaultKind] = Counter()
        self.struck: Counter[FaultKind] = Counter()
        """How often each kind has struck."""

    def strikes(self, kind: FaultKind) -> bool:
        """Tell whether this opportunity is taken."""
        if kind not in self._kinds:
            return False
        opportunity = (kind, self._seen[kind])
        self._seen[kind] += 1
        if opportunity not in self._faults:
            return False
        self.struck[kind] += 1
        return True


class Rates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The share of opportunities at which each kind strikes: of passes, of messages taken, of blocks allocated."""

    raise_: float = msgspec.field(default=0.0, name="raise")
    raise_late: float = 0.0
    hang: float = 0.0
    die_runner: float = 0.0
    die_blocks: float = 0.0
    die_scheduler: float = 0.0
    out_of_blocks: float = 0.0

    def __post_init__(self) -> None:
        for kind in KINDS:
            if not 0 <= self.of(kind) <= 1:
                raise SimError(f"fault rate of {kind} is {self.of(kind)}: a share in [0, 1]")

    @property
    def are_none(self) -> bool:
        """No fault can strike."""
        return not any(map(self.of, KINDS))

    def of(self, kind: FaultKind) -> float:
        """Give the rate of a kind."""
        rate: float = getattr(self, "raise_" if kind == "raise" else kind)
        return rate


class ByRate:
    """Strikes at random, each kind at its rate, from a generator of its own."""

    def __init__(self, rates: Rates, seed: int | str) -> None:
        self._rates = rates
        self._rngs = {kind: random.Random(f"{seed} {kind}") for kind in KINDS}
        self.struck: Counter[FaultKind] = Counter()
        """How often each kind has struck."""

    def strikes(self, kind: FaultKind) -> bool:
        """Tell whether this opportunity is taken."""
        rate = self._rates.of(kind)
        if not rate or self._rngs[kind].random() >= rate:
            return False
        self.struck[kind] += 1
        return True


def faulty_passes(run_pass: RunPass, agenda: Agenda, late_s: float) -> RunPass:
    """Let passes raise, before or after the model has written, or hang: those complete `late_s` later, given up or not.

    A hanging pass needs `pass_timeout_s`, or it hangs for ever.
    """

    async def run(work: Callable[[], T], num_tokens: int, num_layers: int = 0) -> T:
        if agenda.strikes("raise"):
            raise Injected("the model raises before its pass")
        if agenda.strikes("hang"):
            asyncio.get_running_loop().call_later(late_s, _complete, work)
            await asyncio.get_running_loop().create_future()
        result = await run_pass(work, num_tokens, num_layers)
        if agenda.strikes("raise_late"):
            raise Injected("the model raises after its pass")
        return result

    return run


def _complete(work: Callable[[], object]) -> None:
    """Carry out a pass that nobody waits for any more: what it raises is heard by nobody."""
    with contextlib.suppress(Exception):
        work()


def plant(engine: Engine, agenda: Agenda) -> None:
    """Let the actors of an engine that has not started die, and its pool run out of blocks."""
    deaths: tuple[tuple[Actor, FaultKind], ...] = (
        (engine._runner, "die_runner"),
        (engine._blocks, "die_blocks"),
        (engine._scheduler, "die_scheduler"),
    )
    for actor, kind in deaths:
        _plant_death(actor, kind, agenda)
    blocks = engine._blocks
    restart = blocks.restart

    def restart_and_plant() -> None:
        restart()
        _plant_shortage(blocks.ledger.pool, agenda)

    blocks.restart = restart_and_plant  # type: ignore[method-assign]  # each restart makes a pool
    _plant_shortage(blocks.ledger.pool, agenda)


class _Deadly(Mailbox):
    """A mailbox whose reader may die as it turns to the next message, which stays."""

    def __init__(self, name: str, kind: FaultKind, agenda: Agenda) -> None:
        super().__init__()
        self.has_reader = True
        self._name = name
        self._kind = kind
        self._agenda = agenda

    def take(self) -> Envelope | None:
        if self.has_reader and self._agenda.strikes(self._kind):
            raise Injected(f"{self._name} dies between two messages")
        return super().take()


def _plant_death(actor: Actor, kind: FaultKind, agenda: Agenda) -> None:
    mailbox = actor.mailbox = _Deadly(actor.name, kind, agenda)
    disown = actor.disown

    def disown_and_disarm(error: ActorCrashed | ActorGivenUp) -> None:
        mailbox.has_reader = not isinstance(error, ActorGivenUp)  # what is left is then cleared away by others
        disown(error)

    actor.disown = disown_and_disarm  # type: ignore[method-assign]


class _Scarce(array):  # type: ignore[type-arg]  # has no parameter before Python 3.12
    """Free blocks, of which there may be none as one is taken."""

    agenda: Agenda

    def pop(self, i: int = -1, /) -> int:
        if self.agenda.strikes("out_of_blocks"):
            raise OutOfBlocks("injected: no block is free")
        block: int = super().pop(i)
        return block


def _plant_shortage(pool: KvPool, agenda: Agenda) -> None:
    free = _Scarce("i", pool._free)
    free.agenda = agenda
    pool._free = free

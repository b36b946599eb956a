"""The whole state of a run as a short digest: two runs in equal states go on alike under equal choices.

Everything reachable from the loop is spelled out: what is ready, where every task stands with its local variables,
futures, mailboxes, streams, sequences, block tables, the pool, the prefix index and the model's memory.
"""

import asyncio
import hashlib
import re
import types
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from contextvars import Context
from functools import cache, partial
from itertools import chain, pairwise
from typing import Any

import anyio
import msgspec
import numpy as np

from actors.blocks import BlockManager
from actors.messages import Step, StepDone
from actors.runner import ModelRunner
from actors.scheduling import SchedulerActor
from models import FakeModel
from models.checked_kv import CheckedMemory
from scheduler import EngineConfig, Sequence
from sims.explore.clients import Visit
from sims.explore.loop import ExploringLoop
from sims.explore.scenario import Scenario
from sims.explore.watch import Watch
from spec import SamplingParams

_LEFT_OUT: dict[type, frozenset[str]] = {
    # counts that nothing depends on
    Watch: frozenset(
        {"coverage", "num_messages", "num_callbacks", "_mark", "_log", "_note", "_sequences", "_tracebacks"}
    ),
    SchedulerActor: frozenset({"counters"}),
    BlockManager: frozenset({"num_checks"}),
    ModelRunner: frozenset({"num_restarts"}),
    Sequence: frozenset({"last_served", "drafter", "num_preemptions", "num_rounds", "num_drafted", "num_accepted"}),
    Step: frozenset({"number"}),
    StepDone: frozenset({"number"}),
    # what follows from the rest
    anyio.CancelScope: frozenset({"_child_scopes", "_tasks", "_parent_scope", "_host_task", "_cancel_reason"}),
    FakeModel: frozenset({"_jumps", "_offsets"}),
    CheckedMemory: frozenset({"_powers", "_inverses", "_num_chained"}),
    Visit: frozenset({"_wanted"}),
}
_PLAIN = (int, float, str, bytes, bool, type(None))
_OUTSIDE = (asyncio.AbstractEventLoop, Context, types.ModuleType, Scenario, EngineConfig, SamplingParams)


def fingerprint(loop: ExploringLoop, watch: Watch) -> bytes:
    """Digest the state between two callbacks, 16 bytes."""
    speller = _Speller()
    spell = speller.spell
    for task in sorted(loop.tasks(), key=_task_name):
        speller.spell_task(task)
    spell(watch)
    #   who was served before whom matters, when does not
    served = sorted(watch.insides.core.running.values(), key=lambda s: (s.last_served, s.seq))
    spell([(s.seq, s.last_served == t.last_served) for s, t in pairwise(served)])
    spell([s.seq for s in served])
    #   any of the ready may come next, so their order says nothing
    calls = [(handle._callback, handle._args) for handle in loop.ready]  # type: ignore[attr-defined]
    speller.parts.extend(sorted(map(speller.spell_apart, calls)))
    spell([(handle.when(), handle._callback, handle._args) for handle in loop.timers])  # type: ignore[attr-defined]
    return hashlib.blake2b("\0".join(speller.parts).encode(), digest_size=16).digest()


class _Speller:
    def __init__(self) -> None:
        self.parts: list[str] = []
        self._numbers: dict[int, int] = {}
        self._kept: list[object] = []  # so that no id is used twice

    def spell(self, value: Any) -> None:
        """Spell a value; an object that was spelled before is named by its number."""
        kind = type(value)
        if kind in _PLAIN:
            self.parts.append(repr(value))
            return
        if isinstance(value, _OUTSIDE) or kind is type:
            self.parts.append(kind.__name__)
            return
        if isinstance(value, asyncio.Task):
            self.parts.append(_task_name(value))
            if value.done():
                self._spell_result(value)
            return
        number = self._numbers.get(id(value))
        if number is not None:
            self.parts.append(f"#{number}")
            return
        self._numbers[id(value)] = len(self._numbers)
        self._kept.append(value)
        self.parts.append(kind.__name__)
        self._spell_parts(value)
        self.parts.append(")")

    def _spell_parts(self, value: Any) -> None:
        match value:
            case list() | tuple() | deque():
                self._spell_all(value)
            case dict():
                for key, held in value.items():
                    self.spell(key)
                    self.spell(held)
            case set() | frozenset():
                self.parts.extend(sorted(self.spell_apart(item) for item in value))
            case np.ndarray() | array():
                self.parts.append(value.tobytes().hex())
            case asyncio.Future():
                self._spell_result(value)
            case types.CoroutineType():
                self._spell_frame(value.cr_frame, value.cr_await)
            case types.AsyncGeneratorType():
                self._spell_frame(value.ag_frame, value.ag_await)
            case types.GeneratorType():
                self._spell_frame(value.gi_frame, value.gi_yieldfrom)
            case types.MethodType():
                self.parts.append(value.__func__.__qualname__)
                self.spell(value.__self__)
            case types.FunctionType():
                self.parts.append(value.__qualname__)
                self._spell_all(cell.cell_contents for cell in value.__closure__ or () if _is_full(cell))
            case partial():
                self._spell_all((value.func, value.args, value.keywords))
            case BaseException():
                self.parts.append(str(value))
            case msgspec.Struct():
                self._spell_fields(value, value.__struct_fields__)
            case _ if (owner := getattr(value, "__self__", None)) is not None:  # a method written in C
                self.spell(owner)
            case _:
                self._spell_fields(value, _field_names(value))

    def spell_task(self, task: asyncio.Task[Any]) -> None:
        """Spell where a task stands."""
        self.parts.append(_task_name(task))
        self.spell(task.cancelling())
        self.spell(task._must_cancel)  # type: ignore[attr-defined]
        self.spell(task._fut_waiter)  # type: ignore[attr-defined]
        self.spell(task.get_coro())

    def _spell_all(self, values: Iterable[Any]) -> None:
        for value in values:
            self.spell(value)

    def spell_apart(self, value: Any) -> str:
        """Spell a member of a set by itself: in which place it comes says nothing."""
        parts, self.parts = self.parts, []
        numbers = self._numbers.copy()
        self.spell(value)
        spelled, self.parts = "\1".join(self.parts), parts
        self._numbers = numbers
        return spelled

    def _spell_fields(self, value: Any, names: Iterable[str]) -> None:
        left_out = _left_out(type(value))  # type: ignore[arg-type]  # a type is hashable
        for name in names:
            if name not in left_out:
                self.parts.append(name)
                self.spell(getattr(value, name))

    def _spell_frame(self, frame: types.FrameType | None, awaited: Any) -> None:
        if frame is None:
            self.parts.append("over")
            return
        self.parts.append(f"{frame.f_code.co_qualname}+{frame.f_lasti}")
        for name, value in sorted(frame.f_locals.items()):
            self.parts.append(name)
            self.spell(value)
        if isinstance(awaited, types.CoroutineType | types.GeneratorType | types.AsyncGeneratorType):
            self.spell(awaited)

    def _spell_result(self, future: "asyncio.Future[Any]") -> None:
        if not future.done():
            self.parts.append("pending")
        elif future.cancelled():
            self.parts.append("cancelled")
        elif (error := future._exception) is not None:
            self.spell(error)
        else:
            self.spell(future.result())


def _task_name(task: asyncio.Task[Any]) -> str:
    coro = task.get_coro()
    return re.sub(r"^Task-\d+$", "task", task.get_name()) + " " + getattr(coro, "__qualname__", "")


def _field_names(value: Any) -> Iterator[str]:
    yield from (name for name in _slots(type(value)) if hasattr(value, name))  # type: ignore[arg-type]
    yield from getattr(value, "__dict__", ())


@cache
def _slots(kind: type) -> tuple[str, ...]:
    slots = (base.__dict__.get("__slots__", ()) for base in kind.__mro__)
    names = chain.from_iterable((names,) if isinstance(names, str) else names for names in slots)
    return tuple(name for name in names if not name.startswith("__"))


@cache
def _left_out(kind: type) -> frozenset[str]:
    return next((_LEFT_OUT[base] for base in kind.__mro__ if base in _LEFT_OUT), frozenset())


def _is_full(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True

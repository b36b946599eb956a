"""Virtual time: an event loop whose clock jumps to the next timer instead of waiting for it."""

import asyncio
import math
import random
import selectors
from collections import deque
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Deadlock(RuntimeError):
    """Nothing is ready, no timer is set, and the main task is not done: nothing can ever happen again."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """The standard loop with a clock of its own, in seconds from 0.

    Without a `seed`, callbacks run first in, first out. With one, the next to run is drawn from all that are ready:
    each seed is another interleaving, and the same one every time. Threads and sockets have no place in such a loop.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._now_s = 0.0
        super().__init__(_JumpingSelector(self))
        self._clock_resolution = math.ulp(0.0)
        if seed is not None:
            self._ready: deque[Any] = _Shuffled(random.Random(seed))

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now_s

    def jump(self, timeout_s: float | None) -> None:
        """Let the time that the loop would wait for pass at once. None, no timer at all, is a Deadlock."""
        if timeout_s is None:
            raise Deadlock(_waiting_tasks(self))
        if timeout_s > 0:
            # To the timer itself: the clock plus the difference could round to just before it.
            self._now_s = self._scheduled[0].when()  # type: ignore[attr-defined]
            self._clock_resolution = math.ulp(self._now_s)  # a timer is due when it is due, not shortly before


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        self._loop.jump(timeout)
        return []


class _Shuffled(deque[Any]):
    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng

    def popleft(self) -> Any:
        self.rotate(-self._rng.randrange(len(self)))
        return super().popleft()


def run(main: Coroutine[Any, Any, T], seed: int | None = None) -> T:
    """Run `main` to its end in virtual time, like `asyncio.run`. Raises Deadlock, naming who waits for what."""
    try:
        with asyncio.Runner(loop_factory=lambda: VirtualLoop(seed)) as runner:
            return runner.run(main)
    except Deadlock as error:
        #   what hangs may hang again as it is cancelled: the first deadlock is the one that tells
        while isinstance(error.__context__, Deadlock):
            error = error.__context__
        raise error from None


def _waiting_tasks(loop: asyncio.AbstractEventLoop) -> str:
    lines = []
    for task in asyncio.all_tasks(loop):
        frames = task.get_stack(limit=1)
        place = f"{frames[0].f_code.co_filename}:{frames[0].f_lineno}" if frames else "nowhere"
        lines.append(f"{task.get_name()} at {place}")
    return f"nothing can happen any more, and these wait ({len(lines)}): " + "; ".join(sorted(lines))

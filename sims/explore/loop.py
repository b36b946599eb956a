"""A loop in virtual time that is looked at before every callback, and told which of the ready ones is next."""

import asyncio
import contextlib
import warnings
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from anyio._backends._asyncio import _task_states

from sims.clock import VirtualLoop

T = TypeVar("T")

Choose = Callable[[int], int]
"""Given how many callbacks are ready, which goes next: an index in the order in which they became ready."""


class ExploringLoop(VirtualLoop):
    """Asks `choose` where more than one callback is ready; calls `look` before each, and what that raises comes out."""

    def __init__(self, choose: Choose) -> None:
        super().__init__()
        self._tasks: list[asyncio.Task[Any]] = []
        self.look: Callable[[], None] = lambda: None
        self._ready = _Chosen(self, choose)

    def create_task(self, coro: Any, **settings: Any) -> asyncio.Task[Any]:
        """Start a task, and remember it: what `asyncio.all_tasks` knows outlives its loop."""
        task: asyncio.Task[Any] = super().create_task(coro, **settings)
        self._tasks.append(task)
        return task

    def tasks(self) -> list[asyncio.Task[Any]]:
        """List the tasks that are not done, in the order in which they began."""
        return [task for task in self._tasks if not task.done()]

    @property
    def ready(self) -> deque[asyncio.Handle]:
        """What could run next."""
        return self._ready

    @property
    def timers(self) -> list[asyncio.TimerHandle]:
        """What is to run later."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        return timers

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` to its end, and close. Whatever is left when something is raised is put out of its misery."""
        asyncio.set_event_loop(self)
        try:
            result = self.run_until_complete(main)
            self.run_until_complete(self.shutdown_asyncgens())
            return result
        finally:
            self._drop_everything()
            asyncio.set_event_loop(None)
            self.close()

    def _drop_everything(self) -> None:
        """End what a run that was broken off has left, without running any of it on."""
        tasks = self.tasks()
        self._tasks.clear()
        if tasks:
            self._ready.clear()
            self.set_exception_handler(lambda *_: None)
            self.call_soon = self._ignore  # type: ignore[method-assign,assignment]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # some never started
            for task in tasks:
                self._drop(task)

    def _drop(self, task: asyncio.Task[Any]) -> None:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        for _ in range(8):  # each attempt gets past one `await` in a clean-up
            with contextlib.suppress(BaseException):
                task.get_coro().close()
                break
        _task_states.pop(task, None)  # it keeps a task that has not left its scopes alive, for ever

    def _ignore(self, callback: Callable[..., object], *args: Any, context: Any = None) -> asyncio.Handle:
        return asyncio.Handle(callback, args, self, context)


class _Chosen(deque[asyncio.Handle]):
    def __init__(self, loop: ExploringLoop, choose: Choose) -> None:
        super().__init__()
        self._loop = loop
        self._choose = choose

    def popleft(self) -> asyncio.Handle:
        self._loop.look()
        for i, handle in enumerate(self):
            if handle.cancelled():  # will not run, so it is no choice
                del self[i]
                return handle
        i = self._choose(len(self)) if len(self) > 1 else 0
        handle = self[i]
        del self[i]
        return handle

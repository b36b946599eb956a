"""Live progress of a simulation, on a terminal only."""

import time
from types import TracebackType
from typing import Self

import rich.progress
from rich.console import Console

from actors import EngineStats

_REFRESH_S = 0.1


class Progress:
    """A bar with the engine's numbers beside it, redrawn ten times a second at most."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._progress = rich.progress.Progress(
            rich.progress.TextColumn("{task.completed:,.0f} of {task.total:,.0f} requests"),
            rich.progress.BarColumn(),
            rich.progress.TextColumn("{task.fields[numbers]}"),
            rich.progress.TimeElapsedColumn(),
            console=console,
            transient=True,
            auto_refresh=False,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("", total=None, numbers="", visible=False)
        self._next_s = 0.0
        self._last = (time.perf_counter(), 0)

    @property
    def is_live(self) -> bool:
        """Whether anybody sees it."""
        return not self._progress.disable

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def watch(self, num_gone: int, num_requests: int, stats: EngineStats) -> None:
        """Draw, if it is time."""
        now_s = time.perf_counter()
        if now_s < self._next_s:
            return
        self._next_s = now_s + _REFRESH_S
        counters = stats.counters
        before_s, num_before = self._last
        self._last = (now_s, counters.num_emitted_tokens)
        tokens_per_s = (counters.num_emitted_tokens - num_before) / (now_s - before_s)
        accept_rate = counters.num_accepted / counters.num_drafted if counters.num_drafted else 0.0
        numbers = (
            f"{stats.num_running:,} running  {stats.num_waiting:,} waiting  "
            f"{stats.blocks.held:,}/{stats.blocks.total:,} blocks held  "
            f"{tokens_per_s:,.0f} tokens/s  {accept_rate:.0%} accepted"
        )
        self._progress.update(self._task, completed=num_gone, total=num_requests, numbers=numbers, visible=True)
        self._progress.refresh()

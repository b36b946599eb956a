"""How far long work is: a bar on a terminal, elsewhere a line every ten seconds. What is over in two says nothing."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import rich.progress
from rich.console import Console

from actors import EngineStats

_SILENT_S = 2.0
_REFRESH_S = 0.1
_LINE_S = 10.0


class Progress:
    """Shows how much of something is done and how long the rest will take, on standard error."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._bar = rich.progress.Progress(
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(bar_width=24),
            rich.progress.TextColumn("{task.fields[numbers]}"),
            console=self._console,
            transient=True,
            auto_refresh=False,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", total=None, numbers="")
        self._clock = clock
        self._what = ""
        self._begun_s = self._clock()
        self._next_s = self._begun_s + (_SILENT_S if self._console.is_terminal else _LINE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.stop()

    def show(self, what: str, num_done: float, num_all: float | None, numbers: Callable[[], str] = str) -> None:
        """Show where `what` stands, if it is time; `numbers` is asked only then for what else there is to say.

        `num_all` is None where the end is not known.
        """
        now_s = self._clock()
        if what != self._what:
            self._what, self._begun_s = what, now_s
        if now_s < self._next_s:
            return
        parts = [numbers(), _left(now_s - self._begun_s, num_done, num_all)]
        said = ", ".join(filter(None, parts))
        count = f"{num_done:,.0f}" if num_all is None else f"{num_done:,.0f} of {num_all:,.0f}"
        if not self._console.is_terminal:
            self._next_s = now_s + _LINE_S
            self._console.print(f"{count} {what}" + (f": {said}" if said else ""), soft_wrap=True)
            return
        self._next_s = now_s + _REFRESH_S
        self._bar.start()
        self._bar.update(self._task, description=f"{count} {what}", completed=num_done, total=num_all, numbers=said)
        self._bar.refresh()


def _left(seconds: float, num_done: float, num_all: float | None) -> str:
    if num_all is None or not num_done:
        return ""
    left_s = round(seconds * (num_all - num_done) / num_done)
    return f"{left_s // 60}:{left_s % 60:02} left"


class EngineNumbers:
    """What an engine's numbers are, in a few words, and how fast it emits since it was last asked."""

    def __init__(self) -> None:
        self._last = (time.monotonic(), 0)

    def __call__(self, stats: EngineStats) -> str:
        """Say them."""
        counters, now_s = stats.counters, time.monotonic()
        before_s, num_before = self._last
        self._last = (now_s, counters.num_emitted_tokens)
        tokens_per_s = max(0, counters.num_emitted_tokens - num_before) / (now_s - before_s)
        accepted = f", {counters.num_accepted / counters.num_drafted:.0%} accepted" if counters.num_drafted else ""
        return (
            f"{stats.num_running:,} running, {stats.num_waiting:,} waiting, "
            f"{stats.blocks.held:,}/{stats.blocks.total:,} blocks held, {tokens_per_s:,.0f} tokens/s{accepted}"
        )

"""Ratios of two pieces of code, timed in turn in one process, so that the machine's drift falls on both."""

import gc
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple


class Figure(NamedTuple):
    """One measured ratio: what was compared, the median times in seconds, and the goal it is held to."""

    name: str
    seconds: float
    base_seconds: float
    ratio: float
    goal: str


def compare(
    name: str, code: Callable[[], object], base: Callable[[], object], *, goal: str, repeat: int = 15, number: int = 1
) -> Figure:
    """Time `code` and `base` in turn, `repeat` times, `number` calls each; the ratio is the median of the pairs'."""
    pairs = []
    gc.collect()
    gc.disable()
    try:
        for i in range(repeat + 2):
            pair = (_seconds(code, number), _seconds(base, number))
            if i >= 2:  # the first two warm caches up
                pairs.append(pair)
    finally:
        gc.enable()
    ratios = [a / b for a, b in pairs]
    return Figure(
        name,
        statistics.median(a for a, _ in pairs),
        statistics.median(b for _, b in pairs),
        statistics.median(ratios),
        goal,
    )


def _seconds(code: Callable[[], object], number: int) -> float:
    start = time.perf_counter()
    for _ in range(number):
        code()
    return (time.perf_counter() - start) / number


def show(figures: list[Figure]) -> None:
    """Print the figures as a Markdown table."""
    print("| what | time | compared with | ratio | goal |")
    print("|---|---|---|---|---|")
    for f in figures:
        print(f"| {f.name} | {f.seconds * 1e6:,.1f} us | {f.base_seconds * 1e6:,.1f} us | {f.ratio:.2f} | {f.goal} |")

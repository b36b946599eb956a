"""What a pass costs on this machine, by the number of rows it feeds."""

import statistics
from collections.abc import Callable, Sequence

from models.protocol import Chunk, Model

ROWS = (1, 2, 3, 5, 9, 17, 33)


def measure_pass(
    model: Model,
    now: Callable[[], float],
    *,
    context: int = 64,
    repeat: int = 7,
    rows: Sequence[int] = ROWS,
    batch: int = 1,
) -> list[float]:
    """Time passes of `rows` rows for each of `batch` sequences with `context` tokens; median seconds for each.

    The sizes are timed in turn, so that a machine that drifts drifts for all. Binds the model to memory of its own:
    bind it again before use. `now` is a clock in seconds.
    """
    length = context + max(rows)
    model.bind(batch, length)
    model.forward([Chunk(ids=[0] * context, start=0, table=[i], num_rows=0) for i in range(batch)])
    chunks = [[Chunk(ids=[0] * n, start=context, table=[i], num_rows=n) for i in range(batch)] for n in rows]
    times: list[list[float]] = [[] for _ in rows]
    for _ in range(repeat):
        for taken, chunk in zip(times, chunks, strict=True):
            model.forward(chunk)  # a pass of another size leaves caches that make small ones seem slow
            start = now()
            model.forward(chunk)
            taken.append(now() - start)
    return [statistics.median(taken) for taken in times]

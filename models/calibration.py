"""What a pass costs on this machine, by the number of rows it feeds."""

import statistics
from collections.abc import Callable
from copy import copy
from itertools import accumulate

from models.drafting import DraftOrder, draft
from models.protocol import Chunk, Model, Proposer
from spec import Chain, Pcg32

ROWS = (1, 2, 3, 5, 9, 17, 33)
_CONTEXT = 64
_DRAFTED_AT_ONCE = 8
_NUM_WARM, _NUM_TIMED = 3, 2


def measure_pass(model: Model, now: Callable[[], float], *, repeat: int = 5) -> list[float]:
    """Time passes of each of ROWS rows for a sequence with a few cached tokens; median seconds for each.

    A size is timed in stretches of passes alike, as rounds mostly are, and the sizes take turns, so that a machine that
    drifts drifts for all. Binds the model to memory of its own: bind it again before use. `now` is a clock in seconds.
    """
    model.bind(1, _CONTEXT + max(ROWS))
    model.forward([Chunk(ids=[0] * _CONTEXT, start=0, table=[0], num_rows=0)])
    chunks = [[Chunk(ids=[0] * n, start=_CONTEXT, table=[0], num_rows=n)] for n in ROWS]
    times: list[list[float]] = [[] for _ in ROWS]
    for _ in range(repeat):
        for taken, chunk in zip(times, chunks, strict=True):
            for _ in range(_NUM_WARM):  # passes of another size leave caches that make small ones seem slow
                model.forward(chunk)
            for _ in range(_NUM_TIMED):
                start = now()
                model.forward(chunk)
                taken.append(now() - start)
    medians = [statistics.median(taken) for taken in times]
    return list(accumulate(reversed(medians), min))[::-1]  # fewer rows take no longer


def measure_draft(
    proposer: Proposer, target: Model, now: Callable[[], float], *, repeat: int = 7
) -> tuple[float, float]:
    """Time a layer of drafts for one sequence and what it takes longer for each further one; median seconds.

    Two tokens are fed to each, about as many as a round keeps. Works on copies with memory of their own.
    """
    model, proposer = copy(target), copy(proposer)
    model.bind(_DRAFTED_AT_ONCE, _CONTEXT)
    model.forward([Chunk([0] * _CONTEXT, 0, [i], 0) for i in range(_DRAFTED_AT_ONCE)])
    proposer.bind(_DRAFTED_AT_ONCE, _CONTEXT, model)
    proposer.feed([Chunk([0] * _CONTEXT, 0, [i], 0) for i in range(_DRAFTED_AT_ONCE)])
    rng = Pcg32(0, 0)  # the best child is taken, and none drawn
    orders = [DraftOrder([0, 0], _CONTEXT - 2, [i], Chain(1), "top", 1, rng) for i in range(_DRAFTED_AT_ONCE)]
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeat + 1):  # the first is to warm up
        for taken, asked in zip(times, (orders[:1], orders), strict=True):
            start = now()
            draft(proposer, asked, _CONTEXT)
            taken.append(now() - start)
    one, all_ = (statistics.median(taken[1:]) for taken in times)
    return one, max(0.0, all_ - one) / (_DRAFTED_AT_ONCE - 1)


def measure_cost(
    model: Model, proposer: Proposer | None, now: Callable[[], float]
) -> tuple[tuple[int, ...], tuple[float, ...], float, float]:
    """Measure what a `PassCost` is made of: passes of `ROWS` rows, and a layer of drafts."""
    seconds = tuple(measure_pass(copy(model), now))
    layer_s, layer_row_s = (0.0, 0.0) if proposer is None else measure_draft(proposer, model, now)
    return ROWS, seconds, layer_s, layer_row_s

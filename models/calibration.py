"""What a pass costs on this machine, by the number of rows it feeds."""

import statistics
from collections.abc import Callable
from copy import copy
from itertools import pairwise

from models.drafting import DraftOrder, draft
from models.protocol import Chunk, Model, Proposer
from spec import Chain, Pcg32

ROWS = (1, 2, 3, 5, 9, 17, 33)
_MOST_CONTEXT = 256
_DRAFTED_AT_ONCE = 8
_NUM_WARM = 3


def measure_pass(model: Model, now: Callable[[], float], *, repeat: int = 10) -> list[float]:
    """Time passes of each of ROWS rows for a sequence with some cached tokens; median seconds for each.

    A size is held against the next smaller one, the two in turns: a machine that drifts, or is slower for a while after
    large passes, is so for both. Binds the model to memory of its own: bind it again before use. `now` is a clock in
    seconds.
    """
    context = _context(model)
    model.bind(1, context + max(ROWS))
    model.forward([Chunk(ids=[0] * context, start=0, table=[0], num_rows=0)])
    chunks = [[Chunk(ids=[0] * n, start=context, table=[0], num_rows=n)] for n in ROWS]
    seconds: list[float] = []
    for pair in pairwise(chunks):
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(_NUM_WARM + repeat):
            for taken, chunk in zip(times, pair, strict=True):
                start = now()
                model.forward(chunk)
                taken.append(now() - start)
        smaller, larger = (statistics.median(taken[_NUM_WARM:]) for taken in times)
        seconds = seconds or [smaller]
        seconds.append(seconds[-1] * max(1.0, larger / smaller))  # fewer rows take no longer
    return seconds


def _context(model: Model) -> int:
    """Tokens to have cached: with many, every row reads much."""
    return max(2, min(_MOST_CONTEXT, model.max_model_len - max(ROWS)))


def measure_draft(
    proposer: Proposer, target: Model, now: Callable[[], float], *, repeat: int = 7
) -> tuple[float, float]:
    """Time a layer of drafts for one sequence and what it takes longer for each further one; median seconds.

    Two tokens are fed to each, about as many as a round keeps, after a pass of the target, which has filled the caches.
    Works on copies with memory of their own.
    """
    model, proposer, context = copy(target), copy(proposer), _context(target)
    model.bind(_DRAFTED_AT_ONCE, context)
    model.forward([Chunk([0] * context, 0, [i], 0) for i in range(_DRAFTED_AT_ONCE)])
    proposer.bind(_DRAFTED_AT_ONCE, context, model)
    proposer.feed([Chunk([0] * context, 0, [i], 0) for i in range(_DRAFTED_AT_ONCE)])
    rng = Pcg32(0, 0)  # the best child is taken, and none drawn
    orders = [DraftOrder([0, 0], context - 2, [i], Chain(1), "top", 1, rng) for i in range(_DRAFTED_AT_ONCE)]
    last = Chunk([0], context - 1, [0], 1)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeat + 1):  # the first is to warm up
        for taken, asked in zip(times, (orders[:1], orders), strict=True):
            model.forward([last])
            start = now()
            draft(proposer, asked, context)
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

"""What the model thought of each token, and what it would have said instead: for who asks for alternatives."""

import copy
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import anyio
import anyio.to_thread
import numpy as np
from numpy.typing import NDArray

from kvpool import blocks_for
from models import Chunk, Model

_IDS_A_PASS = 256  # a row of logits for each
_MAX_OPEN = 2  # each has KV memory for the whole of its text


class Scored(NamedTuple):
    """A token's log-probability from the raw logits, and the likeliest tokens of its place with theirs.

    None and nothing for the first token of a prompt, which nothing comes before.
    """

    logprob: float | None
    top: list[tuple[int, float]]


class Scorer:
    """Reads texts through copies of the model with memory of their own, beside the engine's passes."""

    def __init__(self, model: Model, block_tokens: int) -> None:
        self._model = model
        self._block_tokens = block_tokens
        self._places = anyio.Semaphore(_MAX_OPEN)
        self._limiter = anyio.CapacityLimiter(1)

    @asynccontextmanager
    async def open(self, num_positions: int, num_top: int) -> AsyncIterator["Reading"]:
        """Begin to read a text of at most so many tokens, as soon as there is memory for one more."""
        async with self._places:
            model = copy.copy(self._model)  # the weights are shared
            model.bind(blocks_for(num_positions, self._block_tokens), self._block_tokens)
            yield Reading(model, self._block_tokens, num_top, self._limiter)


class Reading:
    """One text as it grows; one pass of all that are open runs at a time."""

    def __init__(self, model: Model, block_tokens: int, num_top: int, limiter: anyio.CapacityLimiter) -> None:
        self._model = model
        self._block_tokens = block_tokens
        self._num_top = num_top
        self._limiter = limiter
        self._num_fed = 0
        self._last: list[int] = []  # the last token read, which is fed when it is asked what comes next

    async def score(self, ids: Sequence[int]) -> list[Scored]:
        """Read on; each token by what came before it."""
        scored: list[Scored] = []
        for start in range(0, len(ids), _IDS_A_PASS):
            part = list(ids[start : start + _IDS_A_PASS])
            scored += await anyio.to_thread.run_sync(self._score, part, limiter=self._limiter)
        return scored

    def _score(self, ids: list[int]) -> list[Scored]:
        scored = [] if self._last else [Scored(None, [])]
        fed, self._last = self._last + ids[:-1], ids[-1:]
        if fed:
            start, self._num_fed = self._num_fed, self._num_fed + len(fed)
            table = range(blocks_for(self._num_fed, self._block_tokens))
            rows = self._model.forward([Chunk(fed, start, table, len(fed))])
            scored += map(self._of, _laws(rows), ids[-len(fed) :])
        return scored

    def _of(self, law: NDArray[np.float64], token: int) -> Scored:
        likeliest = np.argsort(-law, kind="stable")[: self._num_top] if self._num_top else ()
        return Scored(float(law[token]), [(int(i), float(law[i])) for i in likeliest])


def _laws(rows: NDArray[np.float32]) -> Iterator[NDArray[np.float64]]:
    for row in rows:
        shifted = row.astype(np.float64) - row.max()
        yield shifted - np.log(np.exp(shifted).sum())

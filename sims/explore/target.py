"""A fake target that may give a row no distribution can be made of, and a fake proposer that may fail."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from models import Ask, Chunk, FakeModel, FakeProposer
from sims.faults import Injected


class Poisoned(RuntimeError):
    """A pass was fed what the model cannot stand."""


class SpoilingModel(FakeModel):
    """In each of the listed passes, of those that give rows and from 0, the first row is NaN.

    A pass over a prompt that begins with `poison` raises.
    """

    def __init__(
        self,
        spoilt: Iterable[int],
        poison: int | None,
        seed: int,
        vocab: int,
        order: int,
        sharp: float,
        max_len: int,
    ) -> None:
        super().__init__(seed, vocab, order, sharp, max_len)
        self._poison = poison
        self._spoilt = set(spoilt)
        self._num_passes = [0]  # one count, whatever copies of the model there are

    def forward(self, chunks: Sequence[Chunk]) -> NDArray[np.float32]:
        """Do a pass, and spoil its first row if it is one of those."""
        if any(chunk.start == 0 and chunk.ids[0] == self._poison for chunk in chunks):
            raise Poisoned("a prompt that the model cannot stand")
        rows = super().forward(chunks)
        if len(rows):
            if self._num_passes[0] in self._spoilt:
                rows[0] = np.nan
            self._num_passes[0] += 1
        return rows


class FailingProposer(FakeProposer):
    """At each of the listed calls, from 0, it raises: before it has written what it is fed, or has given a law."""

    def __init__(self, failing: Iterable[int], target: FakeModel, seed: int, sharp: float, mix: float) -> None:
        super().__init__(target, seed, 1, sharp, mix)
        self._failing = set(failing)
        self._num_calls = [0]  # one count, whatever copies of the proposer there are

    def feed(self, chunks: Sequence[Chunk]) -> None:
        """Write tokens, or fail."""
        self._count()
        super().feed(chunks)

    def laws(self, asks: Sequence[Ask]) -> NDArray[np.float64]:
        """Give laws, or fail."""
        self._count()
        return super().laws(asks)

    def _count(self) -> None:
        self._num_calls[0] += 1
        if self._num_calls[0] - 1 in self._failing:
            raise Injected("the proposer fails")

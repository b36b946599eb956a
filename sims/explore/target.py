"""A fake target that now and then gives a row no distribution can be made of."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from models import Chunk, FakeModel


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

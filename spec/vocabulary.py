"""The part of a vocabulary that drafts are made of."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spec.distribution import Row


class DraftVocabulary(NamedTuple):
    """The tokens that a proposer has laws over, `ids` by rising id; those that it lacks have no chance."""

    ids: NDArray[np.intp]
    vocab_size: int
    """Of the target."""

    def widen(self, law: Row) -> Row:
        """Turn a law over these tokens into one over all of the target's, float64 `[vocab_size]`."""
        whole = np.zeros(self.vocab_size)
        whole[self.ids] = law
        return whole

"""From the logits of a proposer to the laws that trees grow by."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from models.protocol import Ask, Ints
from spec import dense_distribution

F64 = NDArray[np.float64]


def laws_of(
    logits: NDArray[np.float32], asks: Sequence[Ask], vocab_size: int, ids: Ints | None = None
) -> NDArray[np.float64]:
    """Give the laws after the nodes asked for, ask after ask, float64 `[nodes, vocab_size]`.

    Each is the distribution of its row of logits by the parameters of its ask. `logits` are `[nodes, vocab_size]`, or
    with `ids` `[nodes, len(ids)]`, of these tokens only: the others have no chance. Raises SpecError for a row of NaN.
    """
    laws = np.zeros((len(logits), vocab_size))
    at = 0
    for ask in asks:
        #   a token that has a bias or a penalty may be one that is not in the draft vocabulary
        is_narrow = ids is not None and not _looks_at_ids(ask)
        for node in ask.frontier:
            if ids is None or is_narrow:
                row = logits[at]
            else:
                row = np.full(vocab_size, -np.inf, np.float32)
                row[ids] = logits[at]
            law = dense_distribution(row, ask.params, ask.prompt, ask.output_at(node) if _looks_at_ids(ask) else ())
            if is_narrow:
                laws[at, ids] = law
            else:
                laws[at] = law
            at += 1
    return laws


def _looks_at_ids(ask: Ask) -> bool:
    """Tell whether the law depends on which token a logit is of."""
    params = ask.params
    return params.has_penalties or params.min_tokens > 0 or bool(params.logit_bias)

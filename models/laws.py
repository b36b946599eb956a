"""From the logits of a proposer to the laws that trees grow by."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from models.protocol import Ask
from spec import DraftVocabulary, dense_distribution

F64 = NDArray[np.float64]


def laws_of(logits: NDArray[np.float32], asks: Sequence[Ask], vocabulary: DraftVocabulary | None = None) -> F64:
    """Give the laws after the nodes asked for, ask after ask, float64 as wide as the `logits`, `[nodes, words]`.

    Each is the distribution of its row of logits by the parameters of its ask. Their words are those of `vocabulary`,
    or all of the target's. Raises SpecError for a row of NaN.
    """
    laws = np.empty(logits.shape)
    at = 0
    for ask in asks:
        looks_at_ids = _looks_at_ids(ask)
        for node in ask.frontier:
            row = logits[at]
            if vocabulary is None or not looks_at_ids:
                output = ask.output_at(node) if looks_at_ids else ()
                laws[at] = dense_distribution(row, ask.params, ask.prompt, output)
            else:  # a token that has a bias or a penalty is known by its id
                whole = np.full(vocabulary.vocab_size, -np.inf, np.float32)
                whole[vocabulary.ids] = row
                laws[at] = dense_distribution(whole, ask.params, ask.prompt, ask.output_at(node))[vocabulary.ids]
            at += 1
    return laws


def _looks_at_ids(ask: Ask) -> bool:
    """Tell whether the law depends on which token a logit is of."""
    params = ask.params
    return params.has_penalties or params.min_tokens > 0 or bool(params.logit_bias)

"""Verification of a drawn tree from its leaves up (Weng et al. 2025); of a chain, block verification (Sun et al. 2025).

Where resampling gives up a path at its first rejected token, this rule first looks how the whole path does.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spec.children import without
from spec.distribution import Generator, Row, TokenCounts, sample_dense
from spec.params import SamplingParams
from spec.tree import ROOT, DraftTree
from spec.verify import law_of


def traverse(
    rows: NDArray[np.floating],
    tree: DraftTree,
    laws: Sequence[Row],
    params: SamplingParams,
    counts: TokenCounts,
    rng: Generator,
    *,
    is_distinct: bool,
) -> tuple[list[int], int]:
    """Give the accepted path and the token after it. `counts` is left as it was."""
    below = tree.children()

    def judge(node: int, a: float) -> tuple[list[int], int] | None:
        """Judge a node that has been reached with acceptance `a`: the end of the path if it, or one below, is it."""
        p: Row | None = None
        q: Row | None = None
        for child in below[node]:
            if p is None:
                p = law_of(rows[node + 1], params, counts)
            if q is None or not is_distinct:
                q = laws[child]
            x = tree.tokens[child]
            with counts.counting(x):
                accepted = judge(child, min(1.0, a * float(p[x] / q[x])))
            if accepted is not None:
                return accepted
            #   what is left of node's share once the child has had its own: both the law and how much of it
            left = np.maximum(a * p - q, 0.0)
            s = float(left.sum())
            if s > 0:
                p = left / s
            a = 1.0 if node == ROOT else s / (s + 1 - a) if s > 0 else 0.0
            if is_distinct:
                q = without(q, x)
        if node != ROOT and not rng.next_f64() < a:
            return None
        if p is None:
            p = law_of(rows[node + 1], params, counts)
        return tree.path_to(node), sample_dense(p, rng.next_f64())

    accepted = judge(ROOT, 1.0)
    assert accepted is not None, "the root accepts what is left"
    return accepted

"""From the law after a node to its children."""

from typing import assert_never

import numpy as np

from spec.choices import Children
from spec.distribution import Generator, Row, sample_dense


def best_tokens(q: Row, num_best: int) -> list[int]:
    """Give the tokens of most probability, best first, ties to the lower id; none of probability 0."""
    if num_best >= len(q):
        candidates = np.flatnonzero(q)
    elif num_best == 1:
        best = int(q.argmax())
        return [best] if q[best] > 0 else []
    else:
        #   all that tie with the last of them stay in, and the sort is stable
        least = np.partition(q, -num_best)[-num_best]
        candidates = np.flatnonzero(q >= least) if least > 0 else np.flatnonzero(q)
    order = candidates[np.argsort(-q[candidates], kind="stable")]
    tokens: list[int] = order[:num_best].tolist()
    return tokens


def take_children(q: Row, num_children: int, children: Children, rng: Generator) -> list[int]:
    """Take the children of one node from its law `q` `[V]`: fewer where no token of positive probability is left.

    "top" draws nothing. "iid" draws each from `q`, "distinct" each from `q` without the ones taken, normalised: one
    uniform per child. `q` stays as it is.
    """
    match children:
        case "top":
            return best_tokens(q, num_children)
        case "iid":
            return [sample_dense(q, rng.next_f64()) for _ in range(num_children)]
        case "distinct":
            return _draw_distinct(q, num_children, rng)
        case _:
            assert_never(children)


def _draw_distinct(q: Row, num_children: int, rng: Generator) -> list[int]:
    taken: list[int] = []
    left = q
    while len(taken) < num_children:
        taken.append(sample_dense(left, rng.next_f64()))
        if len(taken) == num_children:
            break
        left = without(left, taken[-1])
        if not left.any():
            break
    return taken


def without(q: Row, token: int) -> Row:
    """Give the law without a token, normalised; all zeros where nothing is left."""
    left = q.copy()
    left[token] = 0.0
    mass = left.sum()
    if mass > 0:
        left /= mass
    return left

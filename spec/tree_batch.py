"""Many plain greedy trees verified together, layer by layer: only rows on a path are looked at."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spec.distribution import check_row
from spec.tree import ROOT, DraftTree


def follow_best(
    rows: NDArray[np.floating], firsts: Sequence[int], trees: Sequence[DraftTree]
) -> list[tuple[list[int], list[int]]]:
    """Give the path and the tokens of each tree, tree `j`'s rows being those from `firsts[j]` on.

    Raises SpecError for a bad row on a path.
    """
    below = [tree.children() for tree in trees]
    paths: list[list[int]] = [[] for _ in trees]
    tokens: list[list[int]] = [[] for _ in trees]
    at = [ROOT] * len(trees)
    live = list(range(len(trees)))
    while live:
        of_nodes = rows[[firsts[j] + at[j] + 1 for j in live]]
        best: list[int] = of_nodes.argmax(axis=1).tolist()
        if not np.isfinite(of_nodes[np.arange(len(best)), best]).all():
            for row, token in zip(of_nodes, best, strict=True):
                check_row(row, token)
        going_on = []
        for j, token in zip(live, best, strict=True):
            tokens[j].append(token)
            for child in below[j][at[j]]:
                if trees[j].tokens[child] == token:
                    at[j] = child
                    paths[j].append(child)
                    going_on.append(j)
                    break
        live = going_on
    return list(zip(paths, tokens, strict=True))

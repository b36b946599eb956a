"""The tree of a given size that is accepted longest, and the size that pays (Sequoia, Chen et al. 2024, section 3)."""

import heapq
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spec.errors import SpecError
from spec.tree import MAX_NODES

Path = tuple[int, ...]
"""Ranks from the root down to a node."""


def best_trees(acceptance: Sequence[float], max_nodes: int, depth: int) -> list[list[Path]]:
    """Give, for every size up to `max_nodes`, the paths of the best tree of at most so many nodes and `depth` layers.

    Best is the largest sum over nodes of the chance that the node is accepted: the product of `acceptance` along its
    path. The paths of a tree are sorted by (length, path); `best_trees(...)[n - 1]` is the tree of `n` nodes.
    """
    if all(better >= worse for better, worse in pairwise(acceptance)):
        order = _best_products(acceptance, max_nodes, depth)
        trees = [order[:size] for size in range(1, max_nodes + 1)]
    else:
        trees = _by_program(acceptance, max_nodes, depth)
    return [sorted(tree, key=lambda path: (len(path), path)) for tree in trees]


def chance(acceptance: Sequence[float], path: Path) -> float:
    """Give the chance that a node is accepted."""
    product = 1.0
    for rank in path:
        product *= acceptance[rank]
    return product


def _best_products(acceptance: Sequence[float], max_nodes: int, depth: int) -> list[Path]:
    """Take nodes by their chance, ties to the shallower, then the earlier path: a parent is never behind its child."""
    taken: list[Path] = []
    open_nodes: list[tuple[float, int, Path]] = [(-1.0, 0, ())]
    while open_nodes and len(taken) <= max_nodes:
        product, length, path = heapq.heappop(open_nodes)
        taken.append(path)
        if length < depth:
            for rank, p in enumerate(acceptance):
                if p * -product > 0:
                    heapq.heappush(open_nodes, (product * p, length + 1, (*path, rank)))
    return taken[1:]


def _by_program(acceptance: Sequence[float], max_nodes: int, depth: int) -> list[list[Path]]:
    """Where a later child may be the likelier one: the dynamic program over layers, ranks and sizes.

    `below[d][n]` is the best sum of `n` nodes in `d` layers under a node, `split[d][j][n]` how many of the `n` nodes
    under it that are left for its children from rank `j` on go to rank `j`: 0 leaves the node without them.
    """
    num_layers = min(depth, max_nodes)
    below = [np.zeros(max_nodes + 1)]
    split: list[list[NDArray[np.intp]]] = [[]]
    for _ in range(num_layers):
        of_rest = np.zeros(max_nodes + 1)
        splits = []
        for p in reversed(acceptance):
            of_rest, first = _best_split(p * (1 + below[-1]), of_rest)
            splits.append(first)
        below.append(of_rest)
        split.append(splits[::-1])

    def paths(size: int, layers: int, prefix: Path) -> list[Path]:
        found: list[Path] = []
        for rank, first in enumerate(split[layers]):
            if not first[size]:
                break
            found.append((*prefix, rank))
            found += paths(int(first[size]) - 1, layers - 1, found[-1])
            size -= int(first[size])
        return found

    return [paths(size, num_layers, ()) for size in range(1, max_nodes + 1)]


def _best_split(
    of_subtree: NDArray[np.float64], of_rest: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """For every `n`: the best sum, and of how many nodes the first subtree then is (0: nothing is worth a node).

    `of_subtree[m]` is what a subtree of `m + 1` nodes is worth, `of_rest[m]` what `m` nodes are under later ranks.
    """
    best, first = np.zeros(len(of_rest)), np.zeros(len(of_rest), np.intp)
    for n in range(1, len(of_rest)):
        sums = of_subtree[:n] + of_rest[n - 1 :: -1]
        at = int(sums.argmax())
        if sums[at] > 0:
            best[n], first[n] = sums[at], at + 1
    return best, first


class Paying(NamedTuple):
    """How many nodes a round should have, and the expected tokens per unit of cost that they bring."""

    nodes: int
    rate: float


def nodes_that_pay(
    sums: Sequence[float], layers: Sequence[int], pass_cost: Sequence[float], layer_cost: float
) -> Paying:
    """Find the number of nodes `n` with the most expected tokens per cost; ties go to the smaller.

    `sums[n - 1]` is the expected number of accepted nodes of the tree of `n`, `layers[n - 1]` how many layers of the
    proposer it takes, `pass_cost[r]` the cost of a target's pass over `r` rows, for `r` up to `len(sums) + 1`.
    """
    if len(pass_cost) < len(sums) + 2:
        raise SpecError(f"pass_cost has {len(pass_cost)} entries: {len(sums) + 2}, for 0 to {len(sums) + 1} rows")
    rates = [
        (1 + expected) / (pass_cost[n + 1] + depth * layer_cost)
        for n, (expected, depth) in enumerate(zip(sums, layers, strict=True), 1)
    ]
    best = max(rates)
    return Paying(rates.index(best) + 1, best)


def sequoia_nodes(acceptance: Sequence[float], depth: int, pass_cost: Sequence[float], layer_cost: float) -> Paying:
    """Find how many nodes of a Sequoia tree pay."""
    trees = best_trees(acceptance, MAX_NODES, depth)
    sums = [sum(chance(acceptance, path) for path in tree) for tree in trees]
    layers = [max(map(len, tree), default=0) for tree in trees]
    return nodes_that_pay(sums, layers, pass_cost, layer_cost)

"""A draft tree in the making: it says after which nodes it wants the proposer's law, and grows by what it is given.

One layer is one question, so a proposer answers it for all sequences of a batch in one pass. Who answers does not
matter here: the one-sequence loop and an engine grow the same tree.
"""

import heapq
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from spec.children import best_tokens, take_children
from spec.choices import Children
from spec.distribution import Generator, Row
from spec.errors import refuse
from spec.layout import layout
from spec.shapes import AUTO, BestFirst, Chain, Dynamic, Shape, check_children
from spec.tree import ROOT, DraftTree
from spec.vocabulary import DraftVocabulary


class Drafted(NamedTuple):
    """A finished draft.

    `draft_probs[i]` is the law that node `i` was drawn from, None where nothing was drawn; siblings share one array.
    `values[i]` is the product of the proposer's probabilities along the path to node `i`, its chance of being
    accepted as far as the proposer can tell; None where children are drawn, for a drawn node may not be judged by
    its own token.
    """

    tree: DraftTree
    draft_probs: list[Row] | None
    values: list[float] | None


class Growth(Protocol):
    """A tree in the making."""

    tokens: list[int]
    parents: list[int]
    frontier: list[int]
    """The nodes after which a law is wanted now, -1 for the root; empty when the tree is grown."""

    def feed(self, laws: NDArray[np.float64]) -> None:
        """Grow by the laws after the frontier's nodes, float64 `[len(frontier), V]` over the draft vocabulary."""

    def result(self) -> Drafted:
        """Give the draft; the frontier is empty."""


def grow(
    shape: Shape, children: Children, max_depth: int, rng: Generator, vocabulary: DraftVocabulary | None = None
) -> Growth:
    """Start a tree of at most `max_depth` layers, whose children, if they are drawn, are drawn from `rng`.

    Without a `vocabulary` the laws that it is fed are over the target's. Raises SpecError for a shape whose nodes are
    still "auto", and for one that drawn children would make inexact.
    """
    check_children(shape, children)
    if isinstance(shape, Dynamic):
        return DynamicGrowth(shape, max_depth, vocabulary)
    if isinstance(shape, BestFirst):
        return BestFirstGrowth(shape, max_depth, vocabulary)
    plan = layout(shape, max_depth)
    p_min = shape.p_min if isinstance(shape, Chain) else 0.0
    return FixedGrowth(plan.parents, plan.ranks, children, rng, p_min, vocabulary)


def _as_ids(tokens: list[int], vocabulary: DraftVocabulary | None) -> list[int]:
    return tokens if vocabulary is None else [int(vocabulary.ids[token]) for token in tokens]


class FixedGrowth:
    """A tree whose nodes are known from the start; it lacks those for which there is no token.

    With top children it lacks too, with what hangs below it, a node of less probability than `p_min`.
    """

    def __init__(
        self,
        parents: Sequence[int],
        ranks: Sequence[int],
        children: Children,
        rng: Generator,
        p_min: float,
        vocabulary: DraftVocabulary | None,
    ) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.frontier: list[int] = []
        self._children = children
        self._rng = rng
        self._p_min = p_min
        self._vocabulary = vocabulary
        self._laws: list[Row] = []
        self._values: list[float] = []
        self._planned: list[list[int]] = [[] for _ in range(len(parents) + 1)]
        for node, parent in enumerate(parents):
            self._planned[parent].append(node)
        self._ranks = ranks
        self._plan_of = {ROOT: ROOT}  # by a node's number, the one that it has in the plan
        self._ask([ROOT])

    def _ask(self, nodes: Sequence[int]) -> None:
        self.frontier = [node for node in nodes if self._planned[self._plan_of[node]]]

    def feed(self, laws: NDArray[np.float64]) -> None:
        """Give every node of the frontier its children."""
        first_new = len(self.tokens)
        for node, q in zip(self.frontier, laws, strict=True):
            planned = self._planned[self._plan_of[node]]
            taken = take_children(q, self._ranks[planned[-1]] + 1, self._children, self._rng)
            tokens = _as_ids(taken, self._vocabulary)
            law = q if self._children == "top" or self._vocabulary is None else self._vocabulary.widen(q)
            for plan in planned:
                rank = self._ranks[plan]
                if rank >= len(tokens) or q[taken[rank]] < self._p_min:
                    break
                self._plan_of[len(self.tokens)] = plan
                self._values.append(float(q[taken[rank]]) * (1.0 if node == ROOT else self._values[node]))
                self._laws.append(law)
                self.tokens.append(tokens[rank])
                self.parents.append(node)
        self._ask(range(first_new, len(self.tokens)))

    def result(self) -> Drafted:
        """Give the draft."""
        assert not self.frontier, "laws are wanted still"
        tree = DraftTree(self.tokens, self.parents)
        if self._children == "top":
            return Drafted(tree, None, self._values)
        return Drafted(tree, self._laws, None)


class DynamicGrowth:
    """EAGLE-2's tree: in each layer the `top` best nodes of the last get `top` children; of all, the best stay."""

    def __init__(self, shape: Dynamic, max_depth: int, vocabulary: DraftVocabulary | None) -> None:
        if shape.nodes == AUTO:
            raise refuse("nodes", shape.nodes, "a number by the time that a tree is made")
        #   with a node stay all before it: no layer past the number of nodes has one that does
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self._vocabulary = vocabulary
        self._num_kept = shape.nodes
        self._top = shape.top
        self._layers_left = min(shape.max_depth, max_depth)
        self._values: list[float] = []
        self._depths: list[int] = []
        self.frontier: list[int] = [ROOT] if self._layers_left > 0 else []

    def feed(self, laws: NDArray[np.float64]) -> None:
        """Grow a layer."""
        first_new = len(self.tokens)
        for node, q in zip(self.frontier, laws, strict=True):
            value, depth = (1.0, 0) if node == ROOT else (self._values[node], self._depths[node])
            best = best_tokens(q, self._top)
            for token, word in zip(_as_ids(best, self._vocabulary), best, strict=True):
                self.tokens.append(token)
                self.parents.append(node)
                self._values.append(value * float(q[word]))
                self._depths.append(depth + 1)
        self._layers_left -= 1
        layer = sorted(range(first_new, len(self.tokens)), key=lambda node: -self._values[node])
        self.frontier = layer[: self._top] if self._layers_left > 0 else []

    def result(self) -> Drafted:
        """Give the best nodes; one is worth no more than its parent, which therefore stays with it."""
        assert not self.frontier, "laws are wanted still"
        order = sorted(range(len(self.tokens)), key=lambda node: (-self._values[node], self._depths[node]))
        kept = sorted(order[: self._num_kept])
        number = {ROOT: ROOT} | {node: i for i, node in enumerate(kept)}
        tree = DraftTree([self.tokens[node] for node in kept], [number[self.parents[node]] for node in kept])
        return Drafted(tree, None, [self._values[node] for node in kept])


class BestFirstGrowth:
    """The best nodes there are, taken one by one: a law for each that may have a child."""

    def __init__(self, shape: BestFirst, max_depth: int, vocabulary: DraftVocabulary | None) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self._vocabulary = vocabulary
        self._max_nodes = shape.nodes
        self._min_prob = shape.min_prob
        self._max_depth = max_depth
        self._values: list[float] = []
        self._open: list[tuple[float, int, int, int, int]] = []  # -value, depth, number when pushed, token, parent
        self._num_pushed = 0
        self._depth = 0  # of the node in the frontier
        self.frontier: list[int] = [ROOT] if max_depth > 0 else []

    def feed(self, laws: NDArray[np.float64]) -> None:
        """Open the children of the node in the frontier, and take the best open nodes up to one that may have some."""
        (q,), (node,) = laws, self.frontier
        value = 1.0 if node == ROOT else self._values[node]
        best = best_tokens(q, self._max_nodes - len(self.tokens))
        for token, word in zip(_as_ids(best, self._vocabulary), best, strict=True):
            of_child = value * float(q[word])
            heapq.heappush(self._open, (-of_child, self._depth + 1, self._num_pushed, token, node))
            self._num_pushed += 1
        self.frontier = []
        while self._open and len(self.tokens) < self._max_nodes and not self.frontier:
            negative, self._depth, _, token, parent = heapq.heappop(self._open)
            if -negative < self._min_prob:
                return
            self.tokens.append(token)
            self.parents.append(parent)
            self._values.append(-negative)
            if self._depth < self._max_depth and len(self.tokens) < self._max_nodes:
                self.frontier = [len(self.tokens) - 1]

    def result(self) -> Drafted:
        """Give the draft, its nodes in the order in which they were taken."""
        assert not self.frontier, "laws are wanted still"
        return Drafted(DraftTree(self.tokens, self.parents), None, self._values)

"""A round's draft on its way to a pass: what it holds, what it may come to, and what of it is worth feeding."""

from collections.abc import Sequence
from typing import Self

import msgspec

from spec import DraftTree


class Proposal(msgspec.Struct, frozen=True, gc=False):
    """A draft: a chain where `parents` is None, else a tree whose node `i` continues node `parents[i]`.

    `values[i]` is the chance of node `i` as far as the proposer can tell, None where it does not say. `num_nodes` count
    against the budget: of a draft that a model has still to make (`is_due`), as many as it may have. `rng_state` is
    where the generator of drafts stands after it, None where nothing draws.
    """

    tokens: list[int]
    parents: list[int] | None = None
    values: list[float] | None = None
    num_nodes: int = 0
    rng_state: int | None = None

    @classmethod
    def chain(cls, tokens: list[int]) -> Self:
        """Make the draft in which each token continues the one before."""
        return cls(tokens, None, None, len(tokens))

    @classmethod
    def tree(cls, tree: DraftTree, values: list[float] | None) -> Self:
        """Make the draft that is a tree, or a chain where nothing in it has a sibling."""
        return cls(list(tree.tokens), None if tree.is_chain else list(tree.parents), values, len(tree))

    @classmethod
    def due(cls, num_nodes: int) -> Self:
        """Leave room for a draft that a model is to make."""
        return cls([], num_nodes=num_nodes)

    @property
    def is_due(self) -> bool:
        """A model has still to make it."""
        return self.num_nodes > len(self.tokens)

    @property
    def depth(self) -> int:
        """Layers of the tree."""
        if self.parents is None:
            return len(self.tokens)
        return max(self.depths, default=0)

    @property
    def depths(self) -> list[int]:
        """Tokens on the path to each node, itself included."""
        if self.parents is None:
            return list(range(1, len(self.tokens) + 1))
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent < 0 else depths[parent] + 1)
        return depths

    def children(self) -> dict[int, list[int]]:
        """Give the children of every node that has some, the root's under -1."""
        below: dict[int, list[int]] = {}
        for node, parent in enumerate(range(-1, len(self.tokens) - 1) if self.parents is None else self.parents):
            below.setdefault(parent, []).append(node)
        return below

    def cut(self, nodes: Sequence[int]) -> "Proposal":
        """Keep these nodes, in rising order and each with its parent."""
        if len(nodes) == len(self.tokens):
            return self
        tokens = [self.tokens[node] for node in nodes]
        values = None if self.values is None else [self.values[node] for node in nodes]
        parents = None
        if self.parents is not None:
            number = {-1: -1} | {node: i for i, node in enumerate(nodes)}
            parents = [number[self.parents[node]] for node in nodes]
        return Proposal(tokens, parents, values, len(nodes), self.rng_state)


NO_PROPOSAL = Proposal([])

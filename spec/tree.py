"""A draft as a tree of tokens, and where what was accepted of it lies in the cache."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import msgspec

from spec.errors import SpecError, refuse

MAX_NODES = 64
ROOT = -1
"""The parent of the first nodes: the last token of the context."""


class DraftTree(msgspec.Struct, frozen=True, gc=False):
    """Node `i` continues node `parents[i]` (-1: the context) by `tokens[i]`; a parent comes before its children.

    Nodes are called by their index; siblings are tried in its order. Raises SpecError for what is no such tree, and
    for more than 64 nodes.

        context        0: a --- 2: c          tokens   a  b  c  d
        ... t  --------1: b --- 3: d          parents -1 -1  0  1
    """

    tokens: Sequence[int]
    parents: Sequence[int]

    def __post_init__(self) -> None:
        if len(self.parents) != len(self.tokens):
            raise SpecError(f"{len(self.parents)} parents for {len(self.tokens)} tokens: one for each")
        if len(self.tokens) > MAX_NODES:
            raise refuse("tokens", f"{len(self.tokens)} nodes", f"at most {MAX_NODES}")
        for node, parent in enumerate(self.parents):
            if not ROOT <= parent < node:
                raise refuse(f"parents[{node}]", parent, f"a node in [-1, {node})")

    @classmethod
    def chain(cls, tokens: Sequence[int]) -> Self:
        """Make the tree in which each token continues the one before."""
        return cls(tokens, range(-1, len(tokens) - 1))

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def is_chain(self) -> bool:
        """No node has a sibling."""
        return all(parent == node - 1 for node, parent in enumerate(self.parents))

    @property
    def depths(self) -> list[int]:
        """Tokens on the path to each node, itself included: 1 for a child of the root."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent == ROOT else depths[parent] + 1)
        return depths

    def path_to(self, node: int) -> list[int]:
        """Give the nodes from the root's child down to `node`; nothing for the root."""
        path = []
        while node != ROOT:
            path.append(node)
            node = self.parents[node]
        return path[::-1]

    def tokens_to(self, node: int) -> list[int]:
        """Give the tokens on the path to `node`."""
        return [self.tokens[step] for step in self.path_to(node)]

    def children(self) -> list[list[int]]:
        """Give the children of every node in order; the root's come last, so that index -1 finds them."""
        below: list[list[int]] = [[] for _ in range(len(self.tokens) + 1)]
        for node, parent in enumerate(self.parents):
            below[parent].append(node)
        return below

    def fed_after(self, num_pending: int) -> list[int]:
        """Give the parents as a pass wants them that feeds `num_pending` tokens, a chain, and the tree after them.

        Parents are then indices of what is fed, and -1 is the end of what is cached.
        """
        return [*range(-1, num_pending - 1), *(num_pending + parent for parent in self.parents)]


NO_DRAFT = DraftTree((), ())


class Compaction(NamedTuple):
    """What to do to the cache after a round: carry out `moves` in their order, then keep the first `cached` slots."""

    moves: list[tuple[int, int]]
    """`(from slot, to slot)`; no slot is overwritten before it has been moved."""
    cached: int


def compaction(cached: int, num_pending: int, path: Sequence[int], num_kept: int) -> Compaction:
    """Move the slots of the accepted nodes together.

    A pass over `num_pending` tokens and a tree, on top of `cached` positions, has put pending token `j` in slot
    `cached + j` and node `i` in slot `cached + num_pending + i`. The round delivered `num_kept` tokens, of which the
    last is not cached: of the accepted `path` the first `num_kept - 1` nodes stay.

        0 ....... cached ....... first ........ first + n
                  |--- pending ---|--- n nodes ----|
                                  |-path-|  after the moves, and nothing behind it
    """
    first = cached + num_pending
    kept = path[: max(0, num_kept - 1)]
    moves = [(first + node, first + depth) for depth, node in enumerate(kept) if node != depth]
    return Compaction(moves, first + len(kept))

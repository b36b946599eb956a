"""The nodes of the shapes that are the same in every round, before any token is known."""

from functools import lru_cache
from itertools import product
from typing import NamedTuple

from spec.errors import refuse
from spec.sequoia import Path, best_trees
from spec.shapes import AUTO, BestFirst, Chain, Dynamic, Expansion, Sequoia, Shape, Static
from spec.tree import ROOT

FixedShape = Chain | Expansion | Static | Sequoia


class Layout(NamedTuple):
    """Nodes layer by layer, by parent and then rank among siblings: the parent and the rank of each."""

    parents: list[int]
    ranks: list[int]


def layout(shape: FixedShape, max_depth: int) -> Layout:
    """Give the nodes of a shape that lie no deeper than `max_depth`. Raises SpecError for nodes "auto"."""
    number: dict[Path, int] = {(): ROOT}
    parents: list[int] = []
    ranks: list[int] = []
    for path in _paths(shape):
        if len(path) > max_depth:
            break
        number[path] = len(parents)
        parents.append(number[path[:-1]])
        ranks.append(path[-1])
    return Layout(parents, ranks)


@lru_cache(256)
def _paths(shape: FixedShape) -> tuple[Path, ...]:
    """Give the rank path of every node, sorted by (length, path)."""
    match shape:
        case Chain():
            return tuple((0,) * depth for depth in range(1, shape.k + 1))
        case Expansion():
            layers = [map(range, shape.widths[:depth]) for depth in range(1, len(shape.widths) + 1)]
            return tuple(path for layer in layers for path in product(*layer))
        case Static():
            return shape.paths
        case Sequoia():
            if shape.nodes == AUTO:
                raise refuse("nodes", shape.nodes, "a number by the time that a tree is made")
            return tuple(best_trees(shape.acceptance, shape.nodes, shape.depth)[-1])


@lru_cache(1024)
def max_nodes(shape: Shape, max_depth: int) -> int:
    """Give the most nodes that a tree of this shape has where it may be no deeper than `max_depth`."""
    match shape:
        case BestFirst():
            return shape.nodes if max_depth > 0 else 0
        case Dynamic():
            layers = min(shape.depth, max_depth)
            return min(shape.max_nodes, shape.top + (layers - 1) * shape.top**2) if layers > 0 else 0
        case _:
            return len(layout(shape, max_depth).parents)

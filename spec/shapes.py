"""The shape of a draft tree: which nodes it has. A shape is data; `spec.layout` and `spec.growth` make trees of it."""

from typing import Literal

import msgspec

from spec.choices import Children
from spec.errors import check_int, check_probability, refuse
from spec.tree import MAX_NODES

Auto = Literal["auto"]
AUTO: Auto = "auto"
"""As many nodes as pay at the measured cost of a pass; a number before a tree is made."""


class ShapeStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """What the shapes are made of: checked when made (SpecError), and in JSON or TOML told apart by `kind`."""

    @property
    def kind(self) -> str:
        """The name by which JSON and TOML know the shape."""
        return str(self.__struct_config__.tag)


class Chain(ShapeStruct, frozen=True, tag="chain"):
    """`k` tokens, one after the other; with top children it ends before a token of less probability than `p_min`."""

    k: int
    """The most tokens."""
    p_min: float = 0.0
    """The least probability of a token that is drafted."""

    def __post_init__(self) -> None:
        check_int("k", self.k, 1, MAX_NODES)
        check_probability("p_min", self.p_min)

    @property
    def max_nodes(self) -> int:
        """Nodes of the largest tree."""
        return self.k

    @property
    def max_depth(self) -> int:
        """Layers of the deepest tree."""
        return self.k


class Expansion(ShapeStruct, frozen=True, tag="expansion"):
    """Every node of depth `i` has `widths[i]` children (SpecInfer, Miao et al. 2024: `<k1, .., kd>`)."""

    widths: tuple[int, ...]
    """Children of a node, layer by layer."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "widths", tuple(self.widths))
        if not self.widths:
            raise refuse("widths", self.widths, "at least one layer")
        for layer, width in enumerate(self.widths):
            check_int(f"widths[{layer}]", width, 1, MAX_NODES)
        if self.max_nodes > MAX_NODES:
            raise refuse("widths", self.widths, f"at most {MAX_NODES} nodes, not {self.max_nodes}")

    @property
    def max_nodes(self) -> int:
        """Nodes of the largest tree."""
        num_nodes, layer = 0, 1
        for width in self.widths:
            layer *= width
            num_nodes += layer
        return num_nodes

    @property
    def max_depth(self) -> int:
        """Layers of the deepest tree."""
        return len(self.widths)


class Static(ShapeStruct, frozen=True, tag="static"):
    """Paths of ranks as Medusa writes them (Cai et al. 2024): `[0, 2]` is the third best child of the best one.

    Nodes are numbered by (length, path); the prefixes of a path must be there too.
    """

    paths: tuple[tuple[int, ...], ...]
    """A path of ranks for every node."""

    def __post_init__(self) -> None:
        paths = sorted((tuple(path) for path in self.paths), key=lambda path: (len(path), path))
        msgspec.structs.force_setattr(self, "paths", tuple(paths))
        if not 1 <= len(paths) <= MAX_NODES:
            raise refuse("paths", f"{len(paths)} paths", f"1 to {MAX_NODES}")
        known: set[tuple[int, ...]] = {()}
        for path in paths:
            for rank in path:
                check_int(f"a rank of the path {list(path)}", rank, 0)
            if not path or path in known:
                raise refuse("paths", list(path), "each once, and none empty")
            if path[:-1] not in known:
                raise refuse("paths", list(path), f"its prefix {list(path[:-1])} must be there too")
            known.add(path)

    @property
    def has_gaps(self) -> bool:
        """Some node has a child of a rank, and none of a lower one: only the best children have ranks."""
        known = set(self.paths)
        return any(path[-1] and (*path[:-1], path[-1] - 1) not in known for path in self.paths)

    @property
    def max_nodes(self) -> int:
        """Nodes of the largest tree."""
        return len(self.paths)

    @property
    def max_depth(self) -> int:
        """Layers of the deepest tree."""
        return len(self.paths[-1])


class Sequoia(ShapeStruct, frozen=True, tag="sequoia"):
    """The tree of at most `nodes` nodes and `depth` layers that is accepted longest (Sequoia, Chen et al. 2024).

    `acceptance[j]` is the chance that the `j`-th child is the accepted one, wherever in the tree.
    """

    acceptance: tuple[float, ...]
    """For every rank the chance that this child is the accepted one."""
    nodes: int | Auto
    """The most nodes; `auto` is as many as pay at the measured cost of a pass."""
    depth: int
    """The most layers."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "acceptance", tuple(self.acceptance))
        if not 1 <= len(self.acceptance) <= MAX_NODES:
            raise refuse("acceptance", self.acceptance, f"1 to {MAX_NODES} numbers")
        for rank, chance in enumerate(self.acceptance):
            check_probability(f"acceptance[{rank}]", chance)
        _check_nodes(self.nodes)
        check_int("depth", self.depth, 1)

    @property
    def max_nodes(self) -> int:
        """Nodes of the largest tree."""
        return MAX_NODES if self.nodes == AUTO else self.nodes

    @property
    def max_depth(self) -> int:
        """Layers of the deepest tree."""
        return min(self.depth, self.max_nodes)


class Dynamic(ShapeStruct, frozen=True, tag="dynamic"):
    """In each of `depth` layers the `top` best tokens after the `top` best nodes; the `nodes` best of all stay.

    A node is worth the product of the proposer's probabilities along its path (EAGLE-2, Li et al. 2024).
    """

    nodes: int | Auto
    """The most nodes; `auto` is as many as pay at the measured cost of a pass."""
    top: int
    """Nodes of a layer that are followed, and children of each."""
    depth: int
    """The most layers."""

    def __post_init__(self) -> None:
        _check_nodes(self.nodes)
        check_int("top", self.top, 1, MAX_NODES)
        check_int("depth", self.depth, 1, MAX_NODES)

    @property
    def max_nodes(self) -> int:
        """Nodes of the largest tree."""
        num_candidates = self.top + (self.depth - 1) * self.top**2
        return min(num_candidates, MAX_NODES if self.nodes == AUTO else self.nodes)

    @property
    def max_depth(self) -> int:
        """Layers of the deepest tree."""
        return min(self.depth, self.max_nodes)


class BestFirst(ShapeStruct, frozen=True, tag="best_first"):
    """The `nodes` best-valued nodes there are, none worth less than `min_prob` (suffix decoding, Oliaro et al. 2024).

    A node is worth the product of the proposer's probabilities along its path.
    """

    nodes: int
    """The most nodes."""
    min_prob: float = 0.1
    """The least value of a node."""

    def __post_init__(self) -> None:
        check_int("nodes", self.nodes, 1, MAX_NODES)
        check_probability("min_prob", self.min_prob)

    @property
    def max_nodes(self) -> int:
        """Nodes of the largest tree."""
        return self.nodes

    @property
    def max_depth(self) -> int:
        """Layers of the deepest tree."""
        return self.nodes


Shape = Chain | Expansion | Static | Sequoia | Dynamic | BestFirst


def _check_nodes(nodes: int | Auto) -> None:
    if nodes != AUTO:
        check_int("nodes", nodes, 1, MAX_NODES)


def check_children(shape: Shape, children: Children) -> None:
    """Refuse with SpecError a shape that depends on what was drawn: the target's law would be lost.

    With sampled children it may depend only on what was known before a node's token was drawn whether the node is in
    the tree.
    """
    if children == "top":
        return
    if isinstance(shape, Dynamic | BestFirst):
        raise refuse("children", children, f"'top' where shape is {shape.kind!r}: which nodes it has depends on tokens")
    if isinstance(shape, Chain) and shape.p_min > 0:
        raise refuse("children", children, f"'top' where shape has p_min {shape.p_min}: its end depends on tokens")
    if isinstance(shape, Static) and shape.has_gaps:
        raise refuse("children", children, "'top' where shape has paths with gaps: draws have no rank to leave out")

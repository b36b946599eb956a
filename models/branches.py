"""The token trees of a pass as arrays: which fed ids are off the chain, what each hangs on, and how deep."""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.protocol import Chunk

Ints = NDArray[np.intp]


class Branches(NamedTuple):
    """The fed ids from the first fork of their chunk on, for all chunks of a pass, one after the other.

    ids of a chunk    0 ........ stem ........ len(ids)
                      | a chain |  branches  |
                              ^ what branches of depth 0 hang on; where the stem is 0, what is cached
    """

    rows: Ints
    """`[n]`: which of all ids fed in the pass."""
    chunk_of: Ints
    """`[n]`"""
    slots: Ints
    """`[n]`: slot in the sequence, `start` and the place among the chunk's ids."""
    parents: Ints
    """`[n]`: which branch it hangs on, -1 for the end of the stem."""
    depths: Ints
    """`[n]`: number of branches among its ancestors."""

    @property
    def num_layers(self) -> int:
        """One more than the largest depth."""
        return int(self.depths.max()) + 1


def find_branches(chunks: Sequence[Chunk]) -> tuple[Ints, Branches] | None:
    """Give each chunk's stem, the number of ids before its first fork, and what follows; None where all are chains.

    Raises ValueError, naming the chunk, for parents that are not one per id or not before their child.
    """
    trees = [i for i, chunk in enumerate(chunks) if chunk.parents is not None]
    if not trees:
        return None
    lengths = np.fromiter((len(chunk.ids) for chunk in chunks), np.intp, len(chunks))
    firsts = lengths.cumsum() - lengths
    stems = lengths.copy()
    parents = _parents(chunks, trees)
    sizes = lengths[trees]
    before = sizes.cumsum() - sizes
    tree_of = np.repeat(np.arange(len(trees)), sizes)
    index = np.arange(len(parents)) - before[tree_of]
    is_wrong = (parents < -1) | (parents >= index)
    if is_wrong.any():
        at = int(is_wrong.argmax())
        raise ValueError(
            f"chunk {trees[tree_of[at]]}: the parent of id {index[at]} is {parents[at]}, must be in [-1, {index[at]})"
        )
    forks = np.where(parents == index - 1, sizes[tree_of], parents + 1)
    stems[trees] = np.minimum.reduceat(forks, before)
    #   only what stands at or after its tree's first fork is a branch
    stem_of = stems[trees][tree_of]
    is_branch = index >= stem_of
    if not is_branch.any():
        return None
    number = is_branch.cumsum() - 1
    index, tree_of, stem_of = index[is_branch], tree_of[is_branch], stem_of[is_branch]
    parents = parents[is_branch]
    parents = np.where(parents >= stem_of, number[before[tree_of] + np.maximum(parents, 0)], -1)
    depths = np.zeros(len(parents), np.intp)
    ancestors = parents
    while (ancestors >= 0).any():
        depths += ancestors >= 0
        ancestors = np.where(ancestors >= 0, parents[ancestors], -1)
    chunk_of = np.array(trees, np.intp)[tree_of]
    starts = np.fromiter((chunk.start for chunk in chunks), np.intp, len(chunks))
    return stems, Branches(firsts[chunk_of] + index, chunk_of, starts[chunk_of] + index, parents, depths)


def _parents(chunks: Sequence[Chunk], trees: Sequence[int]) -> Ints:
    for i in trees:
        num_ids, num_parents = len(chunks[i].ids), len(chunks[i].parents or ())
        if num_parents != num_ids or not num_ids:
            raise ValueError(f"chunk {i}: {num_parents} parents for {num_ids} ids, must be one each and at least one")
    return np.fromiter(chain.from_iterable(chunks[i].parents or () for i in trees), np.intp)

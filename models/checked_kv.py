"""KV memory that remembers whose it is: a slot holds its token, its position and a checksum chained over its prefix.

A pass reads its context back through the block table, so a block that is stale, was never written, was stolen or
belongs to another sequence cannot go unseen. In a token tree the checksum is chained over the path: an accepted node
that was not moved to where the context goes on, or one that hung elsewhere, is found by the next pass. What a pass
costs grows with its blocks, not with its positions: slots within a block are compared with each other once after they
were written, the seams between blocks in every pass.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.branches import Branches, find_branches
from models.protocol import Chunk, SlotMove, places

_MULTIPLIER = 6364136223846793005
_INCREMENT = 1442695040888963407
_MASK64 = (1 << 64) - 1
_EMPTY = 0x9E3779B97F4A7C15  # the checksum of no tokens at all; a slot never written holds 0
MULTIPLIER = np.uint64(_MULTIPLIER)
INCREMENT = np.uint64(_INCREMENT)
_TOKEN, _POSITION = np.uint64(2**32 - 1), np.uint64(32)  # the bits of a word that are the token; where the others begin


class KvMismatch(RuntimeError):
    """A block table leads to memory that does not hold the sequence's context."""


class Rows(NamedTuple):
    """The fed ids that rows of logits are wanted for, chunk after chunk, and where they are."""

    positions: NDArray[np.intp]
    slots: NDArray[np.intp]
    """The slot of each in its sequence; in a chain its position."""
    tables: NDArray[np.intp]
    """For each row, where its sequence's table begins in `blocks`."""
    blocks: NDArray[np.intp]
    """The tables of a pass, one after the other."""
    steps: "_Steps | None"
    """How to walk back along a tree's paths; None where every slot follows the one before it."""


class _Steps(NamedTuple):
    """For the branches of a pass: the slot of each one's parent, and which branch that is, -1 where it is none."""

    branch_of: NDArray[np.intp]  # per row, -1 where it is on a chain
    slots: NDArray[np.intp]
    branches: NDArray[np.intp]


class _Fed(NamedTuple):
    """A pass in numbers: `i` runs over chunks, `b` over the blocks of all tables."""

    starts: NDArray[np.intp]  # [i] first slot fed
    ends: NDArray[np.intp]  # [i] slot past the last
    forks: NDArray[np.intp]  # [i] slot past those fed that are a chain
    tables: NDArray[np.intp]  # [i] where the chunk's table begins in `blocks`
    blocks: NDArray[np.intp]  # [b]
    chunk_of: NDArray[np.intp]  # [b]
    ordinals: NDArray[np.intp]  # [b] place in its own table


class CheckedMemory:
    """Slots for `num_blocks` blocks of `block_tokens` positions."""

    def __init__(self, num_blocks: int, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self._words = np.zeros((num_blocks, block_tokens), np.uint64)  # the token, and from bit 32 on its position
        self._sums = np.zeros((num_blocks, block_tokens), np.uint64)
        self._num_chained = np.ones(num_blocks, np.intp)  # leading slots known to continue each other
        self._powers = np.ones(1, np.uint64)
        self._inverses = np.ones(1, np.uint64)

    def extend(self, chunks: Sequence[Chunk]) -> Rows:
        """Check every chunk's context and write the ids it feeds.

        Raises KvMismatch, naming chunk, position and block, where a slot does not continue the one before it, and
        ValueError, with nothing written, for parents that make no tree.
        """
        trees = find_branches(chunks)
        fed = self._number(chunks, trees)
        self._check(fed)
        branches = None if trees is None else trees[1]
        self._write(fed, chunks, branches)
        num_rows = np.array([chunk.num_rows for chunk in chunks], np.intp)
        before = num_rows.cumsum() - num_rows
        slots = np.arange(int(num_rows.sum())) + np.repeat(fed.ends - num_rows - before, num_rows)
        tables = np.repeat(fed.tables, num_rows)
        if branches is None:
            return Rows(slots, slots, tables, fed.blocks, None)
        num_fed = fed.ends - fed.starts
        rows = slots + np.repeat(num_fed.cumsum() - fed.ends, num_rows)  # among all fed ids
        branch_of = np.full(int(num_fed.sum()), -1)
        branch_of[branches.rows] = np.arange(len(branches.rows))
        forks = fed.forks[branches.chunk_of]
        positions = slots.copy()
        is_branch = branch_of[rows] >= 0
        positions[is_branch] = (forks + branches.depths)[branch_of[rows[is_branch]]]
        parent_slots = np.where(branches.parents >= 0, branches.slots[branches.parents], forks - 1)
        return Rows(positions, slots, tables, fed.blocks, _Steps(branch_of[rows], parent_slots, branches.parents))

    def read(self, contexts: Sequence[tuple[Sequence[int], int]]) -> Rows:
        """Check contexts, each a table and its length in positions, and give where they end. Raises KvMismatch."""
        return self.extend([Chunk((), length, table, 1) for table, length in contexts])

    def walk_back(self, rows: Rows) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.bool_]]]:
        """Give each row's own token, then the one before it, and so on; and whether there is one."""
        slots, steps = rows.slots, rows.steps
        branches = None if steps is None else steps.branch_of
        back = 0
        while True:
            is_there = rows.positions >= back
            at = np.where(is_there, slots, 0)
            words = self._words[rows.blocks[rows.tables + at // self.block_tokens], at % self.block_tokens]
            yield words & _TOKEN, is_there
            back += 1
            if steps is None or branches is None:
                slots = slots - 1
            else:
                on_branch = branches >= 0
                slots = np.where(on_branch, steps.slots[branches], slots - 1)
                branches = np.where(on_branch, steps.branches[branches], -1)

    def sums_at(self, rows: Rows) -> NDArray[np.uint64]:
        """Give the checksum of each row's whole context."""
        at = rows.slots
        sums: NDArray[np.uint64] = self._sums[
            rows.blocks[rows.tables + at // self.block_tokens], at % self.block_tokens
        ]
        return sums

    def move_slots(self, moves: Sequence[SlotMove]) -> None:
        """Move what slots hold; all sources are read before any destination is written."""
        source, destination = places(moves, self.block_tokens)
        for memory in (self._words, self._sums):
            memory[destination] = memory[source]
        blocks, slots = destination
        np.minimum.at(self._num_chained, blocks, np.maximum(slots, 1))

    def _number(self, chunks: Sequence[Chunk], trees: tuple[NDArray[np.intp], Branches] | None) -> _Fed:
        starts = np.array([chunk.start for chunk in chunks], np.intp)
        ends = starts + np.array([len(chunk.ids) for chunk in chunks], np.intp)
        num_blocks = -(-ends // self.block_tokens)
        for i, (chunk, needed) in enumerate(zip(chunks, num_blocks.tolist(), strict=True)):
            if len(chunk.table) != needed:
                raise KvMismatch(f"chunk {i}: {len(chunk.table)} blocks for {ends[i]} slots")
        blocks = np.fromiter(chain.from_iterable(chunk.table for chunk in chunks), np.intp, int(num_blocks.sum()))
        tables = num_blocks.cumsum() - num_blocks
        chunk_of = np.repeat(np.arange(len(chunks)), num_blocks)
        forks = ends if trees is None else starts + trees[0]
        return _Fed(starts, ends, forks, tables, blocks, chunk_of, np.arange(len(blocks)) - tables[chunk_of])

    def _check(self, fed: _Fed) -> None:
        """Compare every slot of the contexts with the one before it, as far as that has not been done."""
        size = self.block_tokens
        held = np.clip(fed.starts[fed.chunk_of] - fed.ordinals * size, 0, size)  # context slots in each block
        before = np.empty(len(held), np.uint64)
        before[1:] = self._sums[fed.blocks[:-1], size - 1]
        before[fed.tables] = _EMPTY
        words = self._words[fed.blocks, 0]
        seams = before * MULTIPLIER + ((words & _TOKEN) + INCREMENT)
        is_wrong = seams != self._sums[fed.blocks, 0]
        is_wrong |= (words >> _POSITION).view(np.intp) != fed.ordinals * size
        is_wrong &= held > 0
        if is_wrong.any():
            self._refuse(fed, int(is_wrong.argmax()), 0)
        unsure = np.flatnonzero(held > self._num_chained[fed.blocks])
        if len(unsure):
            self._check_within(fed, unsure, held[unsure])

    def _check_within(self, fed: _Fed, unsure: NDArray[np.intp], held: NDArray[np.intp]) -> None:
        blocks = fed.blocks[unsure]
        sums, words = self._sums[blocks], self._words[blocks]
        tokens, positions = words & _TOKEN, words >> _POSITION
        continues = np.ones(sums.shape, bool)
        continues[:, 1:] = sums[:, :-1] * MULTIPLIER + (tokens[:, 1:] + INCREMENT) == sums[:, 1:]
        continues[:, 1:] &= positions[:, :-1] + np.uint64(1) == positions[:, 1:]
        num_chained = np.where(continues.all(axis=1), self.block_tokens, continues.argmin(axis=1))
        if (num_chained < held).any():
            first = int((num_chained < held).argmax())
            self._refuse(fed, int(unsure[first]), int(num_chained[first]))
        self._num_chained[blocks] = num_chained

    def _refuse(self, fed: _Fed, at: int, slot: int) -> None:
        i, block = int(fed.chunk_of[at]), int(fed.blocks[at])
        position = int(fed.ordinals[at]) * self.block_tokens + slot
        word = self._words[block, slot]
        raise KvMismatch(
            f"chunk {i} (start {fed.starts[i]}): position {position} in block {block} holds token "
            f"{word & _TOKEN} of position {word >> _POSITION} and does not continue the position before it"
        )

    def _write(self, fed: _Fed, chunks: Sequence[Chunk], branches: Branches | None) -> None:
        size = self.block_tokens
        num_fed = fed.ends - fed.starts
        ahead = num_fed.cumsum() - num_fed
        total = int(num_fed.sum())
        ids = np.fromiter(chain.from_iterable(chunk.ids for chunk in chunks), np.uint64, total)
        slots = np.arange(total) + np.repeat(fed.starts - ahead, num_fed)
        blocks = fed.blocks[np.repeat(fed.tables, num_fed) + slots // size]
        last = np.maximum(fed.starts - 1, 0)
        previous = np.where(
            fed.starts > 0, self._sums[fed.blocks[fed.tables + last // size], last % size], np.uint64(_EMPTY)
        )
        if branches is None:
            positions, sums = slots, self._chain(ids, num_fed, ahead, previous)
        else:
            positions = slots.copy()
            positions[branches.rows] = fed.forks[branches.chunk_of] + branches.depths
            sums = self._chain_paths(ids, fed.forks - fed.starts, ahead, previous, branches)
        at = blocks, slots % size
        self._words[at] = ids | positions.view(np.uint64) << _POSITION
        self._sums[at] = sums
        #   in a block that was written from slot `first` on, each slot up to `past` continues the one before it
        written = np.flatnonzero((fed.ordinals + 1) * size > fed.starts[fed.chunk_of])
        offsets = fed.ordinals[written] * size
        first = np.maximum(fed.starts[fed.chunk_of[written]] - offsets, 0)
        past = np.minimum(np.maximum(fed.forks[fed.chunk_of[written]] - offsets, 1), size)
        known = self._num_chained[fed.blocks[written]]
        self._num_chained[fed.blocks[written]] = np.where(known >= first, past, known)

    def _chain(
        self, ids: NDArray[np.uint64], fed: NDArray[np.intp], before: NDArray[np.intp], previous: NDArray[np.uint64]
    ) -> NDArray[np.uint64]:
        """Chain `h <- h * M + token + c` through every chunk at once, modulo 2**64.

        With M odd, h[j] = M**j * (h[0] + sum over i < j of (token[i] + c) * M**-(i + 1)): a running sum.
        """
        self._grow_powers(int(fed.max(initial=0)) + 1)
        if not len(ids):
            return ids
        j = np.arange(len(ids)) - np.repeat(before, fed)
        running = np.cumsum((ids + INCREMENT) * self._inverses[j + 1])
        base = np.where(before > 0, running[np.maximum(before, 1) - 1], np.uint64(0))
        chained_to: NDArray[np.uint64] = self._powers[j + 1] * (running - np.repeat(base - previous, fed))
        return chained_to

    def _chain_paths(
        self,
        ids: NDArray[np.uint64],
        stems: NDArray[np.intp],
        ahead: NDArray[np.intp],
        previous: NDArray[np.uint64],
        branches: Branches,
    ) -> NDArray[np.uint64]:
        """Chain through the stem of every chunk and then, layer by layer, from each branch's parent to it."""
        sums = np.empty(len(ids), np.uint64)
        is_stem = np.ones(len(ids), bool)
        is_stem[branches.rows] = False
        sums[is_stem] = self._chain(ids[is_stem], stems, stems.cumsum() - stems, previous)
        stem_ends = np.where(stems > 0, sums[np.maximum(ahead + stems, 1) - 1], previous)
        for depth in range(branches.num_layers):
            layer = np.flatnonzero(branches.depths == depth)
            rows, parents = branches.rows[layer], branches.rows[branches.parents[layer]]
            before = sums[parents] if depth else stem_ends[branches.chunk_of[layer]]
            sums[rows] = before * MULTIPLIER + (ids[rows] + INCREMENT)
        return sums

    def _grow_powers(self, count: int) -> None:
        if len(self._powers) < count:
            count = max(count, 2 * len(self._powers))
            self._powers = powers_of(MULTIPLIER, count)
            self._inverses = powers_of(np.uint64(pow(_MULTIPLIER, -1, 1 << 64)), count)


class CheckedModel:
    """What the models over this memory have in common: everything of a `Model` but the pass."""

    def __init__(self, vocab_size: int, max_model_len: int) -> None:
        self._vocab_size = vocab_size
        self._max_model_len = max_model_len
        self._memory = CheckedMemory(0, 1)

    @property
    def vocab_size(self) -> int:
        """Ids are in `[0, vocab_size)`."""
        return self._vocab_size

    @property
    def max_model_len(self) -> int:
        """Positions a sequence can have in the cache."""
        return self._max_model_len

    def bind(self, num_blocks: int, block_tokens: int) -> None:
        """Take fresh memory."""
        self._memory = CheckedMemory(num_blocks, block_tokens)

    def move_slots(self, moves: Sequence[SlotMove]) -> None:
        """Move KV within sequences."""
        self._memory.move_slots(moves)


def checksum(tokens: Sequence[int]) -> int:
    """Give the checksum in the last slot of a sequence of these tokens."""
    h = _EMPTY
    for token in tokens:
        h = (h * _MULTIPLIER + token + _INCREMENT) & _MASK64
    return h


def chained(h: int, token: int) -> int:
    """Give the checksum one token after a slot that holds `h`."""
    return (h * _MULTIPLIER + token + _INCREMENT) & _MASK64


def powers_of(base: np.uint64, count: int) -> NDArray[np.uint64]:
    """Give `base**0 .. base**(count - 1)` modulo 2**64."""
    powers = np.full(count, base, np.uint64)
    powers[0] = 1
    return powers.cumprod()

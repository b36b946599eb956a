"""KV memory that remembers whose it is: every slot holds its token and a checksum chained over the whole prefix.

A pass reads its context back through the block table, so a block that is stale, was never written, was stolen or
belongs to another sequence cannot go unseen. What a pass costs grows with its blocks, not with its positions: slots
within a block are compared with each other once after they were written, the seams between blocks in every pass.
"""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.protocol import BlockCopy, Chunk

_MULTIPLIER = 6364136223846793005
_INCREMENT = 1442695040888963407
_MASK64 = (1 << 64) - 1
_EMPTY = 0x9E3779B97F4A7C15  # the checksum of no tokens at all; a slot never written holds 0
MULTIPLIER = np.uint64(_MULTIPLIER)
INCREMENT = np.uint64(_INCREMENT)


class KvMismatch(RuntimeError):
    """A block table leads to memory that does not hold the sequence's context."""


class Rows(NamedTuple):
    """The positions that rows of logits are wanted for, chunk after chunk, and where they are."""

    positions: NDArray[np.intp]
    tables: NDArray[np.intp]
    """For each row, where its sequence's table begins in `blocks`."""
    blocks: NDArray[np.intp]
    """The tables of a pass, one after the other."""


class _Fed(NamedTuple):
    """A pass in numbers: `i` runs over chunks, `b` over the blocks of all tables, `t` over fed ids."""

    starts: NDArray[np.intp]  # [i] first position fed
    ends: NDArray[np.intp]  # [i] position past the last
    tables: NDArray[np.intp]  # [i] where the chunk's table begins in `blocks`
    blocks: NDArray[np.intp]  # [b]
    chunk_of: NDArray[np.intp]  # [b]
    ordinals: NDArray[np.intp]  # [b] place in its own table


class CheckedMemory:
    """Slots for `num_blocks` blocks of `block_tokens` positions."""

    def __init__(self, num_blocks: int, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self._tokens = np.zeros((num_blocks, block_tokens), np.uint64)
        self._sums = np.zeros((num_blocks, block_tokens), np.uint64)
        self._num_chained = np.ones(num_blocks, np.intp)  # leading slots known to continue each other
        self._powers = np.ones(1, np.uint64)
        self._inverses = np.ones(1, np.uint64)

    def extend(self, chunks: Sequence[Chunk]) -> Rows:
        """Check every chunk's context and write the ids it feeds.

        Raises KvMismatch, naming chunk, position and block, where a slot does not continue the one before it.
        """
        fed = self._number(chunks)
        self._check(fed)
        self._write(fed, chunks)
        num_rows = np.array([chunk.num_rows for chunk in chunks], np.intp)
        before = num_rows.cumsum() - num_rows
        positions = np.arange(int(num_rows.sum())) + np.repeat(fed.ends - num_rows - before, num_rows)
        return Rows(positions, np.repeat(fed.tables, num_rows), fed.blocks)

    def tokens_at(self, rows: Rows, back: int) -> NDArray[np.uint64]:
        """Give the token `back` positions before each row's own, 0 where there is none."""
        positions = rows.positions - back
        is_there = positions >= 0
        at = np.where(is_there, positions, 0)
        tokens = self._tokens[rows.blocks[rows.tables + at // self.block_tokens], at % self.block_tokens]
        return np.where(is_there, tokens, np.uint64(0))

    def sums_at(self, rows: Rows) -> NDArray[np.uint64]:
        """Give the checksum of each row's whole context."""
        at = rows.positions
        sums: NDArray[np.uint64] = self._sums[
            rows.blocks[rows.tables + at // self.block_tokens], at % self.block_tokens
        ]
        return sums

    def copy_blocks(self, copies: Sequence[BlockCopy]) -> None:
        """Copy the first slots of a block to another."""
        for source, destination, num_tokens in copies:
            self._tokens[destination, :num_tokens] = self._tokens[source, :num_tokens]
            self._sums[destination, :num_tokens] = self._sums[source, :num_tokens]
            self._num_chained[destination] = min(self._num_chained[source], num_tokens)

    def _number(self, chunks: Sequence[Chunk]) -> _Fed:
        starts = np.array([chunk.start for chunk in chunks], np.intp)
        ends = starts + np.array([len(chunk.ids) for chunk in chunks], np.intp)
        num_blocks = -(-ends // self.block_tokens)
        for i, (chunk, needed) in enumerate(zip(chunks, num_blocks.tolist(), strict=True)):
            if len(chunk.table) != needed:
                raise KvMismatch(f"chunk {i}: {len(chunk.table)} blocks for {ends[i]} positions")
        blocks = np.fromiter(chain.from_iterable(chunk.table for chunk in chunks), np.intp, int(num_blocks.sum()))
        tables = num_blocks.cumsum() - num_blocks
        chunk_of = np.repeat(np.arange(len(chunks)), num_blocks)
        return _Fed(starts, ends, tables, blocks, chunk_of, np.arange(len(blocks)) - tables[chunk_of])

    def _check(self, fed: _Fed) -> None:
        """Compare every slot of the contexts with the one before it, as far as that has not been done."""
        size = self.block_tokens
        held = np.clip(fed.starts[fed.chunk_of] - fed.ordinals * size, 0, size)  # context slots in each block
        before = np.empty(len(held), np.uint64)
        before[1:] = self._sums[fed.blocks[:-1], size - 1]
        before[fed.tables] = _EMPTY
        seams = before * MULTIPLIER + (self._tokens[fed.blocks, 0] + INCREMENT)
        is_wrong = (held > 0) & (seams != self._sums[fed.blocks, 0])
        if is_wrong.any():
            self._refuse(fed, int(is_wrong.argmax()), 0)
        unsure = np.flatnonzero(held > self._num_chained[fed.blocks])
        if len(unsure):
            self._check_within(fed, unsure, held[unsure])

    def _check_within(self, fed: _Fed, unsure: NDArray[np.intp], held: NDArray[np.intp]) -> None:
        blocks = fed.blocks[unsure]
        sums, tokens = self._sums[blocks], self._tokens[blocks]
        continues = np.ones(sums.shape, bool)
        continues[:, 1:] = sums[:, :-1] * MULTIPLIER + (tokens[:, 1:] + INCREMENT) == sums[:, 1:]
        num_chained = np.where(continues.all(axis=1), self.block_tokens, continues.argmin(axis=1))
        if (num_chained < held).any():
            first = int((num_chained < held).argmax())
            self._refuse(fed, int(unsure[first]), int(num_chained[first]))
        self._num_chained[blocks] = num_chained

    def _refuse(self, fed: _Fed, at: int, slot: int) -> None:
        i, block = int(fed.chunk_of[at]), int(fed.blocks[at])
        position = int(fed.ordinals[at]) * self.block_tokens + slot
        raise KvMismatch(
            f"chunk {i} (start {fed.starts[i]}): position {position} in block {block} holds token "
            f"{self._tokens[block, slot]} and does not continue the position before it"
        )

    def _write(self, fed: _Fed, chunks: Sequence[Chunk]) -> None:
        size = self.block_tokens
        num_fed = fed.ends - fed.starts
        ahead = num_fed.cumsum() - num_fed
        total = int(num_fed.sum())
        ids = np.fromiter(chain.from_iterable(chunk.ids for chunk in chunks), np.uint64, total)
        positions = np.arange(total) + np.repeat(fed.starts - ahead, num_fed)
        blocks = fed.blocks[np.repeat(fed.tables, num_fed) + positions // size]
        last = np.maximum(fed.starts - 1, 0)
        previous = np.where(
            fed.starts > 0, self._sums[fed.blocks[fed.tables + last // size], last % size], np.uint64(_EMPTY)
        )
        slots = positions % size
        self._tokens[blocks, slots] = ids
        self._sums[blocks, slots] = self._chain(ids, num_fed, ahead, previous)
        #   in a block that was written from slot `first` to slot `past`, what came after no longer continues it
        written = np.flatnonzero((fed.ordinals + 1) * size > fed.starts[fed.chunk_of])
        offsets = fed.ordinals[written] * size
        first = np.maximum(fed.starts[fed.chunk_of[written]] - offsets, 0)
        past = np.minimum(fed.ends[fed.chunk_of[written]] - offsets, size)
        known = self._num_chained[fed.blocks[written]]
        self._num_chained[fed.blocks[written]] = np.where(known >= first, past, known)

    def _chain(
        self, ids: NDArray[np.uint64], fed: NDArray[np.intp], before: NDArray[np.intp], previous: NDArray[np.uint64]
    ) -> NDArray[np.uint64]:
        """Chain `h <- h * M + token + c` through every chunk at once, modulo 2**64.

        With M odd, h[j] = M**j * (h[0] + sum over i < j of (token[i] + c) * M**-(i + 1)): a running sum.
        """
        self._grow_powers(int(fed.max(initial=0)) + 1)
        j = np.arange(len(ids)) - np.repeat(before, fed)
        running = np.cumsum((ids + INCREMENT) * self._inverses[j + 1])
        base = np.where(before > 0, running[np.maximum(before, 1) - 1], np.uint64(0))
        chained_to: NDArray[np.uint64] = self._powers[j + 1] * (running - np.repeat(base - previous, fed))
        return chained_to

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

    def copy_blocks(self, copies: Sequence[BlockCopy]) -> None:
        """Carry out the copies, in order."""
        self._memory.copy_blocks(copies)

    def _feed(self, chunks: Sequence[Chunk]) -> Rows:
        """Check the contexts and write the fed ids. Raises ValueError for a token tree."""
        for i, chunk in enumerate(chunks):
            if chunk.parents is not None:
                raise ValueError(f"chunk {i} has parents: this model takes chains only")
        return self._memory.extend(chunks)


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

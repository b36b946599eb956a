"""KV memory that remembers whose it is: every slot holds its token and a checksum chained over the whole prefix.

A pass reads its context back through the block table, so a block that is stale, was never written, was stolen or
belongs to another sequence cannot go unseen.
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


class Window(NamedTuple):
    """The contexts of a pass side by side, each padded to whole blocks, fed ids included.

    chunk i:  firsts[i] + 0 ...... + start ...... + start + len(ids) ...... (padding)
    """

    tokens: NDArray[np.uint64]
    sums: NDArray[np.uint64]
    firsts: NDArray[np.intp]
    positions: NDArray[np.intp]  # of every entry within its own sequence


class CheckedMemory:
    """Slots for `num_blocks` blocks of `block_tokens` positions."""

    def __init__(self, num_blocks: int, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self._tokens = np.zeros((num_blocks, block_tokens), np.uint64)
        self._sums = np.zeros((num_blocks, block_tokens), np.uint64)
        self._powers = np.ones(1, np.uint64)
        self._inverses = np.ones(1, np.uint64)

    def extend(self, chunks: Sequence[Chunk]) -> Window:
        """Check every chunk's context, write the ids it feeds, and give all of it.

        Raises KvMismatch, naming chunk, position and block, where a slot does not continue the one before it.
        """
        size = self.block_tokens
        starts = np.array([chunk.start for chunk in chunks], np.intp)
        fed = np.array([len(chunk.ids) for chunk in chunks], np.intp)
        num_blocks = -(-(starts + fed) // size)
        tables = [chunk.table for chunk in chunks]
        for i, (table, needed) in enumerate(zip(tables, num_blocks.tolist(), strict=True)):
            if len(table) != needed:
                raise KvMismatch(f"chunk {i}: {len(table)} blocks for {starts[i] + fed[i]} positions")
        blocks = np.fromiter(chain.from_iterable(tables), np.intp, int(num_blocks.sum()))
        tokens = self._tokens[blocks].ravel()
        sums = self._sums[blocks].ravel()
        firsts = (num_blocks.cumsum() - num_blocks) * size
        spans = num_blocks * size
        positions = np.arange(len(tokens)) - np.repeat(firsts, spans)
        window = Window(tokens, sums, firsts, positions)
        self._check(window, np.repeat(starts, spans), chunks)

        #   flat index of every fed id
        total = int(fed.sum())
        before = fed.cumsum() - fed
        written = np.arange(total) + np.repeat(firsts + starts - before, fed)
        ids = np.fromiter(chain.from_iterable(chunk.ids for chunk in chunks), np.uint64, total)
        previous = np.where(starts > 0, sums[firsts + starts - 1], np.uint64(_EMPTY))
        tokens[written] = ids
        sums[written] = self._chain(ids, fed, before, previous)
        slots = blocks[written // size] * size + written % size
        self._tokens.ravel()[slots] = ids
        self._sums.ravel()[slots] = sums[written]
        return window

    def copy_blocks(self, copies: Sequence[BlockCopy]) -> None:
        """Copy the first slots of a block to another."""
        for source, destination, num_tokens in copies:
            self._tokens[destination, :num_tokens] = self._tokens[source, :num_tokens]
            self._sums[destination, :num_tokens] = self._sums[source, :num_tokens]

    def _check(self, window: Window, starts: NDArray[np.intp], chunks: Sequence[Chunk]) -> None:
        previous = np.empty_like(window.sums)
        previous[1:] = window.sums[:-1]
        previous[window.firsts] = _EMPTY
        expected = previous * MULTIPLIER + (window.tokens + INCREMENT)
        is_wrong = (expected != window.sums) & (window.positions < starts)
        if is_wrong.any():
            at = int(is_wrong.argmax())
            i = int(np.searchsorted(window.firsts, at, side="right")) - 1
            position = int(window.positions[at])
            block = chunks[i].table[position // self.block_tokens]
            raise KvMismatch(
                f"chunk {i} (start {chunks[i].start}): position {position} in block {block} holds token "
                f"{window.tokens[at]} and does not continue the position before it"
            )

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

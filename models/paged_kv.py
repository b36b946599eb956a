"""KV memory in blocks, and the flat view of a pass that every row-wise routine works on."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.branches import Branches, find_branches
from models.protocol import Chunk, SlotMove, places

F32 = NDArray[np.float32]


class Features(NamedTuple):
    """Hidden states beside the keys: of the slots of a pass, after some of the layers."""

    memory: F32
    """`[num_blocks, block_tokens, taps, dim]`"""
    tap_after: NDArray[np.int64]
    """`[layers + 1]`: the tap that keeps what so many layers made of a row, -1 for none."""


class PagedKv:
    """Keys and values, float32 `[layers, num_blocks, block_tokens, kv_heads, head_dim]`, zero at first.

    Beside them hidden states of `dim` after each number of layers in `taps`.
    """

    def __init__(
        self,
        num_layers: int,
        num_blocks: int,
        block_tokens: int,
        kv_heads: int,
        head_dim: int,
        *,
        taps: Sequence[int] = (),
        dim: int = 0,
    ) -> None:
        if num_blocks < 1 or block_tokens < 1:
            raise ValueError(f"num_blocks {num_blocks} and block_tokens {block_tokens}: each must be at least 1")
        #   in memory what a head reads of a block lies together
        shape = (num_layers, num_blocks, kv_heads, block_tokens, head_dim)
        self.keys = np.zeros(shape, np.float32).swapaxes(2, 3)
        self.values = np.zeros(shape, np.float32).swapaxes(2, 3)
        tap_after = np.full(num_layers + 1, -1)
        tap_after[list(taps)] = np.arange(len(taps))
        self.features = Features(np.zeros((num_blocks, block_tokens, len(taps), dim), np.float32), tap_after)
        self.num_blocks = num_blocks
        self.block_tokens = block_tokens

    def move_slots(self, moves: Sequence[SlotMove]) -> None:
        """Move what slots hold, in every layer; all sources are read before any destination is written."""
        source, destination = places(moves, self.block_tokens)
        for memory in (self.keys, self.values):
            memory[:, *destination] = memory[:, *source]
        self.features.memory[destination] = self.features.memory[source]

    def keep(self, num_layers: int, x: F32, fed: "Pass") -> None:
        """Keep what so many layers have made of the rows, `x` `[rows, dim]`, where there is a tap for it."""
        tap = self.features.tap_after[num_layers]
        if tap >= 0:
            self.features.memory[fed.blocks, fed.slots, tap] = x


def checked_taps(taps: Sequence[int], num_layers: int) -> tuple[int, ...]:
    """Give the taps of a model of so many layers. Raises ValueError for one it does not have, or has twice."""
    for tap in taps:
        if not 0 <= tap <= num_layers:
            raise ValueError(f"tap {tap}: must be in [0, {num_layers}], a number of layers")
    if len(set(taps)) < len(taps):
        raise ValueError(f"taps {list(taps)}: each may be there once")
    return tuple(taps)


class Pass(NamedTuple):
    """All fed ids of a pass, chunk after chunk, one row each."""

    ids: NDArray[np.int64]
    """`[rows]`"""
    positions: NDArray[np.int64]
    """`[rows]`"""
    blocks: NDArray[np.int64]
    """`[rows]`: the block that takes the row's key and value,"""
    slots: NDArray[np.int64]
    """`[rows]`: and where in that block."""
    chunk_of: NDArray[np.int64]
    """`[rows]`"""
    bases: NDArray[np.int64]
    """`[rows]`: the row sees its sequence's slots before this one, and those of its path."""
    paths: NDArray[np.int64]
    """`[rows, longest path]`: for a row on a branch the slots of positions `bases[row]` to its own, in order."""
    tables: NDArray[np.int64]
    """`[chunks, longest table]`, filled up with zeros."""
    wanted: NDArray[np.int64]
    """Rows that get logits, in order."""


def flatten(chunks: Sequence[Chunk], kv: PagedKv, vocab_size: int, max_model_len: int) -> Pass:
    """Check the chunks and lay their ids out row by row.

    Raises ValueError, before anything is written, for parents that make no tree, no ids, an id, block, position or
    `num_rows` out of range, or a table too short.
    """
    for chunk in chunks:
        _check(chunk, kv, vocab_size, max_model_len)
    lengths = np.array([len(chunk.ids) for chunk in chunks], np.int64)
    ends = np.cumsum(lengths)
    chunk_of = np.repeat(np.arange(len(chunks)), lengths)
    starts = np.array([chunk.start for chunk in chunks], np.int64)
    slots = np.arange(len(chunk_of)) - (ends - lengths - starts)[chunk_of]
    positions, bases, paths = slots, slots + 1, np.empty((len(slots), 0), np.int64)
    trees = find_branches(chunks)
    if trees is not None:
        stems, branches = trees
        forks = (starts + stems)[branches.chunk_of]
        positions, bases, paths = positions.copy(), bases.copy(), _paths(len(slots), branches)
        positions[branches.rows], bases[branches.rows] = forks + branches.depths, forks
    if (positions >= max_model_len).any():
        raise ValueError(f"position {positions.max()} does not fit in [0, {max_model_len})")
    tables = np.zeros((len(chunks), max((len(chunk.table) for chunk in chunks), default=0)), np.int64)
    for table, chunk in zip(tables, chunks, strict=True):
        table[: len(chunk.table)] = chunk.table
    wanted = [np.arange(end - chunk.num_rows, end) for end, chunk in zip(ends, chunks, strict=True)]
    return Pass(
        ids=np.array([i for chunk in chunks for i in chunk.ids], np.int64),
        positions=positions,
        blocks=tables[chunk_of, slots // kv.block_tokens],
        slots=slots % kv.block_tokens,
        chunk_of=chunk_of,
        bases=bases,
        paths=paths,
        tables=tables,
        wanted=np.concatenate([np.empty(0, np.int64), *wanted]),
    )


def _paths(num_rows: int, branches: Branches) -> NDArray[np.int64]:
    """Give the slots from the fork to each row on a branch, itself included."""
    paths = np.zeros((num_rows, branches.num_layers), np.int64)
    rows, at = branches.rows, np.arange(len(branches.rows))
    while len(rows):
        paths[rows, branches.depths[at]] = branches.slots[at]
        rows, at = rows[branches.parents[at] >= 0], branches.parents[at]
        at = at[at >= 0]
    return paths


def _check(chunk: Chunk, kv: PagedKv, vocab_size: int, max_model_len: int) -> None:
    if not chunk.ids:
        raise ValueError("ids is empty: a chunk feeds at least one id")
    if min(chunk.ids) < 0 or max(chunk.ids) >= vocab_size:
        wrong = next(i for i in chunk.ids if not 0 <= i < vocab_size)
        raise ValueError(f"id {wrong} is out of the vocabulary [0, {vocab_size})")
    end = chunk.start + len(chunk.ids)
    if chunk.start < 0:
        raise ValueError(f"start {chunk.start}: must be in [0, {max_model_len})")
    if not 0 <= chunk.num_rows <= len(chunk.ids):
        raise ValueError(f"num_rows {chunk.num_rows}: must be in [0, {len(chunk.ids)}], the ids fed")
    if len(chunk.table) * kv.block_tokens < end:
        raise ValueError(f"table has {len(chunk.table)} blocks of {kv.block_tokens}: too short for {end} slots")
    if min(chunk.table) < 0 or max(chunk.table) >= kv.num_blocks:
        wrong = next(b for b in chunk.table if not 0 <= b < kv.num_blocks)
        raise ValueError(f"table has block {wrong}: blocks are in [0, {kv.num_blocks})")

"""Weights laid out for the compiled products: sixteen outputs side by side, thirty-two inputs a block.

    tile t: outputs 16 t .. 16 t + 15     block b: inputs 32 b .. 32 b + 31
    [tile][block][scales of 16 outputs][32 inputs][16 outputs]

The numbers themselves stay in the precision of the file; only their order in memory changes.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.weights import Matrix

LANES = 16
BLOCK_INPUTS = 32
_ALIGNMENT = 64


class Kind(IntEnum):
    """How the weights of a packed matrix are stored."""

    F32 = 0
    F16 = 1
    Q8_0 = 2
    Q4_0 = 3
    Q4_1 = 4


BLOCK_BYTES = {
    Kind.F32: BLOCK_INPUTS * LANES * 4,
    Kind.F16: BLOCK_INPUTS * LANES * 2,
    Kind.Q8_0: LANES * 2 + BLOCK_INPUTS * LANES,
    Kind.Q4_0: LANES * 2 + BLOCK_INPUTS * LANES // 2,
    Kind.Q4_1: LANES * 4 + BLOCK_INPUTS * LANES // 2,
}
"""Bytes of one block of one tile: scales, then weights. A nibble's high half is the input 16 further on."""

_FILE_BLOCKS = {"Q8_0": (1, 34), "Q4_0": (1, 18), "Q4_1": (2, 20)}  # scales and bytes of a block in a GGUF file


def pack(matrix: Matrix) -> tuple[Kind, NDArray[np.uint8]]:
    """Reorder a matrix into bytes `[tiles, blocks, block bytes]`, filled up with zero weights."""
    if matrix.blocks in _FILE_BLOCKS:
        return Kind[matrix.blocks], _pack_blocks(matrix.data, *_FILE_BLOCKS[matrix.blocks])
    if matrix.data.dtype == np.float16:
        return Kind.F16, _pack_floats(matrix.data)
    return Kind.F32, _pack_floats(matrix.dense())


def pack_all(matrices: Sequence[Matrix]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pack matrices into one stretch of memory.

    Returns the bytes, aligned for vectors, and per matrix
    `[offset, kind, tiles, blocks a tile, bytes a block, num_outputs]`.
    """
    packed = [pack(matrix) for matrix in matrices]
    sizes = [-(-data.size // _ALIGNMENT) * _ALIGNMENT for _, data in packed]
    memory = np.zeros(sum(sizes) + _ALIGNMENT, np.uint8)
    memory = memory[-memory.ctypes.data % _ALIGNMENT :][: sum(sizes)]
    offsets = np.cumsum([0, *sizes[:-1]])
    for offset, (_, data) in zip(offsets, packed, strict=True):
        memory[offset : offset + data.size] = data.reshape(-1)
    shapes = [
        [int(offset), kind, *data.shape, matrix.num_outputs]
        for offset, (kind, data), matrix in zip(offsets, packed, matrices, strict=True)
    ]
    return memory, np.array(shapes, np.int64)


def _pack_floats(weights: NDArray[Any]) -> NDArray[np.uint8]:
    num_outputs, num_inputs = weights.shape
    num_tiles, num_blocks = -(-num_outputs // LANES), -(-num_inputs // BLOCK_INPUTS)
    padded = np.zeros((num_tiles * LANES, num_blocks * BLOCK_INPUTS), weights.dtype)
    padded[:num_outputs, :num_inputs] = weights
    tiles = padded.reshape(num_tiles, LANES, num_blocks, BLOCK_INPUTS).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(tiles).view(np.uint8).reshape(num_tiles, num_blocks, -1)


def _pack_blocks(rows: NDArray[np.uint8], num_scales: int, block_bytes: int) -> NDArray[np.uint8]:
    """Pack rows of blocks, each its half-precision scales and then its weights."""
    num_outputs = len(rows)
    num_tiles = -(-num_outputs // LANES)
    num_blocks = rows.shape[1] // block_bytes
    padded = np.zeros((num_tiles * LANES, rows.shape[1]), np.uint8)
    padded[:num_outputs] = rows
    tiles = padded.reshape(num_tiles, LANES, num_blocks, block_bytes)
    scales = tiles[..., : 2 * num_scales].reshape(num_tiles, LANES, num_blocks, num_scales, 2).transpose(0, 2, 3, 1, 4)
    weights = tiles[..., 2 * num_scales :].transpose(0, 2, 3, 1)
    flat = (num_tiles, num_blocks, -1)
    return np.concatenate([scales.reshape(flat), weights.reshape(flat)], axis=2)

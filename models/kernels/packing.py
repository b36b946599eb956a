"""Weights laid out for the compiled products: thirty-two outputs a tile, thirty-two inputs a block.

    tile t: outputs 32 t .. 32 t + 31     block b: inputs 32 b .. 32 b + 31     strip s of a tile: 16 of its outputs
    [tile][block][strip]([scales][16 outputs][inputs][16 outputs])

The numbers themselves stay in the precision of the file; only their order in memory changes. For rows of 8 bits, four
inputs of an output lie together: [scales][16 outputs][inputs / 4][16 outputs][4 inputs], signed bytes with 128 added.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.weights import Matrix

LANES = 16
STRIPS = 2
TILE_OUTPUTS = LANES * STRIPS
BLOCK_INPUTS = 32
_ALIGNMENT = 64


class Kind(IntEnum):
    """How the weights of a packed matrix are stored."""

    F32 = 0
    F16 = 1
    Q8_0 = 2
    Q4_0 = 3
    Q4_1 = 4
    Q8_0_INT8 = 5
    Q4_0_INT8 = 6
    Q4_1_INT8 = 7


INT8_KINDS = (Kind.Q8_0_INT8, Kind.Q4_0_INT8, Kind.Q4_1_INT8)
"""For inputs rounded to 8 bits; the last of all kinds."""

STRIP_BYTES = {
    Kind.F32: BLOCK_INPUTS * LANES * 4,
    Kind.F16: BLOCK_INPUTS * LANES * 2,
    Kind.Q8_0: LANES * 2 + BLOCK_INPUTS * LANES,
    Kind.Q4_0: LANES * 2 + BLOCK_INPUTS * LANES // 2,
    Kind.Q4_1: LANES * 4 + BLOCK_INPUTS * LANES // 2,
}
STRIP_BYTES |= {kind: STRIP_BYTES[Kind[kind.name.removesuffix("_INT8")]] for kind in INT8_KINDS}
"""Bytes of a strip of a block: scales, then weights. A byte's high nibble is the input 16 further on."""

_FILE_BLOCKS = {"Q8_0": (1, 34), "Q4_0": (1, 18), "Q4_1": (2, 20)}  # scales and bytes of a block in a GGUF file


def pack(matrix: Matrix, *, is_for_int8: bool = False) -> tuple[Kind, NDArray[np.uint8]]:
    """Reorder a matrix into bytes `[tiles, blocks, bytes of a tile's block]`, filled up with zero weights.

    With `is_for_int8` a quantised matrix is laid out for rows of 8 bits; floats are as without.
    """
    if matrix.blocks in _FILE_BLOCKS and is_for_int8:
        kind = Kind[f"{matrix.blocks}_INT8"]
        return kind, _by_fours(_pack_blocks(matrix.data, *_FILE_BLOCKS[matrix.blocks]), kind)
    if matrix.blocks in _FILE_BLOCKS:
        return Kind[matrix.blocks], _pack_blocks(matrix.data, *_FILE_BLOCKS[matrix.blocks])
    if matrix.data.dtype == np.float16:
        return Kind.F16, _pack_floats(matrix.data)
    return Kind.F32, _pack_floats(matrix.dense())


def pack_all(matrices: Sequence[Matrix], *, is_for_int8: bool = False) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pack matrices into one stretch of memory.

    Returns the bytes, aligned for vectors, and per matrix
    `[offset, kind, tiles, blocks a tile, bytes of a tile's block, num_outputs]`.
    """
    packed = [pack(matrix, is_for_int8=is_for_int8) for matrix in matrices]
    sizes = [-(-data.size // _ALIGNMENT) * _ALIGNMENT for _, data in packed]
    memory = np.empty(sum(sizes) + _ALIGNMENT, np.uint8)  # unlike zeros, numpy asks for huge pages here
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
    num_tiles, num_blocks = -(-num_outputs // TILE_OUTPUTS), -(-num_inputs // BLOCK_INPUTS)
    padded = np.zeros((num_tiles * TILE_OUTPUTS, num_blocks * BLOCK_INPUTS), weights.dtype)
    padded[:num_outputs, :num_inputs] = weights
    strips = padded.reshape(num_tiles, STRIPS, LANES, num_blocks, BLOCK_INPUTS).transpose(0, 3, 1, 4, 2)
    return np.ascontiguousarray(strips).view(np.uint8).reshape(num_tiles, num_blocks, -1)


def _pack_blocks(rows: NDArray[np.uint8], num_scales: int, block_bytes: int) -> NDArray[np.uint8]:
    """Pack rows of blocks, each its half-precision scales and then its weights."""
    num_tiles, num_blocks = -(-len(rows) // TILE_OUTPUTS), rows.shape[1] // block_bytes
    padded = np.zeros((num_tiles * TILE_OUTPUTS, rows.shape[1]), np.uint8)
    padded[: len(rows)] = rows
    strips = padded.reshape(num_tiles, STRIPS, LANES, num_blocks, block_bytes).transpose(0, 3, 1, 4, 2)
    # [tiles, blocks, strips, bytes, outputs]: a scale is two bytes that stay together
    scales = strips[..., : 2 * num_scales, :].reshape(*strips.shape[:3], num_scales, 2, LANES).swapaxes(4, 5)
    flat = (num_tiles, num_blocks, STRIPS, -1)
    packed = np.concatenate([scales.reshape(flat), strips[..., 2 * num_scales :, :].reshape(flat)], axis=3)
    return packed.reshape(num_tiles, num_blocks, -1)


def _by_fours(packed: NDArray[np.uint8], kind: Kind) -> NDArray[np.uint8]:
    """Bring four inputs of an output together, and make signed bytes unsigned."""
    num_inputs = BLOCK_INPUTS if kind is Kind.Q8_0_INT8 else BLOCK_INPUTS // 2  # bytes of them
    strips = packed.reshape(*packed.shape[:2], STRIPS, -1)
    codes = strips[..., -num_inputs * LANES :]
    fours = codes.reshape(*codes.shape[:3], num_inputs // 4, 4, LANES).swapaxes(4, 5).reshape(codes.shape)
    strips[..., -num_inputs * LANES :] = fours ^ 128 if kind is Kind.Q8_0_INT8 else fours
    return packed

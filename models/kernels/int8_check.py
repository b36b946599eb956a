"""Whether this processor multiplies rows of 8 bits as the arithmetic says, to the last bit."""

from functools import cache

import numpy as np

from models.kernels.int8 import HAS_VNNI
from models.kernels.packed_linear import PackedLinear
from models.kernels.packing import BLOCK_INPUTS
from models.kernels.product import MAX_ROWS
from models.weights import F32, Matrix

_FORMATS = {"Q8_0": (1, 32), "Q4_0": (1, 16), "Q4_1": (2, 16)}  # scales of a block, bytes of its weights


def portable_product(matrix: Matrix, x: F32) -> F32:
    """Multiply float32 rows `[n, inputs]` by a quantised matrix, in numpy, with the bits of the compiled code."""
    assert matrix.blocks is not None
    num_scales, code_bytes = _FORMATS[matrix.blocks]
    stored = matrix.data.reshape(matrix.num_outputs, -1, 2 * num_scales + code_bytes)
    scales = np.ascontiguousarray(stored[..., : 2 * num_scales]).view(np.float16).astype(np.float32)
    packed = stored[..., 2 * num_scales :]
    weights = packed.view(np.int8) if code_bytes == BLOCK_INPUTS else np.concatenate([packed & 15, packed >> 4], -1)
    weights = weights.astype(np.int32) - (8 if matrix.blocks == "Q4_0" else 0)
    blocks = x.reshape(len(x), -1, BLOCK_INPUTS)
    peaks = np.abs(blocks).max(axis=-1)
    steps = peaks / np.float32(127)
    inverses = np.divide(np.float32(127), peaks, out=np.zeros_like(peaks), where=(peaks > 1e-30) & (peaks < 1e37))
    codes = np.rint(blocks * inverses[..., None]).clip(-127, 127).astype(np.int32)
    sums = steps * codes.sum(axis=-1).astype(np.float32)
    totals = np.zeros((len(x), matrix.num_outputs), np.float32)
    for block in range(blocks.shape[1]):
        dots = codes[:, block] @ weights[:, block].T
        totals = _fma(dots, scales[:, block, 0] * steps[:, block, None], totals)
        if num_scales == 2:
            totals = _fma(scales[:, block, 1], sums[:, block, None], totals)
    return totals


def _fma(left: np.ndarray, right: np.ndarray, addend: F32) -> F32:
    """Round `left * right + addend` to float32; products of two float32 are exact in float64."""
    rounded: F32 = (left.astype(np.float64) * right + addend).astype(np.float32)
    return rounded


@cache
def is_right() -> bool:
    """Tell whether the instructions are there and every format and number of rows gives the bits it should."""
    return HAS_VNNI and all(_is_right_for(blocks) for blocks in _FORMATS)


def _is_right_for(blocks: str) -> bool:
    generator = np.random.default_rng(1)
    num_scales, code_bytes = _FORMATS[blocks]
    shape = (40, 3)
    scales = generator.uniform(-1, 1, (*shape, num_scales)).astype(np.float16)
    stored = np.concatenate([scales.view(np.uint8), generator.integers(0, 256, (*shape, code_bytes), np.uint8)], -1)
    matrix = Matrix(stored.reshape(shape[0], -1), blocks)
    product = PackedLinear(matrix, is_int8=True)
    x = generator.standard_normal((MAX_ROWS, shape[1] * BLOCK_INPUTS)).astype(np.float32)
    expected = portable_product(matrix, x)
    return all(np.array_equal(product(x[:rows]), expected[:rows]) for rows in range(1, MAX_ROWS + 1))

"""One matrix product of its own through the compiled code."""

from typing import Any

import numpy as np

from models.kernels.digest import SOURCES
from models.kernels.lanes import numba
from models.kernels.packing import BLOCK_INPUTS, TILE_OUTPUTS, pack_all
from models.kernels.passes import multiply
from models.kernels.stages import Inputs, fill_inputs, forms
from models.weights import F32, Matrix


class PackedLinear:
    """`y = x W^T` straight from the weights as they are stored; a row is the same bits in any company.

    It runs in the thread that calls it, without the interpreter's lock.
    """

    def __init__(self, matrix: Matrix, *, is_int8: bool = False) -> None:
        self.num_outputs = matrix.num_outputs
        self._memory, shapes = pack_all([matrix], is_for_int8=is_int8)
        self._shape = shapes[0]
        self._num_tiles, self._num_blocks = (int(n) for n in self._shape[2:4])

    def __call__(self, rows: F32) -> F32:
        """From float32 `[n, num_inputs]` to `[n, num_outputs]`."""
        num_rows, num_inputs = len(rows), self._num_blocks * BLOCK_INPUTS
        padded = np.zeros((num_rows, num_inputs), np.float32)
        padded[:, : rows.shape[1]] = rows
        num_blocks = num_rows * self._num_blocks
        inputs = Inputs(
            panel=np.empty(padded.size, np.float32),
            panel_sums=np.empty(num_blocks, np.float32),
            codes=np.empty(padded.size, np.int8),
            steps=np.empty(num_blocks, np.float32),
            sums=np.empty(num_blocks, np.float32),
            counts=np.empty(num_blocks, np.int32),
        )
        out = np.empty((num_rows, self._num_tiles * TILE_OUTPUTS), np.float32)
        if num_rows:
            _run_product(self._memory, self._shape, padded, inputs, out)
        return out[:, : self.num_outputs]


def _compile(sources: int) -> Any:
    """Compile the product, or take it from the disk; `sources` in it keeps an older version's from being taken."""

    def run_product(memory: Any, matrix: Any, x: Any, inputs: Any, out: Any) -> int:
        fill_inputs(x, len(x), matrix[3], forms(matrix.reshape(1, -1), 0, 1), inputs)
        for tile in range(matrix[2]):
            multiply(memory, matrix, tile, len(x), inputs, out, 0, 0)
        return sources

    return numba.njit(nogil=True, error_model="numpy", cache=True)(run_product)


_run_product = _compile(SOURCES)

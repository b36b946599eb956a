"""A matrix product whose rows do not depend on each other's number."""

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]

# Below this many elements OpenBLAS keeps a matrix-vector product on one thread, so the number of threads cannot
# change its order of additions; it is also small enough to stay in the first level cache while all rows use it.
_BLOCK_ELEMENTS = 8192
_MAX_INPUTS = 4096


class RowLinear:
    """`y = x W^T` as matrix-vector products of one fixed shape, whatever the number of rows.

    A BLAS matrix-matrix product picks its kernel, and so its order of additions, by the shape; a row then rounds
    differently alone and in company. Here every row goes through the same calls on the same blocks of weights.
    """

    def __init__(self, weights: F32) -> None:
        """Take `weights` float32 `[num_outputs, num_inputs]`."""
        self.num_outputs, num_inputs = weights.shape
        self._panels = [
            (slice(first, first + _MAX_INPUTS), _blocked(weights[:, first : first + _MAX_INPUTS]))
            for first in range(0, num_inputs, _MAX_INPUTS)
        ]

    def __call__(self, rows: F32) -> F32:
        """From float32 `[n, num_inputs]` to `[n, num_outputs]`."""
        total = np.zeros((len(rows), self.num_outputs), np.float32)
        for columns, blocks in self._panels:
            # [blocks, 1, outputs, inputs] @ [1, n, inputs, 1]: numpy calls one matrix-vector product per block and row
            products = np.matmul(blocks, np.ascontiguousarray(rows[:, columns])[None, :, :, None])
            joined = products[..., 0].swapaxes(0, 1).reshape(len(rows), blocks.shape[0] * blocks.shape[2])
            total += joined[:, : self.num_outputs]
        return total


def _blocked(weights: F32) -> F32:
    """Blocks `[blocks, 1, outputs, inputs]`, the last one filled up with zero rows."""
    num_outputs, num_inputs = weights.shape
    outputs = min(num_outputs, max(2, _BLOCK_ELEMENTS // num_inputs))
    num_blocks = -(-num_outputs // outputs)
    blocks = np.zeros((num_blocks * outputs, num_inputs), np.float32)
    blocks[:num_outputs] = weights
    return blocks.reshape(num_blocks, 1, outputs, num_inputs)

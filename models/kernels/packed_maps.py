"""Affine maps of joined vectors and the logits after them, in one go through the compiled code."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from models.kernels.digest import SOURCES
from models.kernels.lanes import numba
from models.kernels.packing import BLOCK_INPUTS, TILE_OUTPUTS, pack_all
from models.kernels.passes import multiply
from models.kernels.stages import Inputs, fill_inputs, forms
from models.weights import F32, Matrix


class PackedMaps:
    """What `Maps` of `models.heads.linear` computes, straight from the weights as they are stored.

    A row is the same bits in any company. It runs in the thread that calls it, without the interpreter's lock: with
    another to help, what is gained is lost to waking it.
    """

    def __init__(
        self, maps: Sequence[tuple[Matrix, F32 | None]], output: Matrix, norm_eps: float, *, is_int8: bool = False
    ) -> None:
        """Take the weight and the bias of each map, and the output matrix of all."""
        self._num_outputs = output.num_outputs
        self._norm_eps = norm_eps
        self._memory, self._shapes = pack_all([*(weight for weight, _ in maps), output], is_for_int8=is_int8)
        self._biases = np.zeros((len(maps), int(self._shapes[-1, 3]) * BLOCK_INPUTS), np.float32)
        for row, (_, bias) in zip(self._biases, maps, strict=True):
            if bias is not None:
                row[: len(bias)] = bias

    def __call__(self, which: int, parts: F32) -> tuple[F32, F32]:
        """From float32 `[n, parts, dim]` to states `[n, dim]` and logits `[n, num_outputs]`."""
        num_rows, _, dim = parts.shape
        of_map, of_output = self._shapes[which], self._shapes[-1]
        states = np.empty((num_rows, int(of_map[2]) * TILE_OUTPUTS), np.float32)
        logits = np.empty((num_rows, int(of_output[2]) * TILE_OUTPUTS), np.float32)
        if num_rows:
            joined = np.zeros((num_rows, int(of_map[3]) * BLOCK_INPUTS), np.float32)
            _run_maps(
                self._memory, of_map, of_output, np.ascontiguousarray(parts), self._norm_eps, joined,
                self._biases[which], _inputs(num_rows, int(max(of_map[3], of_output[3]))), states, logits,
            )  # fmt: skip
        return states[:, :dim], logits[:, : self._num_outputs]


def _inputs(num_rows: int, num_blocks: int) -> Inputs:
    """Make room for rows of so many blocks."""
    size, blocks = num_rows * num_blocks * BLOCK_INPUTS, num_rows * num_blocks
    return Inputs(
        panel=np.empty(size, np.float32),
        panel_sums=np.empty(blocks, np.float32),
        codes=np.empty(size, np.int8),
        steps=np.empty(blocks, np.float32),
        sums=np.empty(blocks, np.float32),
        counts=np.empty(blocks, np.int32),
    )


def _compile(sources: int) -> Any:
    """Compile the maps, or take them from the disk; `sources` in it keeps an older version's from being taken."""

    def run_maps(
        memory: Any, of_map: Any, of_output: Any, parts: Any, norm_eps: float, joined: Any, bias: Any, inputs: Any,
        states: Any, logits: Any,
    ) -> int:  # fmt: skip
        num_rows, num_parts, dim = parts.shape
        for row in range(num_rows):
            for part in range(num_parts):
                total = 0.0
                for i in range(dim):
                    total += parts[row, part, i] * parts[row, part, i]
                scale = np.float32(1 / np.sqrt(total / dim + norm_eps))
                for i in range(dim):
                    joined[row, part * dim + i] = parts[row, part, i] * scale
        fill_inputs(joined, num_rows, of_map[3], forms(of_map.reshape(1, -1), 0, 1), inputs)
        for tile in range(of_map[2]):
            multiply(memory, of_map, tile, num_rows, inputs, states, 0, 0)
        for row in range(num_rows):
            for i in range(states.shape[1]):
                states[row, i] += bias[i]
        fill_inputs(states, num_rows, of_output[3], forms(of_output.reshape(1, -1), 0, 1), inputs)
        for tile in range(of_output[2]):
            multiply(memory, of_output, tile, num_rows, inputs, logits, 0, 0)
        return sources

    return numba.njit(nogil=True, error_model="numpy", cache=True)(run_maps)


_run_maps = _compile(SOURCES)

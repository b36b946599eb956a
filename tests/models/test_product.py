"""The compiled product of a tile and some rows, in every format, against the same in float64."""

import numpy as np
import pytest

pytest.importorskip("numba", reason="the compiled kernels need numba (outrider[fast])")
import numba

from models.kernels.packing import TILE_OUTPUTS, Kind, pack, pack_all
from models.kernels.product import MAX_ROWS, multiply_tile
from models.weights import Matrix
from tests.models.formats import random_matrix


@numba.njit(error_model="numpy")
def multiply(kind, rows, panel, sums, weights, at, num_blocks, out, stride, add):
    multiply_tile(kind, rows, panel, 0, sums, 0, weights, at, num_blocks, out, 3, stride, add)


def product(matrix, x, out, add):
    """`out[:, 3 : 3 + outputs] = x W^T` tile by tile, as one part."""
    kind, data = pack(matrix)
    num_rows, num_blocks = len(x), data.shape[1]
    panel = np.ascontiguousarray(x.T).reshape(-1)
    sums = np.ascontiguousarray(x.reshape(num_rows, num_blocks, 32).sum(axis=2).T).reshape(-1)
    for tile in range(len(data)):
        tile_out = np.ascontiguousarray(out[:, tile * TILE_OUTPUTS : tile * TILE_OUTPUTS + TILE_OUTPUTS + 3])
        multiply(kind, num_rows, panel, sums, data.reshape(-1), tile * data[0].size, num_blocks, tile_out, 35, add)
        out[:, tile * TILE_OUTPUTS + 3 : tile * TILE_OUTPUTS + TILE_OUTPUTS + 3] = tile_out[:, 3:]
    return out[:, 3:]


@pytest.mark.parametrize("num_inputs", [32, 96, 4128])
@pytest.mark.parametrize("blocks", ["F32", "F16", "Q8_0", "Q4_0", "Q4_1"])
def test_products_in_every_format_and_for_every_number_of_rows(blocks, num_inputs):
    generator = np.random.default_rng(num_inputs)
    matrix = random_matrix(generator, 70, num_inputs, blocks)
    x = generator.standard_normal((MAX_ROWS, num_inputs)).astype(np.float32)
    expected = x.astype(float) @ matrix.dense().astype(float).T
    alone = [product(matrix, x[i : i + 1], np.zeros((1, 99), np.float32), 0)[0] for i in range(MAX_ROWS)]
    for num_rows in range(1, MAX_ROWS + 1):
        found = product(matrix, x[:num_rows], np.full((num_rows, 99), 7, np.float32), 0)
        np.testing.assert_allclose(found[:, :70], expected[:num_rows], rtol=1e-4, atol=1e-4)
        assert (found[:, 70:] == 0).all()  # outputs that fill up the last tile
        np.testing.assert_array_equal(found, alone[:num_rows])
        added = product(matrix, x[:num_rows], np.full((num_rows, 99), 7, np.float32), 1)
        np.testing.assert_array_equal(added, found + np.float32(7))


def test_matrices_in_one_stretch_of_memory_lie_apart():
    generator = np.random.default_rng(0)
    matrices = [random_matrix(generator, n, 64, blocks) for n, blocks in ((3, "F32"), (40, "Q8_0"), (33, "Q4_1"))]
    memory, shapes = pack_all(matrices)
    assert memory.ctypes.data % 64 == 0
    for matrix, (offset, kind, tiles, blocks, size, num_outputs) in zip(matrices, shapes.tolist(), strict=True):
        packed_kind, data = pack(matrix)
        assert (kind, tiles, blocks, size, num_outputs) == (packed_kind, *data.shape, matrix.num_outputs)
        assert offset % 64 == 0
        np.testing.assert_array_equal(memory[offset : offset + data.size], data.reshape(-1))


def test_a_format_that_is_not_packed_as_it_is_becomes_floats():
    matrix = Matrix(np.zeros((4, 10), np.uint8), "Q6_K", lambda rows: np.full((len(rows), 32), 2, np.float32))
    kind, data = pack(matrix)
    assert kind == Kind.F32
    assert data.view(np.float32).sum() == 4 * 32 * 2

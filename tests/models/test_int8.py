"""Products of rows rounded to 8 bits: their bits, how near they are, and what is not finite."""

import numpy as np
import pytest

pytest.importorskip("numba", reason="the compiled kernels need numba (outrider[fast])")
from models.kernels.int8 import HAS_VNNI
from models.kernels.int8_check import is_right, portable_product
from models.kernels.packed_linear import PackedLinear
from tests.models.formats import random_matrix

pytestmark = pytest.mark.skipif(not HAS_VNNI, reason="this processor has no avx512_vnni")

FORMATS = ["Q8_0", "Q4_0", "Q4_1"]


def test_this_processor_is_right():
    assert is_right()


@pytest.mark.parametrize("num_inputs", [32, 96, 1536])
@pytest.mark.parametrize("blocks", FORMATS)
def test_products_have_the_bits_of_plain_integer_arithmetic_for_any_number_of_rows(blocks, num_inputs):
    generator = np.random.default_rng(num_inputs)
    matrix = random_matrix(generator, 70, num_inputs, blocks)
    x = generator.standard_normal((30, num_inputs)).astype(np.float32) * np.float32(3)
    product, expected = PackedLinear(matrix, is_int8=True), portable_product(matrix, x)
    for num_rows in (1, 2, 5, 12, 13, 30):
        np.testing.assert_array_equal(product(x[:num_rows]), expected[:num_rows])
    exact = x.astype(float) @ matrix.dense().astype(float).T
    assert np.sqrt(np.mean((expected - exact) ** 2)) < 0.01 * exact.std()


@pytest.mark.parametrize("blocks", FORMATS)
def test_the_largest_weights_and_inputs_do_not_saturate(blocks):
    matrix = random_matrix(np.random.default_rng(0), 32, 64, blocks)
    num_scales = 2 if blocks == "Q4_1" else 1
    codes = matrix.data.reshape(32, 2, -1)[..., 2 * num_scales :]
    codes[:] = 127 if blocks == "Q8_0" else 255
    for sign in (1, -1):
        x = np.full((1, 64), sign * 5, np.float32)
        exact = x.astype(float) @ matrix.dense().astype(float).T
        np.testing.assert_allclose(PackedLinear(matrix, is_int8=True)(x), exact, rtol=1e-5)


@pytest.mark.parametrize("blocks", FORMATS)
def test_a_row_that_is_not_finite_stays_so_and_leaves_the_others(blocks):
    matrix = random_matrix(np.random.default_rng(0), 40, 64, blocks)
    x = np.random.default_rng(1).standard_normal((5, 64)).astype(np.float32)
    product = PackedLinear(matrix, is_int8=True)
    expected = product(x)
    x[1, 3], x[2, 40], x[3, 0] = np.nan, np.inf, -np.inf
    found = product(x)
    assert not np.isfinite(found[1:4]).any()
    np.testing.assert_array_equal(found[[0, 4]], expected[[0, 4]])


@pytest.mark.parametrize("blocks", FORMATS)
def test_rows_of_next_to_nothing_are_nothing(blocks):
    matrix = random_matrix(np.random.default_rng(0), 40, 64, blocks)
    for value in (0.0, 1e-38, -1e-31):
        assert (np.abs(PackedLinear(matrix, is_int8=True)(np.full((2, 64), value, np.float32))) < 1e-28).all()

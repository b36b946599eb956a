"""The products: every input counts, however wide, and a row is the same bits in any company."""

import numpy as np
import pytest

from models.linear import RowLinear


@pytest.mark.parametrize("num_inputs", [1, 40, 4095, 4096, 4097, 8192, 9001])
@pytest.mark.parametrize("num_outputs", [1, 3, 50])
def test_every_input_counts(num_inputs, num_outputs):
    generator = np.random.default_rng(num_inputs)
    weights = generator.standard_normal((num_outputs, num_inputs)).astype(np.float32)
    rows = generator.standard_normal((3, num_inputs)).astype(np.float32)
    found = RowLinear(weights)(rows)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, rows.astype(float) @ weights.T.astype(float), atol=1e-5 * num_inputs**0.5 * 4)


def test_one_input_at_a_time():
    weights = np.arange(1, 2 * 9001 + 1, dtype=np.float32).reshape(2, 9001)
    linear = RowLinear(weights)
    for at in (0, 4095, 4096, 8191, 8192, 9000):
        row = np.zeros((1, 9001), np.float32)
        row[0, at] = 1
        np.testing.assert_array_equal(linear(row)[0], weights[:, at])


@pytest.mark.parametrize("num_inputs", [7, 4100])
def test_a_row_is_the_same_alone_and_in_company(num_inputs):
    generator = np.random.default_rng(0)
    linear = RowLinear(generator.standard_normal((130, num_inputs)).astype(np.float32))
    rows = generator.standard_normal((6, num_inputs)).astype(np.float32)
    together = linear(rows)
    for i in range(6):
        np.testing.assert_array_equal(linear(rows[i : i + 1])[0], together[i])
    rows[2] = np.nan
    np.testing.assert_array_equal(linear(rows)[[0, 1, 3, 4, 5]], together[[0, 1, 3, 4, 5]])

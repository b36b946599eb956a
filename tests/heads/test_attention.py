"""Attention to keys that lie anywhere: compiled and in numpy, against the same in float64."""

import numpy as np
import pytest

from models.heads.eagle_layer import attend_in_tables
from tests.heads.beside import KERNELS

HEADS, KV_HEADS = 6, 2


@pytest.fixture(params=KERNELS)
def attend(request):
    if request.param == "numpy":
        return attend_in_tables
    from models.kernels.place_attention import attend_places

    return attend_places


def drawn(generator, num_places, head_dim):
    return (generator.standard_normal((num_places, 1, KV_HEADS, head_dim)).astype(np.float32) for _ in range(2))


def expected_row(q, places, keys, values):
    mixed = []
    for head, query in enumerate(q.astype(float)):
        kv = head // (HEADS // KV_HEADS)
        scores = keys[places, 0, kv] @ query / np.sqrt(len(query))
        shares = np.exp(scores - scores.max())
        mixed.append(shares @ values[places, 0, kv] / shares.sum())
    return np.concatenate(mixed)


@pytest.mark.parametrize("head_dim", [16, 48, 64])
def test_rows_see_their_places_and_no_others(attend, head_dim):
    generator = np.random.default_rng(head_dim)
    keys, values = drawn(generator, 90, head_dim)
    seen = [
        np.array([7]),
        np.arange(3, 70),  # a run
        np.array([*range(64, 80), *range(16, 32), 33, 81, 5]),  # blocks, and drafted nodes
        generator.permutation(90)[:33],
    ]
    q = generator.standard_normal((len(seen), HEADS, head_dim)).astype(np.float32)
    found = attend(q, seen, keys, values)
    for row, places in enumerate(seen):
        np.testing.assert_allclose(found[row], expected_row(q[row], places, keys, values), atol=1e-5)
        np.testing.assert_array_equal(attend(q[row : row + 1], [places], keys, values)[0], found[row])


def test_where_keys_lie_does_not_matter(attend):
    generator = np.random.default_rng(1)
    keys, values = drawn(generator, 90, 16)
    q = generator.standard_normal((1, HEADS, 16)).astype(np.float32)
    order = generator.permutation(90)
    scattered = [np.empty_like(memory) for memory in (keys, values)]
    for memory, copy in zip((keys, values), scattered, strict=True):
        copy[order] = memory
    together = attend(q, [np.arange(20, 63)], keys, values)
    np.testing.assert_array_equal(attend(q, [order[20:63]], *scattered), together)


def test_no_rows(attend):
    keys, values = drawn(np.random.default_rng(2), 4, 16)
    assert attend(np.empty((0, HEADS, 16), np.float32), [], keys, values).shape == (0, HEADS * 16)

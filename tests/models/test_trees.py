"""Token trees: a row is that of its root path, whatever lies beside it, and what is accepted goes on as a chain."""

import importlib.util

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import FakeModel
from models.llama import Llama
from models.weights import tiny_llama
from tests import reference as ref
from tests.models.trees import assert_trees_are_their_paths, random_pass, write_contexts

FAKE = {"seed": 7, "vocab": 9, "order": 3, "sharp": 4.0}


@pytest.mark.parametrize("order", [1, 3, 30])
@given(seed=st.integers(0, 2**32), block_tokens=st.integers(1, 9), num_sequences=st.integers(1, 5))
def test_rows_of_the_fake_target_are_those_of_the_paths(order, seed, block_tokens, num_sequences):
    spec = {**FAKE, "order": order}
    generator = np.random.default_rng(seed)
    num_blocks, sequences = random_pass(generator, 9, block_tokens, num_sequences=num_sequences)
    model = FakeModel(*spec.values())
    model.bind(num_blocks, block_tokens)
    write_contexts(model, sequences, block_tokens)
    rows = model.forward([chunk for _, chunk, _ in sequences])
    wanted = [path for _, chunk, paths in sequences for path in paths[len(paths) - chunk.num_rows :]]
    assert rows.tolist() == [ref.fake_row(spec, path) for path in wanted]


@pytest.mark.parametrize("seed", range(30))
def test_rows_of_the_numpy_llama_are_those_of_the_paths(seed):
    assert_trees_are_their_paths(Llama(*tiny_llama(0)), seed, 1 + seed % 7)


@pytest.fixture(scope="module")
def fast():
    if importlib.util.find_spec("numba") is None:
        pytest.skip("the compiled kernels need numba (outrider[fast])")
    from models.fast_llama import FastLlama

    return FastLlama(*tiny_llama(0), num_threads=2)


@pytest.mark.parametrize("seed", range(60))
def test_rows_of_the_fast_llama_are_those_of_the_paths(fast, seed):
    assert_trees_are_their_paths(fast, seed, 1 + seed % 7)

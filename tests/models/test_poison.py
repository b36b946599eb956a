"""No value that a row may not see reaches it: not those of neighbours, of rejected or freed slots, nor of padding."""

import dataclasses
import importlib.util

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import Chunk, FakeModel
from models.llama import Llama
from models.weights import Matrix, tiny_llama
from tests.models.trees import random_pass, write_contexts

KERNELS = ["numpy", "numba"] if importlib.util.find_spec("numba") else ["numpy"]
BAD = 5  # the id whose embedding row is damaged
B = 4


def llama(kernel, value=0.0):
    config, weights = tiny_llama(0)
    embedding = weights.embedding.dense().copy()
    embedding[BAD] = value
    weights = dataclasses.replace(weights, embedding=Matrix(embedding), output=weights.embedding)
    if kernel == "numpy":
        model = Llama(config, weights)
    else:
        from models.fast_llama import FastLlama

        model = FastLlama(config, weights, num_threads=2)
    model.bind(30, B)
    return model


@pytest.fixture(scope="module", params=[np.nan, np.inf, -np.inf], ids=str)
def value(request):
    return request.param


@pytest.fixture(scope="module", params=KERNELS)
def models(request, value):
    """The same model with a damaged row and with a sound one."""
    return llama(request.param, value), llama(request.param, 0.25)


def rows_of(model, *passes):
    """The rows of the last of some passes, over fresh memory."""
    model.bind(30, B)
    for chunks in passes:
        rows = model.forward(chunks)
    return rows


def assert_only_these_are_lost(models, lost, *passes):
    damaged, sound = (rows_of(model, *passes) for model in models)
    is_lost = np.array(lost)
    assert np.isnan(damaged[is_lost]).any(axis=1).all()
    np.testing.assert_array_equal(damaged[~is_lost], sound[~is_lost])


def test_neighbours_in_the_same_pass(models):
    chunks = [Chunk([7, 8], 0, [0], 2), Chunk([BAD], 0, [1], 1), Chunk([9], 0, [2], 1), Chunk([1, BAD, 2], 0, [3], 3)]
    assert_only_these_are_lost(models, [False, False, True, False, False, True, True], chunks)


def test_later_passes(models):
    bad = [Chunk([BAD] * 9, 0, [0, 1, 2], 9)]
    later = [Chunk([7, 8], 0, [3], 2), Chunk([9], 0, [4], 1)]
    assert_only_these_are_lost(models, [False] * 3, bad, later)


def test_blocks_given_to_another(models):
    """Its rows are written over the lost ones one after the other, so that the last block is partial each time."""
    bad = [Chunk([BAD] * 12, 0, [0, 1, 2], 1)]
    passes = [[Chunk([7], i, [2, 0, 1][: i // B + 1], 1)] for i in range(9)]
    for end in range(1, len(passes) + 1):
        assert_only_these_are_lost(models, [False], bad, *passes[:end])


def test_a_rejected_draft(models):
    context = [Chunk([7, 8, 9], 0, [0], 0)]
    draft = [Chunk([1, 2, BAD, 3], 3, [0, 1], 4)]
    assert_only_these_are_lost(models, [False, False, True, True], context, draft)
    assert_only_these_are_lost(models, [False] * 2, context, draft, [Chunk([1, 2], 3, [0, 1], 2)])


def test_siblings_and_the_branches_below_them(models):
    ids, parents = [1, BAD, 2, 3, 4, 6, 7], [-1, 0, 0, 1, 2, 4, 3]
    lost = [False, True, False, True, False, False, True]
    assert_only_these_are_lost(models, lost, [Chunk([7, 8, 9], 0, [0], 0)], [Chunk(ids, 3, [0, 1, 2], 7, parents)])


@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize("kernel", KERNELS)
def test_whatever_lies_in_memory_that_was_not_written_for_a_row(kernel, poison):
    model = llama(kernel, 0.25)
    for seed in range(6):
        rows = []
        for value in (0.0, poison):
            num_blocks, sequences = random_pass(np.random.default_rng(seed), 97, 1 + seed, num_sequences=3)
            model.bind(num_blocks, 1 + seed)
            for memory in (model._kv.keys, model._kv.values):
                memory[..., : model.config.head_dim] = value  # what fills a head up to whole vectors stays zero
            write_contexts(model, sequences, 1 + seed)
            rows.append(model.forward([chunk for _, chunk, _ in sequences]))
        assert np.isfinite(rows[1]).all()
        np.testing.assert_array_equal(rows[1], rows[0])


@given(seed=st.integers(0, 2**32), size=st.integers(1, 9), order=st.integers(1, 4))
def test_stale_slots_of_the_fake_target(seed, size, order):
    """Everything but the contexts is overwritten with the likeness of a written slot; no row changes."""
    rows = []
    for is_poisoned in (False, True):
        generator = np.random.default_rng(seed)
        num_blocks, sequences = random_pass(generator, 9, size, num_sequences=3)
        model = FakeModel(7, 9, order, 4.0)
        model.bind(num_blocks, size)
        write_contexts(model, sequences, size)
        if is_poisoned:
            memory = model._memory
            is_stale = np.ones(memory._words.shape, bool)
            for context, chunk, _ in sequences:
                for position in range(len(context)):
                    is_stale[chunk.table[position // size], position % size] = False
            memory._words[is_stale] = 11 << 32 | 3
            memory._sums[is_stale] = 0x1234567
        rows.append(model.forward([chunk for _, chunk, _ in sequences]))
    np.testing.assert_array_equal(*rows)

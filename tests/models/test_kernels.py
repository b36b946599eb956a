"""The compiled routines one by one, against the same in float64."""

import numpy as np
import pytest

from models.llama import Llama
from models.protocol import Chunk
from models.weights import LayerWeights, LlamaConfig, LlamaWeights, Matrix

pytest.importorskip("numba", reason="the compiled kernels need numba (outrider[fast])")
import numba

from models.fast_llama import FastLlama
from models.kernels import rows

generator = np.random.default_rng(0)


def floats(*shape):
    return generator.standard_normal(shape).astype(np.float32)


@numba.njit(error_model="numpy")
def exponentiate(scores, at, length):
    return rows.exponentiate(scores, at, length)


@numba.njit(error_model="numpy")
def gate(gates, at, ups, up_at):
    rows.gate_strip(gates, at, ups, up_at)


@numba.njit(error_model="numpy")
def sums(array, at, length):
    return rows.block_sum(array, at), rows.sum_squares(array, at, length)


@numba.njit(error_model="numpy")
def attend(q, q_at, group, memory, at, stride, num_keys, head_dim, scores, score_at, score_stride, out):
    rows.score_keys(q, q_at, group, memory, at, stride, num_keys, head_dim, scores, score_at, score_stride)
    rows.mix_values(scores, score_at, score_stride, group, memory, at, stride, num_keys, head_dim, out)


@pytest.mark.parametrize("spread", [1e-3, 1.0, 19.0, 60.0, 86.5])
def test_powers_are_right_as_far_down_as_a_float_goes(spread):
    scores = np.concatenate([floats(16), np.linspace(-spread, 0, 64, dtype=np.float32) + 3])
    scores[:16] = 1e9  # what is before the run is not its own
    expected = np.exp(scores[16:].astype(float) - scores[16:].max())
    total = exponentiate(scores, 16, 64)
    np.testing.assert_allclose(scores[16:], expected, rtol=3e-7)
    np.testing.assert_allclose(total, expected.sum(), rtol=1e-6)
    assert (scores[:16] == 1e9).all()


def test_the_share_of_what_is_masked_is_as_good_as_none():
    scores = np.full(16, -np.inf, np.float32)
    scores[:2] = [4.0, -200.0]
    assert exponentiate(scores, 0, 16) == 1
    assert scores[0] == 1
    assert (scores[1:] < 1e-37).all()


def test_gates_from_shut_to_open():
    gates = np.concatenate([[-100, -88, -60, -25, -20.5, -9, -1, -1e-3, 0, 1e-3, 1, 9, 20.5, 60, 88, 1e4]])
    x, ups = np.tile(gates.astype(np.float32), 3), floats(48)
    expected = x.astype(float) / (1 + np.exp(-x.astype(float))) * ups
    found = x.copy()
    gate(found, 16, ups, 16)
    np.testing.assert_allclose(found[16:32], expected[16:32], rtol=1e-6, atol=1e-33)
    np.testing.assert_array_equal(found[:16], x[:16])
    np.testing.assert_array_equal(found[32:], x[32:])


@pytest.mark.parametrize("length", [16, 32, 160])
def test_sums_of_blocks_and_squares(length):
    array = floats(200)
    block, squares = sums(array, 32, length)
    np.testing.assert_allclose(block, array[32:64].astype(float).sum(), atol=1e-5)
    np.testing.assert_allclose(squares, (array[32 : 32 + length].astype(float) ** 2).sum(), rtol=1e-6)


@pytest.mark.parametrize("group", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("num_keys", [1, 7, 16, 17, 40])
@pytest.mark.parametrize("head_dim", [16, 48, 80, 128])  # pieces left over from runs of four
def test_scores_and_mixtures_of_a_run_of_keys(num_keys, head_dim, group):
    """Of one key head of two; run by run they have the bits of the whole, whatever the runs."""
    q, memory = floats(2, group, head_dim), floats(50, 2, head_dim)
    keys = memory[5 : 5 + num_keys, 1].astype(float)
    stride = 2 * head_dim
    found = []
    for runs in ([num_keys], [1] * num_keys, [3] * (num_keys // 3) + [1] * (num_keys % 3)):
        scores, out = np.zeros((group, 64), np.float32), np.ones((group, head_dim), np.float32)
        at = 0
        for run in runs:
            place = ((5 + at) * 2 + 1) * head_dim
            attend(q, group * head_dim, group, memory, place, stride, run, head_dim, scores, at, 64, out)
            at += run
        found.append((scores, out))
    scores, out = found[0]
    expected = q[1].astype(float) @ keys.T
    np.testing.assert_allclose(scores[:, :num_keys], expected, rtol=1e-5, atol=1e-4)
    assert (scores[:, num_keys:] == 0).all()
    np.testing.assert_allclose(out, 1 + expected @ keys, rtol=1e-5, atol=1e-2)
    for other in found[1:]:
        np.testing.assert_array_equal(other[0], scores)
        np.testing.assert_array_equal(other[1], out)


@pytest.mark.parametrize(("dim", "ffn_dim"), [(4160, 64), (64, 4130), (64, 9000)])
def test_inputs_wider_than_one_panel(dim, ffn_dim):
    """Against the numpy llama, whose products are tested by themselves; every input of the wide product counts."""
    config = LlamaConfig(
        vocab_size=40, dim=dim, num_layers=1, num_heads=2, num_kv_heads=1, head_dim=16, ffn_dim=ffn_dim,
        max_model_len=32,
    )  # fmt: skip

    def matrix(num_outputs, num_inputs):
        return Matrix(floats(num_outputs, num_inputs) / np.float32(np.sqrt(num_inputs)))

    layer = LayerWeights(
        attention_norm=np.ones(dim, np.float32), q=matrix(32, dim), k=matrix(16, dim), v=matrix(16, dim),
        o=matrix(dim, 32), ffn_norm=np.ones(dim, np.float32), gate=matrix(ffn_dim, dim), up=matrix(ffn_dim, dim),
        down=matrix(dim, ffn_dim),
    )  # fmt: skip
    weights = LlamaWeights(matrix(40, dim), [layer], np.ones(dim, np.float32))
    found = []
    for model in (Llama(config, weights), FastLlama(config, weights, num_threads=2)):
        model.bind(4, 8)
        found.append(model.forward([Chunk(list(range(14)), 0, [3, 1], 14)]))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-4)

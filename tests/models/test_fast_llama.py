import copy
import dataclasses
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from models.llama import Llama
from models.protocol import Chunk
from models.weights import LlamaConfig, LlamaWeights, Matrix, tiny_llama
from tests.models.formats import random_matrix
from tests.models.invariance import (
    assert_rows_do_not_depend_on_company,
    assert_runner_target_scores_every_fed_position,
)

pytest.importorskip("numba", reason="the compiled kernels need numba (outrider[fast])")
from models import fast_llama
from models.fast_llama import FastLlama
from models.kernels.int8 import HAS_VNNI


def llama_of(blocks, seed=0):
    """A llama whose every matrix is in one format; with mixed formats the key matrix is in another."""
    config = LlamaConfig(
        vocab_size=150, dim=96, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=24, ffn_dim=160, max_model_len=256
    )  # fmt: skip
    generator = np.random.default_rng(seed)
    formats = {"k": "Q8_0", "other": "Q4_1"} if blocks == "mixed" else {"other": blocks}

    def matrix(name, num_outputs, num_inputs):
        return random_matrix(generator, num_outputs, num_inputs, formats.get(name, formats["other"]))

    _, tiny = tiny_llama(0)
    layers = [
        dataclasses.replace(
            tiny.layers[0],
            attention_norm=np.ones(96, np.float32),
            ffn_norm=generator.uniform(0.5, 1.5, 96).astype(np.float32),
            q=matrix("q", 96, 96),
            k=matrix("k", 48, 96),
            v=matrix("v", 48, 96),
            o=matrix("o", 96, 96),
            gate=matrix("gate", 160, 96),
            up=matrix("up", 160, 96),
            down=matrix("down", 96, 160),
            qkv_bias=generator.standard_normal(192).astype(np.float32) if blocks == "mixed" else None,
        )
        for _ in range(2)
    ]
    return config, LlamaWeights(matrix("embedding", 150, 96), layers, np.ones(96, np.float32))


@pytest.mark.parametrize("blocks", ["F32", "F16", "Q8_0", "Q4_0", "Q4_1", "mixed"])
def test_logits_are_those_of_the_numpy_llama(blocks):
    config, weights = llama_of(blocks)
    ids = np.random.default_rng(1).integers(0, 150, 90).tolist()
    rows = []
    for model in (Llama(config, weights), FastLlama(config, weights)):
        model.bind(40, 5)
        model.forward([Chunk(ids=ids[:40], start=0, table=list(range(9, 27)), num_rows=0)])
        rows.append(model.forward([Chunk(ids=ids[40:], start=40, table=list(range(9, 27)), num_rows=50)]))
    np.testing.assert_allclose(rows[1], rows[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("block_tokens", [4, 16, 40])
@pytest.mark.parametrize("is_int8", [False, True])
@pytest.mark.parametrize("blocks", ["F32", "Q4_1", "mixed"])
def test_rows_do_not_depend_on_batch_or_chunking(blocks, block_tokens, is_int8):
    model = FastLlama(*llama_of(blocks), is_int8=is_int8 and HAS_VNNI)
    model.bind(80, block_tokens)
    assert_rows_do_not_depend_on_company(model, 7, max_length=75, block_tokens=block_tokens)


@pytest.mark.skipif(not HAS_VNNI, reason="this processor has no avx512_vnni")
@pytest.mark.parametrize("blocks", ["Q8_0", "Q4_0", "Q4_1", "mixed"])
def test_rows_of_8_bits_stay_near_exact_ones_and_are_not_them(blocks):
    config, weights = llama_of(blocks)
    ids = np.random.default_rng(1).integers(0, 150, 50).tolist()
    rows = []
    for is_int8 in (False, True):
        model = FastLlama(config, weights, is_int8=is_int8)
        model.bind(10, 5)
        rows.append(model.forward([Chunk(ids=ids, start=0, table=list(range(10)), num_rows=50)]))
    difference = np.sqrt(np.mean((rows[1] - rows[0]) ** 2)) / rows[0].std()
    assert 0 < difference < 0.03


def test_odd_sizes_and_untied_output():
    config, weights = tiny_llama(2, tied=False)
    fast, plain = FastLlama(config, weights), Llama(config, weights)
    chunk = Chunk(ids=list(range(70)), start=0, table=list(range(18)), num_rows=70)
    for model in (fast, plain):
        model.bind(80, 4)
    np.testing.assert_allclose(fast.forward([chunk]), plain.forward([chunk]), rtol=1e-4, atol=1e-4)
    assert_rows_do_not_depend_on_company(fast, 3, max_length=75, block_tokens=4)


@pytest.mark.parametrize("is_int8", [False, True])
def test_rows_do_not_depend_on_the_number_of_threads(is_int8):
    chunk = Chunk(ids=list(range(100)), start=0, table=list(range(25)), num_rows=100)
    rows = []
    for num_threads in (1, 2, 5):
        model = FastLlama(*llama_of("Q4_1"), num_threads=num_threads, is_int8=is_int8 and HAS_VNNI)
        model.bind(25, 4)
        rows.append(model.forward([chunk]))
    np.testing.assert_array_equal(rows[1], rows[0])
    np.testing.assert_array_equal(rows[2], rows[0])
    with pytest.raises(ValueError, match="num_threads 0"):
        FastLlama(*tiny_llama(0), num_threads=0)


def test_runner_target_scores_every_fed_position():
    prompt = np.random.default_rng(5).integers(0, 97, 12).tolist() * 3
    assert_runner_target_scores_every_fed_position(FastLlama(*tiny_llama(1)), prompt, max_new=60)


def test_extreme_gates_and_scores_stay_finite():
    config, weights = tiny_llama(0)
    large = [
        dataclasses.replace(layer, q=Matrix(layer.q.dense() * 300), gate=Matrix(layer.gate.dense() * 3000))
        for layer in weights.layers
    ]
    weights = dataclasses.replace(weights, layers=large)
    chunk = Chunk(ids=list(range(70)), start=0, table=list(range(18)), num_rows=70)
    rows = []
    for model in (Llama(config, weights), FastLlama(config, weights)):
        model.bind(20, 4)
        rows.append(model.forward([chunk]))
    assert np.isfinite(rows[1]).all()
    np.testing.assert_allclose(rows[1], rows[0], rtol=0.02, atol=0.02)


def test_copies_of_a_model_share_no_room(monkeypatch):
    """A pass that was given up may be anywhere: here one of its threads does not come back before the next is over."""
    run_pass, rooms, held_up, gate = fast_llama.run_pass, [], [], threading.Event()

    def slow(thread, num_threads, sizes, packed, fed, keys, values, features, shared, private, logits):
        rooms.append((keys, shared.x, private.line))
        if thread == 1 and not held_up:
            held_up.append(thread)
            gate.wait(20)
        run_pass(thread, num_threads, sizes, packed, fed, keys, values, features, shared, private, logits)

    model = FastLlama(*tiny_llama(3), num_threads=2)
    chunk = Chunk(ids=[1, 2, 3], start=0, table=[0], num_rows=3)
    model.bind(1, 4)
    wanted = model.forward([chunk])
    late, following = copy.copy(model), copy.copy(model)
    late.bind(1, 4)
    monkeypatch.setattr(fast_llama, "run_pass", slow)
    with ThreadPoolExecutor(2) as pool:
        given_up = pool.submit(late.forward, [chunk])
        while not held_up and not given_up.done():
            time.sleep(0.001)
        following.bind(1, 4)
        try:
            assert (pool.submit(following.forward, [chunk]).result(10) == wanted).all()
        finally:
            gate.set()
        assert (given_up.result(10) == wanted).all()
    keys, *first = rooms[0]
    others = [room for keys_of_other, *room in rooms if not np.shares_memory(keys, keys_of_other)]
    assert len(others) == 2
    assert not any(np.shares_memory(mine, its) for other in others for mine, its in zip(first, other, strict=True))

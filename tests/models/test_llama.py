import os
import subprocess
import sys

import numpy as np
import pytest

from models.llama import Llama
from models.protocol import Chunk
from models.weights import LlamaConfig, halves_to_pairs, tiny_llama
from tests.models.invariance import assert_rows_do_not_depend_on_company

BLOCK_TOKENS = 4


def bound(seed=0, num_blocks=80, **shape):
    model = Llama(*tiny_llama(seed, **shape))
    model.bind(num_blocks, BLOCK_TOKENS)
    return model


def textbook_logits(seed, ids, **shape):
    """The same llama written as plain dense float64 algebra over the whole sequence at once."""
    config, weights = tiny_llama(seed, **shape)
    length = len(ids)
    frequencies = config.rope_base ** (-np.arange(0, config.head_dim, 2) / config.head_dim)
    turn = np.exp(1j * np.arange(length)[:, None] * frequencies)[:, None, :]

    def norm(x, weight):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + config.norm_eps) * weight

    def rope(x):
        turned = (x[..., 0::2] + 1j * x[..., 1::2]) * turn
        return np.stack([turned.real, turned.imag], -1).reshape(x.shape)

    x = weights.embedding.dense().astype(float)[ids]
    for layer in weights.layers:
        h = norm(x, layer.attention_norm)
        q = rope((h @ layer.q.dense().T).reshape(length, config.num_heads, config.head_dim))
        k = rope((h @ layer.k.dense().T).reshape(length, config.num_kv_heads, config.head_dim))
        v = (h @ layer.v.dense().T).reshape(length, config.num_kv_heads, config.head_dim)
        group = config.num_heads // config.num_kv_heads
        k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(config.head_dim)
        scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
        share = np.exp(scores - scores.max(-1, keepdims=True))
        share /= share.sum(-1, keepdims=True)
        x = x + np.einsum("hqk,khd->qhd", share, v).reshape(length, -1) @ layer.o.dense().T
        h = norm(x, layer.ffn_norm)
        gate = h @ layer.gate.dense().T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ layer.up.dense().T)) @ layer.down.dense().T
    return norm(x, weights.norm) @ (weights.output or weights.embedding).dense().T


@pytest.mark.parametrize("tied", [True, False])
def test_logits_are_those_of_the_textbook(tied):
    ids = np.random.default_rng(1).integers(0, 97, 70).tolist()
    rows = bound(3, tied=tied).forward([Chunk(ids=ids, start=0, table=list(range(18)), num_rows=70)])
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, textbook_logits(3, ids, tied=tied), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("seed", range(4))
def test_rows_do_not_depend_on_batch_or_chunking(seed):
    assert_rows_do_not_depend_on_company(bound(seed), seed, max_length=75, block_tokens=BLOCK_TOKENS)


def test_rows_do_not_depend_on_the_number_of_threads():
    digests = set()
    for threads in ("1", "2", "7"):
        code = (
            "import hashlib\nfrom tests.models.invariance import rows_of_fresh_runs\n"
            "from tests.models.test_llama import bound\n"
            "print(hashlib.sha256(rows_of_fresh_runs(bound(5), list(range(90)), 4).tobytes()).hexdigest())"
        )
        env = os.environ | {"OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        digests.add(run.stdout)
    assert len(digests) == 1


def test_a_rejected_tail_leaves_no_trace():
    model = bound()
    ids = [5, 17, 3, 80, 44]
    plain = model.forward([Chunk(ids=ids, start=0, table=[0, 1], num_rows=1)])
    model.forward([Chunk(ids=ids[:3], start=0, table=[4, 5], num_rows=0)])
    model.forward([Chunk(ids=[90, 91, 92, 93], start=3, table=[4, 5], num_rows=4)])
    np.testing.assert_array_equal(model.forward([Chunk(ids=ids[3:], start=3, table=[4, 5], num_rows=1)]), plain)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parents": [0, -1]}, r"chunk 1: the parent of id 0 is 0, must be in \[-1, 0\)"),
        ({"parents": [-1, -2]}, r"the parent of id 1 is -2"),
        ({"parents": [-1]}, "chunk 1: 1 parents for 2 ids"),
        ({"ids": []}, "ids is empty"),
        ({"ids": [1, 97]}, r"id 97 .*\[0, 97\)"),
        ({"ids": [-1, 2]}, "id -1"),
        ({"start": -1}, "start -1"),
        ({"start": 255, "table": list(range(65))}, r"position 256 does not fit in \[0, 256\)"),
        ({"num_rows": 3}, "num_rows 3"),
        ({"start": 3}, "too short for 5 slots"),
        ({"table": [80]}, "block 80"),
        ({"table": [-1]}, "block -1"),
    ],
)
def test_a_chunk_that_cannot_be_fed_is_refused_and_nothing_is_written(change, message):
    model = bound()
    good = {"ids": [1, 2], "start": 0, "table": [3], "num_rows": 1}
    prefix = Chunk(ids=[8, 9], start=0, table=[0], num_rows=0)
    model.forward([prefix])
    with pytest.raises(ValueError, match=message):
        model.forward([Chunk(ids=[50, 51], start=0, table=[0], num_rows=0), Chunk(**(good | change))])
    row = model.forward([Chunk(ids=[7], start=2, table=[0], num_rows=1)])
    np.testing.assert_array_equal(row, bound().forward([Chunk(ids=[8, 9, 7], start=0, table=[0], num_rows=1)]))


def test_bad_shapes_are_refused_by_name():
    model = bound()
    with pytest.raises(ValueError, match="num_blocks 0"):
        model.bind(0, 4)
    with pytest.raises(RuntimeError, match="bind"):
        Llama(*tiny_llama(0)).forward([])
    sizes = {"vocab_size": 9, "dim": 8, "num_layers": 1, "num_kv_heads": 2, "ffn_dim": 8, "max_model_len": 8}
    with pytest.raises(ValueError, match="num_heads 3"):
        LlamaConfig(**sizes, num_heads=3, head_dim=4)
    with pytest.raises(ValueError, match="head_dim 3"):
        LlamaConfig(**sizes, num_heads=2, head_dim=3)
    with pytest.raises(ValueError, match="dim 0"):
        LlamaConfig(**(sizes | {"dim": 0}), num_heads=2, head_dim=4)


def test_no_chunks_no_rows():
    assert bound().forward([]).shape == (0, 97)


def test_halves_become_pairs():
    assert halves_to_pairs(2, 6).tolist() == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]

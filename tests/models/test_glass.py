"""A small trained model that its authors' package runs too: an implementation of the forward that is not ours."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from models.llama import Llama
from models.protocol import Chunk
from models.weights import LayerWeights, LlamaConfig, LlamaWeights, Matrix
from tests.models.invariance import (
    assert_rows_do_not_depend_on_company,
    assert_runner_target_scores_every_fed_position,
)

glassllm = pytest.importorskip("glassllm", reason="the glassllm package carries this model")
WEIGHTS = Path(glassllm.__file__).parent / "weights"


def glass(language):
    with np.load(WEIGHTS / f"{language}.npz") as data:
        about = json.loads(str(data["__config__"]))
        arrays = {name: data[name].astype(np.float32) for name in data.files if name != "__config__"}
    config = LlamaConfig(
        vocab_size=len(arrays["E"]),
        dim=about["d_model"],
        num_layers=about["n_layers"],
        num_heads=about["n_heads"],
        num_kv_heads=about["n_kv_heads"],
        head_dim=about["d_model"] // about["n_heads"],
        ffn_dim=arrays["blocks.0.ffn.W1"].shape[1],
        max_model_len=about["max_len"],
        rope_base=about["rope_base"],
        norm_eps=about["eps"],
    )
    names = {"q": "attn.W_Q", "k": "attn.W_K", "v": "attn.W_V", "o": "attn.W_O", "gate": "ffn.W1", "up": "ffn.W3"}

    def layer(index):
        def matrix(name):
            return Matrix(np.ascontiguousarray(arrays[f"blocks.{index}.{name}"].T))

        return LayerWeights(
            attention_norm=arrays[f"blocks.{index}.norm1.gamma"],
            ffn_norm=arrays[f"blocks.{index}.norm2.gamma"],
            down=matrix("ffn.W2"),
            **{field: matrix(name) for field, name in names.items()},
        )

    layers = [layer(index) for index in range(config.num_layers)]
    return config, LlamaWeights(Matrix(arrays["E"]), layers, arrays["norm_f.gamma"])


def kernels():
    yield Llama
    if importlib.util.find_spec("numba"):
        from models.fast_llama import FastLlama

        yield FastLlama


@pytest.fixture(params=list(kernels()))
def kernel(request):
    return request.param


@pytest.mark.parametrize("language", ["en", "pt"])
def test_logits_are_those_of_the_authors_own_code(kernel, language):
    model = kernel(*glass(language))
    model.bind(16, 8)
    ids = np.random.default_rng(0).integers(4, model.vocab_size, 128).tolist()
    found = model.forward([Chunk(ids=ids, start=0, table=list(range(16)), num_rows=128)])
    expected = glassllm.GlassLM.load(WEIGHTS / f"{language}.npz").forward(ids).data[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=4e-5)


def test_rows_do_not_depend_on_batch_or_chunking(kernel):
    model = kernel(*glass("en"))
    model.bind(64, 8)
    assert_rows_do_not_depend_on_company(model, 1, max_length=60, block_tokens=8, num_sequences=3, num_trials=1)


def test_runner_target_scores_every_fed_position(kernel):
    tokenizer = glassllm.Tokenizer.load(WEIGHTS / "en.tokenizer.json")
    prompt = tokenizer.encode("Alice was beginning to get very tired. Alice was beginning to")
    assert_runner_target_scores_every_fed_position(kernel(*glass("en")), prompt, max_new=60)

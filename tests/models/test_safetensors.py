import json

import numpy as np
import pytest

from models.llama import Llama
from models.loading import SafetensorsFolder, open_model
from models.protocol import Chunk
from models.weights import halves_to_pairs, tiny_llama

CHUNK = Chunk(ids=list(range(50)), start=0, table=list(range(13)), num_rows=50)


def write_file(path, tensors):
    """The format from its definition: header length, JSON header, data."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (dtype, array) in tensors.items():
        header[name] = {
            "dtype": dtype,
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + array.nbytes],
        }
        data += array.tobytes()
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + data)


def to_halves(rows, num_heads, head_dim):
    """Undo the pairing that a loader makes."""
    undone = np.empty_like(rows)
    undone[halves_to_pairs(num_heads, head_dim)] = rows
    return undone


def write_folder(path, seed=0, tied=True, bias=None, convert=lambda a: ("F32", a), **settings):
    """A tiny llama in the names and row order of a model hub."""
    config, weights = tiny_llama(seed, tied=tied)
    tensors = {"model.embed_tokens.weight": weights.embedding.dense(), "model.norm.weight": weights.norm}
    if weights.output is not None:
        tensors["lm_head.weight"] = weights.output.dense()
    for index, layer in enumerate(weights.layers):
        prefix = f"model.layers.{index}."
        heads = {"q": config.num_heads, "k": config.num_kv_heads}
        for name in ("q", "k", "v", "o"):
            rows = getattr(layer, name).dense()
            tensors[f"{prefix}self_attn.{name}_proj.weight"] = (
                to_halves(rows, heads[name], config.head_dim) if name in heads else rows
            )
        if bias is not None:
            q, k, v = np.split(bias, [config.q_dim, config.q_dim + config.kv_dim])
            tensors[f"{prefix}self_attn.q_proj.bias"] = to_halves(q, heads["q"], config.head_dim)
            tensors[f"{prefix}self_attn.k_proj.bias"] = to_halves(k, heads["k"], config.head_dim)
            tensors[f"{prefix}self_attn.v_proj.bias"] = v
        for name in ("gate", "up", "down"):
            tensors[f"{prefix}mlp.{name}_proj.weight"] = getattr(layer, name).dense()
        tensors[f"{prefix}input_layernorm.weight"] = layer.attention_norm
        tensors[f"{prefix}post_attention_layernorm.weight"] = layer.ffn_norm
    names = sorted(tensors)
    for part, chosen in enumerate((names[::2], names[1::2])):
        write_file(path / f"model-{part}.safetensors", {name: convert(tensors[name]) for name in chosen})
    about = {
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.ffn_dim,
        "max_position_embeddings": config.max_model_len,
        "rope_theta": config.rope_base,
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": tied,
    }
    (path / "config.json").write_text(json.dumps(about | settings))
    return config, weights


def logits(config, weights):
    model = Llama(config, weights)
    model.bind(13, 4)
    return model.forward([CHUNK])


@pytest.mark.parametrize("tied", [True, False])
def test_a_folder_gives_the_model_that_was_written(tmp_path, tied):
    config, weights = write_folder(tmp_path, seed=3, tied=tied)
    opened = open_model(tmp_path)
    assert opened.config() == config
    np.testing.assert_array_equal(logits(config, opened.weights(config)), logits(config, weights))


def test_halves_are_turned_as_halves(tmp_path):
    """The reordered rows with interleaved pairs give the scores that the file's rows give with halves."""
    config, _ = write_folder(tmp_path)
    folder = SafetensorsFolder(tmp_path)
    layer = folder.weights(config).layers[0]
    from models.loading.safetensors_file import read_tensors

    tensors = read_tensors(tmp_path / "model-0.safetensors") | read_tensors(tmp_path / "model-1.safetensors")
    x = np.random.default_rng(0).standard_normal((2, config.dim)).astype(np.float32)
    cosines, sines = (table[[3, 8], None, :].astype(float) for table in config.rope_table())

    def heads(rows):
        return (x @ rows.T).reshape(2, -1, config.head_dim).astype(float)

    def in_halves(rows):
        first, second = np.split(heads(rows), 2, axis=-1)
        return np.concatenate([first * cosines - second * sines, first * sines + second * cosines], axis=-1)

    def in_pairs(rows):
        turned = heads(rows)
        even, odd = turned[..., 0::2].copy(), turned[..., 1::2].copy()
        turned[..., 0::2], turned[..., 1::2] = even * cosines - odd * sines, even * sines + odd * cosines
        return turned

    prefix = "model.layers.0.self_attn."
    q, k = (in_halves(tensors[f"{prefix}{name}_proj.weight"].matrix.dense()) for name in "qk")
    expected = np.einsum("qhd,khd->hqk", q[:, ::3], k)
    found = np.einsum("qhd,khd->hqk", in_pairs(layer.q.dense())[:, ::3], in_pairs(layer.k.dense()))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_biases_of_qwen2_count(tmp_path):
    bias = np.random.default_rng(1).standard_normal(100).astype(np.float32)
    config, weights = write_folder(tmp_path, bias=bias, model_type="qwen2")
    loaded = SafetensorsFolder(tmp_path).weights(config)
    np.testing.assert_array_equal(loaded.layers[1].qkv_bias, bias)
    assert np.abs(logits(config, loaded) - logits(config, weights)).max() > 0.1


def test_half_precision_is_widened_exactly(tmp_path):
    def to_bf16(array):
        return "BF16", (array.view(np.uint32) >> 16).astype(np.uint16)

    config, weights = write_folder(tmp_path, convert=to_bf16)
    loaded = SafetensorsFolder(tmp_path).weights(config)
    for found, written in ((loaded.embedding, weights.embedding), (loaded.layers[0].down, weights.layers[0].down)):
        np.testing.assert_array_equal(found.dense(), (written.dense().view(np.uint32) >> 16 << 16).view(np.float32))
    config, weights = write_folder(tmp_path, convert=lambda array: ("F16", array.astype(np.float16)))
    loaded = SafetensorsFolder(tmp_path).weights(config)
    np.testing.assert_array_equal(
        loaded.embedding.rows(np.array([3, 1])), weights.embedding.dense()[[3, 1]].astype(np.float16)
    )


def test_what_cannot_be_run_is_refused_by_name(tmp_path):
    write_folder(tmp_path, model_type="mamba")
    with pytest.raises(ValueError, match="mamba; can run llama, qwen2"):
        SafetensorsFolder(tmp_path)
    write_folder(tmp_path, rope_scaling={"rope_type": "yarn", "factor": 32.0})
    with pytest.raises(ValueError, match="yarn"):
        SafetensorsFolder(tmp_path).config()
    write_folder(tmp_path, convert=lambda array: ("F64", array.astype(np.float64)))
    with pytest.raises(ValueError, match="F64; can read F32, F16, BF16"):
        SafetensorsFolder(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        open_model(tmp_path / "nowhere")


def test_the_reader_agrees_with_the_safetensors_library(tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    from models.loading.safetensors_file import read_tensors

    arrays = {"a": np.arange(12, dtype=np.float32).reshape(3, 4), "b": np.ones(5, np.float16)}
    library.save_file(arrays, tmp_path / "x.safetensors")
    read = read_tensors(tmp_path / "x.safetensors")
    assert sorted(read) == ["a", "b"]
    for name, array in arrays.items():
        np.testing.assert_array_equal(read[name].matrix.dense(), array)

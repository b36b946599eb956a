"""Folders and files that are not quite the model they seem to be: each is refused in words that say why."""

import json
import re

import pytest

from models.loading import SafetensorsFolder, open_model
from tests.models.folders import write_model
from tests.models.test_safetensors import write_file

pytest.importorskip("tokenizers", reason="tokenizers come with outrider[real]")

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"


def open_all(path):
    opened = open_model(path)
    return opened.config(), opened.weights(opened.config()), opened.tokenizer()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mlp_bias", True),
        ("attention_bias", True),
        ("hidden_act", "gelu"),
        ("sliding_window", 128),
        ("partial_rotary_factor", 0.5),
        ("rope_interleaved", True),
        ("layer_types", ["full_attention", "sliding_attention"]),
        ("quantization_config", {"bits": 4}),
        ("logits_scaling", 8.0),
        ("auto_map", {"AutoModelForCausalLM": "modeling_llama.LlamaForCausalLM"}),
        ("never_heard_of", False),
        ("is_encoder_decoder", True),
    ],
)
def test_a_key_that_may_change_logits_is_refused_by_name(tmp_path, key, value):
    write_model(tmp_path, **{key: value})
    with pytest.raises(ValueError, match=rf"config.json: {key} is {re.escape(repr(value))}"):
        SafetensorsFolder(tmp_path)


@pytest.mark.parametrize(
    "settings",
    [
        {"mlp_bias": False, "attention_bias": False, "hidden_act": "silu", "partial_rotary_factor": 1.0},
        {"sliding_window": None, "never_heard_of": None, "quantization_config": None},
        {"sliding_window": 4096},
        {"model_type": "qwen2", "sliding_window": 16, "use_sliding_window": False, "max_window_layers": 1},
        {"layer_types": ["full_attention"] * 2, "auto_map": {"AutoTokenizer": "x"}, "head_dim": 10},
        {"torch_dtype": "bfloat16", "use_cache": True, "temperature": 0.6, "initializer_range": 0.02},
        {"rope_scaling": None, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}},
    ],
)
def test_keys_that_change_nothing_are_taken(tmp_path, settings):
    written, _ = write_model(tmp_path, **settings)
    assert open_all(tmp_path)[0] == written


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"head_dim": 9}, "head_dim 9: must be even"),
        ({"hidden_size": None}, "config.json: Object missing required field `hidden_size`"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, "rope_scaling is yarn: can run default, linear, llama3"),
        ({"tie_word_embeddings": False}, "1 of 21 tensors are missing: lm_head.weight"),
        ({"intermediate_size": 70}, r"gate_proj.weight is \(72, 40\), but the sizes of the model make it \(70, 40\)"),
        ({"num_hidden_layers": 3}, "9 of 29 tensors are missing: model.layers.2"),
        ({"num_hidden_layers": 1}, "no use is known here for 9 tensors: model.layers.1"),
    ],
)
def test_sizes_that_do_not_fit_name_the_tensor(tmp_path, settings, message):
    write_model(tmp_path, **settings)
    with pytest.raises(ValueError, match=message):
        open_all(tmp_path)


@pytest.mark.parametrize("name", ["model.layers.0.self_attn.o_proj.bias", "model.layers.1.self_attn.q_norm.weight"])
def test_a_tensor_that_would_be_left_out_is_refused(tmp_path, name):
    import numpy as np

    write_model(tmp_path)
    write_file(tmp_path / "more.safetensors", {name: ("F32", np.zeros(40, np.float32))})
    with pytest.raises(ValueError, match=f"no use is known here for 1 tensors: {name}"):
        open_all(tmp_path)


def test_biases_on_some_of_q_k_and_v_are_not_enough(tmp_path):
    import numpy as np

    write_model(tmp_path)
    name = "model.layers.1.self_attn.k_proj.bias"
    write_file(tmp_path / "more.safetensors", {name: ("F32", np.zeros(20, np.float32))})
    with pytest.raises(ValueError, match=r"5 of 26 tensors are missing: model\.layers\.0\.self_attn\.q_proj\.bias"):
        open_all(tmp_path)


def test_a_table_of_frequencies_is_no_weight(tmp_path):
    import numpy as np

    write_model(tmp_path)
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    write_file(tmp_path / "more.safetensors", {name: ("F32", np.zeros(5, np.float32))})
    open_all(tmp_path)


WRONG_KINDS = [
    ("config.json", {"vocab_size": "64"}, "vocab_size"),
    ("config.json", {"max_position_embeddings": 64.5}, "max_position_embeddings"),
    ("config.json", {"rms_norm_eps": "small"}, "rms_norm_eps"),
    ("config.json", {"rms_norm_eps": 0}, "rms_norm_eps"),
    ("config.json", {"num_attention_heads": 0}, "num_attention_heads"),
    ("config.json", {"rope_scaling": [1]}, "rope_scaling"),
    ("config.json", {"rope_scaling": {"rope_type": ["linear"], "factor": 2.0}}, "rope_scaling"),
    ("config.json", {"rope_theta": "1e4"}, "rope_theta"),
    ("config.json", {"rope_theta": None, "rope_parameters": {"rope_theta": "1e4"}}, "rope_theta"),
    ("config.json", {"tie_word_embeddings": "no"}, "tie_word_embeddings"),
    ("config.json", {"eos_token_id": "</s>"}, "eos_token_id"),
    ("config.json", {"sliding_window": "none"}, "sliding_window"),
    ("config.json", {"layer_types": 2}, "layer_types"),
    ("generation_config.json", {"eos_token_id": [1, "</s>"]}, "eos_token_id"),
    ("tokenizer_config.json", {"bos_token": 5}, "bos_token"),
    ("tokenizer_config.json", {"eos_token": ["</s>"]}, "eos_token"),
    ("tokenizer_config.json", {"eos_token": {"lstrip": False}}, "content"),
    ("tokenizer_config.json", {"add_bos_token": "no"}, "add_bos_token"),
    ("tokenizer_config.json", {"chat_template": [{"name": "default"}]}, "template"),
    ("chat_template.json", {"chat_template": 1}, "chat_template"),
    ("model.safetensors.index.json", {"metadata": {}}, "weight_map"),
    ("model.safetensors.index.json", {"weight_map": ["a"]}, "weight_map"),
]


@pytest.mark.parametrize(("name", "content", "key"), WRONG_KINDS)
def test_a_value_of_another_kind_is_refused_with_its_file_and_key(tmp_path, name, content, key):
    write_model(tmp_path)
    file = tmp_path / name
    file.write_text(json.dumps({**(json.loads(file.read_text()) if file.exists() else {}), **content}))
    with pytest.raises(ValueError, match=rf"{name}: .*{key}"):
        open_all(tmp_path)


def index_of(path, *names):
    weights = {f"w{i}": name for i, name in enumerate(names)}
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))


def break_off(path, how):
    """Leave a folder as a download that broke off does."""
    first, second = path / "model-0.safetensors", path / "model-1.safetensors"
    match how:
        case "no shard":
            first.unlink()
            second.unlink()
        case "only a pickle":
            first.unlink()
            second.rename(path / "pytorch_model.bin")
        case "one of two, by the index":
            index_of(path, first.name, second.name)
            second.unlink()
        case "one of two, by its name":
            first.rename(path / "model-00001-of-00002.safetensors")
            second.unlink()
        case "one of two, and nothing says so":
            second.unlink()
        case "a pointer":
            second.write_text(POINTER)
        case "an empty file":
            second.write_bytes(b"")
        case "half a header":
            second.write_bytes(second.read_bytes()[:100])
        case "half the data":
            second.write_bytes(second.read_bytes()[:-50])
        case "a header of zeros":
            second.write_bytes(bytes(len(second.read_bytes())))
        case "no tokenizer":
            (path / "tokenizer.json").unlink()
        case "a pointer for a tokenizer":
            (path / "tokenizer.json").write_text(POINTER)
        case "half a tokenizer":
            (path / "tokenizer.json").write_text((path / "tokenizer.json").read_text()[:500])
        case "no config":
            (path / "config.json").unlink()
        case "half a config":
            (path / "config.json").write_text('{"model_type":')


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("no shard", r"no \*.safetensors file: the weights are missing"),
        ("only a pickle", r"the weights are missing; pytorch_model.bin cannot be read"),
        ("one of two, by the index", "1 of 2 files that .* names are missing: model-1.safetensors"),
        ("one of two, by its name", r"1 of 2 \*.safetensors files are there"),
        ("one of two, and nothing says so", "10 of 20 tensors are missing: model.norm.weight"),
        ("a pointer", "model-1.safetensors is a git-lfs pointer"),
        ("an empty file", "model-1.safetensors has 0 bytes"),
        ("half a header", "model-1.safetensors has 100 bytes, and its header would end at .*: the file is not whole"),
        ("half the data", "model-1.safetensors has .* bytes, but .* ends at .*: the file is not whole"),
        ("a header of zeros", "model-1.safetensors: the header is damaged"),
        ("no tokenizer", "tokenizer.json is missing"),
        ("a pointer for a tokenizer", "tokenizer.json is a git-lfs pointer"),
        ("half a tokenizer", "tokenizer.json cannot be read"),
        ("no config", "config.json is missing"),
        ("half a config", "config.json is not JSON"),
    ],
)
def test_a_download_that_broke_off_says_what_is_missing(tmp_path, how, message):
    write_model(tmp_path)
    open_all(tmp_path)
    break_off(tmp_path, how)
    with pytest.raises(ValueError, match=message) as raised:
        open_all(tmp_path)
    assert str(tmp_path) in str(raised.value)

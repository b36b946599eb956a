"""Files of draft heads: what is written is read again, in the published names, and bad ones are refused."""

import json
from dataclasses import fields, replace

import numpy as np
import pytest

from models.heads import Affine, Words, eight_bit, read_heads, write_heads
from models.loading.safetensors_file import FLOATS, INTEGERS, read_metadata, read_tensors
from models.weights import Matrix, halves_to_pairs
from tests.heads.tiny import CONFIG, IDS, KINDS, Seeded, in_eight_bits, tiny_heads
from tests.models.test_safetensors import write_file


def flat(value):
    """Every array in heads, dense, and what is not an array."""
    if isinstance(value, Matrix):
        return [value.dense()]
    if isinstance(value, tuple):
        return [array for part in value for array in flat(part)]
    if isinstance(value, Words):
        return [*flat(value.ids), *flat(value.output)]
    return [value]


def assert_equal(left, right):
    assert type(left) is type(right)
    for field in fields(left):
        ours, theirs = flat(getattr(left, field.name)), flat(getattr(right, field.name))
        assert len(ours) == len(theirs), field.name
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=field.name)


def stored(file):
    return {
        name: (t.matrix.data.dtype.str[1:], t.shape) for name, t in read_tensors(file, {**FLOATS, **INTEGERS}).items()
    }


def rewritten(file, change):
    """Write a file again with its tensors, as arrays by name, changed; its metadata is lost."""
    names = {"<f4": "F32", "<f2": "F16", "|i1": "I8", "<i8": "I64", "|b1": "BOOL"}
    arrays = {name: np.array(t.matrix.data) for name, t in read_tensors(file, {**FLOATS, **INTEGERS}).items()}
    change(arrays)
    write_file(file, {name: (names[array.dtype.str], array) for name, array in arrays.items()})


def cut(name, index):
    return lambda arrays: arrays.update({name: arrays[name][index]})


def put(name, index, value):
    return lambda arrays: arrays[name].__setitem__(index, value)


@pytest.mark.parametrize("suffix", ["heads.safetensors", "folder"])
@pytest.mark.parametrize("is_reduced", [True, False])
@pytest.mark.parametrize("has_output", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_read_again(tmp_path, kind, has_output, is_reduced, suffix):
    heads = tiny_heads(kind, has_output=has_output, is_reduced=is_reduced)
    for version in (heads, in_eight_bits(heads)):
        write_heads(tmp_path / suffix, version, CONFIG)
        assert_equal(read_heads(tmp_path / suffix, CONFIG), version)


def test_eight_bits_are_near_and_are_eight_bits(tmp_path):
    heads = tiny_heads("linear", has_output=True)
    file = tmp_path / "x.safetensors"
    write_heads(file, in_eight_bits(heads), CONFIG)
    assert stored(file)["first.weight"] == ("i1", (64, 256))
    assert stored(file)["first.weight_scale"] == ("f2", (64, 8))
    dense, rounded = heads.first.weight.dense(), read_heads(file, CONFIG).first.weight.dense()
    largest = np.abs(dense).reshape(64, -1, 32).max(axis=2).repeat(32, axis=1)
    assert (np.abs(dense - rounded) <= largest * (0.5 / 127 + 2**-10)).all()
    assert not eight_bit(Matrix(np.zeros((2, 32), np.float32))).dense().any()
    with pytest.raises(ValueError, match="has 40 inputs: 8 bits need a multiple of 32"):
        eight_bit(Matrix(np.zeros((2, 40), np.float32)))


def test_medusa_has_its_published_names(tmp_path):
    write_heads(tmp_path, tiny_heads("medusa", has_output=True, is_reduced=False), CONFIG)
    assert stored(tmp_path / "model.safetensors") == {
        name: ("f4", shape)
        for i in range(3)
        for name, shape in {
            f"{i}.0.linear.weight": (64, 64),
            f"{i}.0.linear.bias": (64,),
            f"{i}.1.linear.weight": (64, 64),
            f"{i}.1.linear.bias": (64,),
            f"{i}.2.weight": (97, 64),
        }.items()
    }
    settings = json.loads((tmp_path / "config.json").read_text())
    assert (settings["medusa_num_heads"], settings["medusa_num_layers"]) == (3, 2)


def test_eagle3_has_its_published_names(tmp_path):
    write_heads(tmp_path, tiny_heads("eagle3", has_output=True), CONFIG)
    assert stored(tmp_path / "model.safetensors") == {
        "fc.weight": ("f4", (64, 192)),
        "midlayer.self_attn.q_proj.weight": ("f4", (64, 128)),
        "midlayer.self_attn.k_proj.weight": ("f4", (32, 128)),
        "midlayer.self_attn.v_proj.weight": ("f4", (32, 128)),
        "midlayer.self_attn.o_proj.weight": ("f4", (64, 64)),
        "midlayer.mlp.gate_proj.weight": ("f4", (96, 64)),
        "midlayer.mlp.up_proj.weight": ("f4", (96, 64)),
        "midlayer.mlp.down_proj.weight": ("f4", (64, 96)),
        "midlayer.post_attention_layernorm.weight": ("f4", (64,)),
        "midlayer.input_layernorm.weight": ("f4", (64,)),
        "midlayer.hidden_norm.weight": ("f4", (64,)),
        "norm.weight": ("f4", (64,)),
        "lm_head.weight": ("f4", (40, 64)),
        "d2t": ("i8", (40,)),
        "t2d": ("b1", (97,)),
    }
    tensors = read_tensors(tmp_path / "model.safetensors", INTEGERS | FLOATS)
    assert (np.arange(40) + tensors["d2t"].matrix.data).tolist() == IDS.tolist()
    assert np.flatnonzero(tensors["t2d"].matrix.data).tolist() == IDS.tolist()
    settings = json.loads((tmp_path / "config.json").read_text())
    assert (settings["draft_vocab_size"], settings["num_key_value_heads"]) == (40, 2)


def test_eagle_has_its_published_names_and_rope_in_halves(tmp_path):
    heads = tiny_heads("eagle", is_reduced=False)
    write_heads(tmp_path, heads, CONFIG)
    file = tmp_path / "model.safetensors"
    assert set(stored(file)) == {
        "fc.weight",
        "fc.bias",
        *(f"layers.0.self_attn.{name}_proj.weight" for name in "qkvo"),
        *(f"layers.0.mlp.{name}_proj.weight" for name in ("gate", "up", "down")),
        "layers.0.post_attention_layernorm.weight",
    }
    written = read_tensors(file)["layers.0.self_attn.q_proj.weight"].matrix.data
    np.testing.assert_array_equal(written[halves_to_pairs(4, 16)], heads.q.dense())


@pytest.mark.parametrize("prefix", ["medusa_head.", "medusa_heads."])
def test_medusa_may_have_a_prefix_and_no_settings(tmp_path, prefix):
    heads = tiny_heads("medusa", is_reduced=False)
    file = tmp_path / "x.safetensors"
    write_heads(file, heads, CONFIG)

    def put_before(arrays):
        for name in list(arrays):
            arrays[prefix + name] = arrays.pop(name)

    rewritten(file, put_before)
    assert "config" not in read_metadata(file)
    assert_equal(read_heads(file, CONFIG), heads)


def test_eagle_without_settings_is_a_layer_like_the_targets(tmp_path):
    file = tmp_path / "x.safetensors"
    heads = tiny_heads("eagle")
    write_heads(file, heads, CONFIG)
    rewritten(file, lambda arrays: None)
    assert_equal(read_heads(file, CONFIG), heads)


def test_optional_tensors_of_eagle(tmp_path):
    seeded = Seeded(9)
    file = tmp_path / "x.safetensors"
    heads = replace(
        tiny_heads("eagle"),
        embedding=seeded.matrix(97, 64),
        input_norm=seeded.norm(64),
        fuse=Affine(seeded.matrix(64, 128)),
    )
    write_heads(file, heads, CONFIG)
    assert "layers.0.input_layernorm.weight" in stored(file)
    assert_equal(read_heads(file, CONFIG), heads)


def test_the_layers_that_eagle3_fuses(tmp_path):
    """At the top numbers of layers before, in eagle_config numbers of the layers whose outputs they are."""
    heads = replace(tiny_heads("eagle3"), taps=(1, 2, 5))
    write_heads(tmp_path, heads, CONFIG)
    rewritten(tmp_path / "model.safetensors", lambda arrays: None)
    config = tmp_path / "config.json"
    settings = json.loads(config.read_text())
    assert settings["eagle_aux_hidden_state_layer_ids"] == [1, 2, 5]
    assert read_heads(tmp_path, CONFIG).taps == (1, 2, 5)
    settings["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": [0, 1, 4], "use_aux_hidden_state": True}
    del settings["eagle_aux_hidden_state_layer_ids"]
    config.write_text(json.dumps(settings))
    assert read_heads(tmp_path, CONFIG).taps == (1, 2, 5)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("eagle", lambda t: t.pop("fc.weight"), "no heads that are known here"),
        ("eagle", lambda t: t.pop("layers.0.self_attn.v_proj.weight"), r"layers.0.self_attn.v_proj.weight is missing"),
        ("eagle3", lambda t: t.pop("norm.weight"), "norm.weight is missing"),
        ("eagle3", lambda t: t.update(more=t["norm.weight"]), "no use is known here for 1 tensors: more"),
        ("eagle3", cut("fc.weight", np.s_[:, :64]), r"fc.weight is \(64, 64\), but .* \(64, 192\)"),
        ("eagle3", put("d2t", 39, 70), r"d2t gives the id 109: the target's are in \[0, 97\)"),
        ("eagle3", lambda t: put("d2t", 1, t["d2t"][0] - 1)(t), "d2t gives an id twice"),
        ("eagle3", put("t2d", np.s_[:50], True), r"t2d marks \d+ ids, and they are not the 40 of d2t"),
        ("linear", cut("d2t", np.s_[:0]), "d2t gives no id"),
        ("linear", lambda t: t.update(d2t=t["first.bias"]), "d2t holds no integers"),
        ("linear", lambda t: t.update({"first.weight": t["first.weight"].astype(np.int8)}), "weight_scale is missing"),
        ("medusa", cut("0.1.linear.bias", np.s_[:5]), r"0.1.linear.bias is \(5,\)"),
        ("medusa", lambda t: t.update({"0.0.linear.bias": np.zeros(64, np.int64)}), "bias is I64: must be floats"),
    ],
)
def test_bad_tensors(tmp_path, kind, change, message):
    write_heads(tmp_path, tiny_heads(kind), CONFIG)
    rewritten(tmp_path / "model.safetensors", change)
    with pytest.raises(ValueError, match=message):
        read_heads(tmp_path, CONFIG)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("eagle", {"hidden_size": 4096}, "hidden_size is 4096, and the target has 64"),
        ("medusa", {"vocab_size": 32000}, "vocab_size is 32000, and the target has 97"),
        ("eagle", {"hidden_act": "gelu"}, "hidden_act is 'gelu': can run silu"),
        ("eagle3", {"norm_before_residual": True}, "norm_before_residual is True: not known here"),
        ("eagle3", {"eagle_config": {"parallel_draft_step": 4}}, "eagle_config.parallel_draft_step is not known"),
        ("eagle", {"rope_scaling": {"type": "yarn"}}, "rope_scaling is yarn"),
        ("eagle", {"num_attention_heads": 3}, "num_heads 3: must be a multiple"),
        ("medusa", {"medusa_num_heads": 5}, "medusa_num_heads is 5: there are 3"),
        ("medusa", {"medusa_num_layers": 1}, "medusa_num_layers is 1: there are 2"),
        ("linear", {"taps": "all"}, "taps is 'all': must be a list of numbers of layers"),
    ],
)
def test_bad_settings(tmp_path, kind, settings, message):
    write_heads(tmp_path, tiny_heads(kind), CONFIG)
    rewritten(tmp_path / "model.safetensors", lambda arrays: None)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | settings))
    with pytest.raises(ValueError, match=message):
        read_heads(tmp_path, CONFIG)


def test_places_without_heads(tmp_path):
    with pytest.raises(FileNotFoundError, match="no draft heads at"):
        read_heads(tmp_path / "none", CONFIG)
    with pytest.raises(ValueError, match=r"0 \*.safetensors files: draft heads are one"):
        read_heads(tmp_path, CONFIG)
    write_heads(tmp_path, tiny_heads("linear"), CONFIG)
    rewritten(tmp_path / "model.safetensors", lambda arrays: None)
    (tmp_path / "config.json").write_text("[")
    with pytest.raises(ValueError, match="the settings are not JSON"):
        read_heads(tmp_path, CONFIG)
    (tmp_path / "config.json").unlink()
    with pytest.raises(ValueError, match="taps is None"):
        read_heads(tmp_path, CONFIG)

"""RoPE stretched past the length of training, from either kind of file."""

import math

import numpy as np
import pytest

from models.loading import GgufFile, SafetensorsFolder
from models.loading.rope import rope_divisors
from models.weights import LlamaConfig
from tests.models.folders import write_model
from tests.models.test_gguf import write

LLAMA_3_1 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}


def config(divisors=(), base=10000.0):
    return LlamaConfig(
        vocab_size=9, dim=8, num_layers=1, num_heads=1, num_kv_heads=1, head_dim=8, ffn_dim=8, max_model_len=50,
        rope_base=base, rope_divisors=divisors,
    )  # fmt: skip


def test_dividing_frequencies_is_dividing_positions():
    plain, stretched = config().rope_table(), config((4.0,) * 4).rope_table()
    for before, after in zip(plain, stretched, strict=True):
        np.testing.assert_allclose(after[::4], before[:13], atol=1e-6)
    one_pair = config((1.0, 1.0, 4.0, 1.0)).rope_table()
    np.testing.assert_array_equal(one_pair[0][:, [0, 1, 3]], plain[0][:, [0, 1, 3]])
    np.testing.assert_array_equal(one_pair[0][:, 2], stretched[0][:, 2])


def test_llama3_stretches_long_waves_only():
    """By its definition, wave by wave: in llama 3.1 a head has 64, and the length of the first training was 8,192."""
    found = rope_divisors(LLAMA_3_1, 500000.0, 128)
    assert len(found) == 64
    for pair, divisor in enumerate(found):
        wave = 2 * math.pi * 500000.0 ** (2 * pair / 128)
        if wave < 8192 / 4:
            assert divisor == 1
        elif wave > 8192 / 1:
            assert divisor == 8
        else:
            share = (8192 / wave - 1) / (4 - 1)
            assert 1 / divisor == pytest.approx((1 - share) / 8 + share)
    assert 0 < sum(1 < divisor < 8 for divisor in found) < 20
    assert list(found) == sorted(found)


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ({"rope_type": "yarn", "factor": 4.0}, "rope_scaling is yarn: can run default, linear, llama3"),
        ({"rope_type": "llama3", "factor": 4.0}, "rope_scaling.low_freq_factor is None: a number > 0"),
        ({"type": "linear", "factor": 0}, "rope_scaling.factor is 0: a number > 0"),
        ({"type": "linear", "factor": "2"}, "rope_scaling.factor is 2"),
        ({"type": "linear", "factor": 2, "attention_factor": 1.5}, "has attention_factor, which is not known"),
        ({"factor": 2.0}, "has factor, which is not known for default"),
        (LLAMA_3_1 | {"low_freq_factor": 4.0}, "low_freq_factor is 4.0: must be less than high_freq_factor 4.0"),
    ],
)
def test_other_kinds_are_refused_by_name(scaling, message):
    with pytest.raises(ValueError, match=message):
        rope_divisors(scaling, 10000.0, 8)


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_a_folder_says_how_it_is_stretched(tmp_path, key):
    write_model(tmp_path, **{key: LLAMA_3_1, "rope_theta": 500000.0})
    assert SafetensorsFolder(tmp_path).config().rope_divisors == rope_divisors(LLAMA_3_1, 500000.0, 10)
    write_model(tmp_path, **{key: {"type": "linear", "factor": 2}})
    assert SafetensorsFolder(tmp_path).config().rope_divisors == (2.0,) * 5
    write_model(tmp_path)
    assert SafetensorsFolder(tmp_path).config().rope_divisors == ()


def test_a_gguf_file_says_how_it_is_stretched(tmp_path):
    pytest.importorskip("gguf", reason="GGUF files need the gguf package (outrider[real])")
    path = tmp_path / "a.gguf"
    each = np.array([1.0, 1.0, 2.0, 8.0, 8.0], np.float32)

    def divisors(**settings):
        write(path, **settings)
        opened = GgufFile(path)
        opened.weights(opened.config())
        return opened.config().rope_divisors

    assert divisors() == ()
    assert divisors(tensors=[("rope_freqs.weight", each)]) == tuple(each.tolist())
    linear = {"llama__rope__scaling__type": "linear", "llama__rope__scaling__factor": 4.0}
    assert divisors(**linear) == (4.0,) * 5
    assert divisors(llama__rope__scaling__factor=4.0) == (4.0,) * 5  # linear unless it says so
    assert divisors(llama__rope__scale_linear=2.0) == (2.0,) * 5
    assert divisors(**linear | {"llama__rope__scaling__type": "none"}) == ()
    assert divisors(tensors=[("rope_freqs.weight", each)], **linear) == tuple((4 * each).tolist())


def test_divisors_of_another_number_are_refused():
    with pytest.raises(ValueError, match=r"rope_divisors .*: must be 4 numbers > 0, or none"):
        config((2.0,))
    with pytest.raises(ValueError, match="rope_divisors"):
        config((2.0, 2.0, 0.0, 2.0))

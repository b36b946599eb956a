"""GGUF files as the world makes them: read as they are, or refused by name."""

import numpy as np
import pytest

from models.loading import GgufFile
from tests.models.test_gguf import CONTROL, MERGES, NORMAL, TOKENS, write

gguf = pytest.importorskip("gguf", reason="GGUF files need the gguf package (outrider[real])")
pytest.importorskip("tokenizers", reason="tokenizers come with outrider[real]")

USER_DEFINED, UNUSED = 4, 5


def tokenizer_of(path, **settings):
    write(path / "t.gguf", **settings)
    return GgufFile(path / "t.gguf").tokenizer()


def test_the_header_says_what_the_gguf_package_reads(tmp_path):
    path = tmp_path / "a.gguf"
    write(path, general__alignment=64, own__numbers=[1, 2, 3], own__flag=True, own__text="é", own__share=0.5)
    reader, ours = gguf.GGUFReader(path), GgufFile(path)
    for key, field in reader.fields.items():
        if not key.startswith("GGUF."):
            assert ours.get(key) == field.contents(), key
    config = ours.config()
    weights = ours.weights(config)
    expected = {tensor.name: tensor.data for tensor in reader.tensors}
    np.testing.assert_array_equal(weights.embedding.dense(), expected["token_embd.weight"])
    np.testing.assert_array_equal(weights.layers[1].down.dense(), expected["blk.1.ffn_down.weight"])


def test_norms_and_matrices_may_be_bf16(tmp_path):
    names = ["output_norm.weight", "blk.0.attn_norm.weight", "blk.1.ffn_up.weight"]
    config, written = write(tmp_path / "a.gguf", bf16=names)
    found = GgufFile(tmp_path / "a.gguf").weights(config)

    def rounded(values):
        raw = gguf.quants.quantize(values, gguf.GGMLQuantizationType.BF16)
        return gguf.quants.dequantize(raw, gguf.GGMLQuantizationType.BF16)

    np.testing.assert_array_equal(found.norm, rounded(written.norm))
    np.testing.assert_array_equal(found.layers[0].attention_norm, rounded(written.layers[0].attention_norm))
    np.testing.assert_array_equal(found.layers[1].up.dense(), rounded(written.layers[1].up.dense()))
    np.testing.assert_array_equal(found.layers[1].ffn_norm, written.layers[1].ffn_norm)


@pytest.mark.parametrize(
    "name", ["blk.0.attn_output.bias", "blk.1.ffn_up.bias", "blk.1.ffn_down.bias", "blk.0.attn_q_norm.weight"]
)
def test_a_tensor_that_would_be_left_out_is_refused(tmp_path, name):
    config, _ = write(tmp_path / "a.gguf", tensors=[(name, np.ones(40, np.float32))])
    with pytest.raises(ValueError, match=f"no use is known here for 1 tensors: {name}"):
        GgufFile(tmp_path / "a.gguf").weights(config)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama__attention__sliding_window", 512),
        ("llama__expert_count", 8),
        ("llama__rope__scaling__type", "longrope"),
        ("llama__logit_scale", 0.5),
        ("llama__rope__dimension_count", 6),
        ("llama__feed_forward_length", [72, 80]),
    ],
)
def test_a_key_that_may_change_logits_is_refused_by_name(tmp_path, key, value):
    write(tmp_path / "a.gguf", architecture="llama", **{key: value})
    with pytest.raises(ValueError, match=key.replace("__", ".").removeprefix("llama.")):
        GgufFile(tmp_path / "a.gguf").config()


def test_keys_that_change_nothing_are_taken(tmp_path):
    written, _ = write(
        tmp_path / "a.gguf",
        llama__attention__sliding_window=0,
        llama__expert_count=0,
        llama__vocab_size=97,
        llama__rope__scaling__type="none",
        someone__elses__key=3,
    )
    assert GgufFile(tmp_path / "a.gguf").config().dim == written.dim


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("context_length", "64"),
        ("context_length", 64.5),
        ("attention__head_count", 0),
        ("block_count", [2.0, 2.0]),
        ("rope__freq_base", "1e4"),
        ("rope__scaling__factor", "2"),
        ("rope__scaling__type", 1),
    ],
)
def test_a_value_of_another_kind_is_refused_by_name(tmp_path, key, value):
    write(tmp_path / "a.gguf", **{f"llama__{key}": value})
    name = key.replace("__", ".")
    with pytest.raises(ValueError, match=rf"a.gguf: llama.{name} is "):
        GgufFile(tmp_path / "a.gguf").config()


def test_a_part_of_a_model_is_refused(tmp_path):
    write(tmp_path / "a.gguf", split__count=3, split__no=1)
    with pytest.raises(ValueError, match="part 2 of 3"):
        GgufFile(tmp_path / "a.gguf")


def test_a_file_cut_anywhere_is_refused_with_its_name(tmp_path):
    path, part = tmp_path / "a.gguf", tmp_path / "part.gguf"
    write(path)
    whole = path.read_bytes()
    for length in [*range(4, 2000, 97), *range(2000, len(whole), len(whole) // 50), len(whole) - 40]:
        part.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"part\.gguf has .* not whole"):
            GgufFile(part)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid", "git-lfs pointer"),
        (b"", "no GGUF file"),
        (b"<!DOCTYPE html>", "no GGUF file: it begins with b'<!DO'"),
        (b"GGUF" + (1).to_bytes(4, "little") + bytes(64), "version 1; can read 2, 3"),
        (b"GGUF" + (3).to_bytes(4, "little") + b"\xff" * 64, "not whole"),
    ],
)
def test_what_is_no_gguf_file_is_refused(tmp_path, content, message):
    (tmp_path / "a.gguf").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        GgufFile(tmp_path / "a.gguf")


@pytest.mark.parametrize("table", ["tokens", "merges"])
def test_a_file_without_its_tokenizer_says_so(tmp_path, table):
    with pytest.raises(ValueError, match=f"no tokenizer.ggml.{table}"):
        tokenizer_of(tmp_path, **{table: None})


def test_without_token_types_the_named_and_the_ending_tokens_are_control_tokens(tmp_path):
    found = tokenizer_of(tmp_path, types=None)
    assert found.encode("<|im_start|>he<|im_end|>", parse_special=True) == [1, TOKENS.index("he"), 2]
    assert found.decode([0, 1, 2]) == ""
    assert found.decode(found.encode("<|im_end|>")) == "<|im_end|>"
    assert found.eos_ids == {0, 2}


def test_types_for_other_tokens_are_refused(tmp_path):
    with pytest.raises(ValueError, match="token_type has 5 entries for 37 tokens"):
        tokenizer_of(tmp_path, types=[NORMAL] * 5)


def test_tokens_may_have_spaces(tmp_path):
    """One that is a text of its own, one that no type explains, and merges that join such tokens."""
    tokens = [*TOKENS, "<|a b|>", "a b", "ab c", "c", "a", "b c"]
    tokens = list(dict.fromkeys(tokens))
    types = [CONTROL] * 3 + [NORMAL] * (len(tokens) - 3)
    types[tokens.index("<|a b|>")] = USER_DEFINED
    found = tokenizer_of(tmp_path, tokens=tokens, types=types, merges=[*MERGES, "a b c"], bf16=())
    assert found.token_bytes(tokens.index("<|a b|>")) == b"<|a b|>"
    assert found.encode("<|a b|>", parse_special=True) == [tokens.index("<|a b|>")]
    assert found.token_bytes(tokens.index("a b")) == b"a b"


def test_a_merge_of_no_tokens_is_refused(tmp_path):
    for merge in ("x q q", "he"):
        with pytest.raises(ValueError, match=rf"t.gguf: tokenizer.ggml.merges has '{merge}', which joins no two"):
            tokenizer_of(tmp_path, merges=[*MERGES, merge])
    with pytest.raises(ValueError, match=r"t.gguf: tokenizer.ggml.merges"):
        tokenizer_of(tmp_path, merges=[*MERGES, "hell no"])


def test_padding_has_no_text(tmp_path):
    tokens = [*TOKENS, "[PAD37]"]
    types = [CONTROL] * 3 + [NORMAL] * (len(TOKENS) - 3) + [UNUSED]
    found = tokenizer_of(tmp_path, tokens=tokens, types=types)
    assert found.decode([len(TOKENS), 96, TOKENS.index("he")]) == "he"
    assert found.vocab_size == 97


@pytest.mark.parametrize(
    ("cut", "expected"), [("llama-bpe", ["hello"]), ("llama3", ["hello"]), ("deepseek-r1-qwen", ["hell", "o"])]
)
def test_llama_takes_whole_words_before_merges(tmp_path, cut, expected):
    tokens = [*TOKENS, "hello"]
    found = tokenizer_of(tmp_path, tokens=tokens, types=None, cut=cut)
    assert found.encode("hello")[-len(expected) :] == [tokens.index(token) for token in expected]


def test_a_prompt_that_would_be_ended_is_refused(tmp_path):
    with pytest.raises(ValueError, match="add_eos_token"):
        tokenizer_of(tmp_path, tokenizer__ggml__add_eos_token=True)

import numpy as np
import pytest

from models.llama import Llama
from models.loading import GgufFile, open_model
from models.protocol import Chunk
from models.weights import halves_to_pairs, tiny_llama

gguf = pytest.importorskip("gguf", reason="GGUF files need the gguf package (outrider[real])")
pytest.importorskip("tokenizers", reason="tokenizers come with outrider[real]")

CONTROL, NORMAL = 3, 1
NAMES = {
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>{% endif %}"
)


TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *"abcdefghijklmnopqrstuvwxyz<|>_Ġ", "he", "ll", "hell"]
TYPES = [CONTROL] * 3 + [NORMAL] * (len(TOKENS) - 3)
MERGES = ["h e", "l l", "he ll"]


def write(
    path,
    seed=0,
    tied=True,
    architecture="llama",
    bias=None,
    cut="smollm",
    tokens=TOKENS,
    types=TYPES,
    merges=MERGES,
    tensors=(),
    bf16=(),
    **extra,
):
    """A tiny llama as a GGUF file, with `tensors` more in it, those named in `bf16` in that format."""
    config, weights = tiny_llama(seed, tied=tied)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config.max_model_len)
    writer.add_embedding_length(config.dim)
    writer.add_block_count(config.num_layers)
    writer.add_feed_forward_length(config.ffn_dim)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_rope_freq_base(config.rope_base)
    for key, value in extra.items():
        kind = {str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
        if key == "general__alignment":
            writer.add_custom_alignment(value)
        else:
            kind.get(type(value), writer.add_array)(key.replace("__", "."), value)

    def add(name, values):
        if name in bf16:
            values = gguf.quants.quantize(values, gguf.GGMLQuantizationType.BF16)
            writer.add_tensor(name, values, raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(name, values)

    for name, values in tensors:
        add(name, values)
    add("token_embd.weight", weights.embedding.dense())
    add("output_norm.weight", weights.norm)
    if weights.output is not None:
        add("output.weight", weights.output.dense())
    heads = {"q": config.num_heads, "k": config.num_kv_heads}
    biases = {}
    if bias is not None:
        biases = dict(zip("qkv", np.split(bias, [config.q_dim, config.q_dim + config.kv_dim]), strict=True))

    def in_file_order(name, rows):
        if architecture != "qwen2" or name not in heads:
            return rows
        halves = np.empty_like(rows)
        halves[halves_to_pairs(heads[name], config.head_dim)] = rows
        return halves

    for index, layer in enumerate(weights.layers):
        add(f"blk.{index}.attn_norm.weight", layer.attention_norm)
        add(f"blk.{index}.ffn_norm.weight", layer.ffn_norm)
        for field, name in NAMES.items():
            add(f"blk.{index}.{name}.weight", in_file_order(field, getattr(layer, field).dense()))
        for field, values in biases.items():
            add(f"blk.{index}.attn_{field}.bias", in_file_order(field, values))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(cut)
    if tokens is not None:
        writer.add_token_list(tokens)
    if types is not None:
        writer.add_token_types(types)
    if merges is not None:
        writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return config, weights


def logits(config, weights):
    model = Llama(config, weights)
    model.bind(13, 4)
    return model.forward([Chunk(ids=list(range(50)), start=0, table=list(range(13)), num_rows=50)])


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_a_file_gives_the_model_that_was_written(tmp_path, architecture, tied):
    path = tmp_path / "tiny.gguf"
    config, weights = write(path, seed=2, tied=tied, architecture=architecture)
    opened = open_model(path)
    found = opened.config()
    assert found.norm_eps == pytest.approx(config.norm_eps)
    loaded = opened.weights(found)
    assert (loaded.output is None) == tied
    np.testing.assert_allclose(logits(found, loaded), logits(config, weights), rtol=1e-5, atol=1e-5)


def test_biases_come_with_the_order_of_their_rows(tmp_path):
    bias = np.random.default_rng(1).standard_normal(100).astype(np.float32)
    config, _ = write(tmp_path / "q.gguf", architecture="qwen2", bias=bias)
    np.testing.assert_array_equal(GgufFile(tmp_path / "q.gguf").weights(config).layers[1].qkv_bias, bias)


def test_tokenizer_and_chat_come_from_the_file(tmp_path):
    write(tmp_path / "t.gguf")
    tokenizer = GgufFile(tmp_path / "t.gguf").tokenizer()
    ids = tokenizer.encode("hello hell")
    assert tokenizer.decode(ids) == "hello hell"
    assert len(ids) == 4  # hell o _ hell: a space opens a word, so it merges with nothing here
    assert tokenizer.eos_ids == {0, 2}
    spelled = tokenizer.encode("<|im_end|>")
    assert 2 not in spelled
    assert tokenizer.decode(spelled) == "<|im_end|>"
    assert tokenizer.encode("<|im_end|>", parse_special=True) == [2]
    assert tokenizer.token_bytes(2) == b""
    assert tokenizer.token_bytes(ids[0]) == b"hell"
    for wrong in (-1, 97):
        with pytest.raises(ValueError, match=f"id {wrong}"):
            tokenizer.token_bytes(wrong)
    chat = tokenizer.chat([{"role": "user", "content": "hell"}])
    assert chat == [1, *tokenizer.encode("user hell"), 2, 1]
    with pytest.raises(ValueError, match=r"messages\[1\].content None"):
        tokenizer.chat([{"role": "user", "content": "a"}, {"role": "user", "content": None}])
    with pytest.raises(ValueError, match="surrogate"):
        tokenizer.encode("a\ud800b")


def test_what_cannot_be_run_is_refused_by_name(tmp_path):
    write(tmp_path / "a.gguf", architecture="gemma")
    with pytest.raises(ValueError, match="architecture gemma; can run llama, qwen2"):
        GgufFile(tmp_path / "a.gguf")
    write(tmp_path / "b.gguf", llama__rope__scaling__type="yarn")
    with pytest.raises(ValueError, match="yarn"):
        GgufFile(tmp_path / "b.gguf").config()
    write(tmp_path / "c.gguf", cut="strange")
    with pytest.raises(ValueError, match="strange: known are default"):
        GgufFile(tmp_path / "c.gguf").tokenizer()

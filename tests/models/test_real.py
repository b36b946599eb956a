"""SmolLM2-135M-Instruct, where its weights are pulled and the extras are installed."""

import codecs

import numpy as np
import pytest

from models.llama import Llama
from models.loading import GgufFile, locate
from models.protocol import Chunk
from tests.models.invariance import (
    assert_rows_do_not_depend_on_company,
    assert_runner_target_scores_every_fed_position,
)

for package in ("gguf", "tokenizers", "jinja2"):
    pytest.importorskip(package, reason="real models need outrider[real]")
PATH = locate("smollm2-135m")
if PATH is None:
    pytest.skip("smollm2-135m is not pulled (outrider models pull smollm2-135m)", allow_module_level=True)

TEXT = """\
Here is the list again, as JSON: [{"name": "Ada", "age": 36}, {"name": "Bo", "age": 41}, {"name": "Cy", "age": 29}].
def area(width, height):\n    return width * height\n\n\n\tprint( area(3,4) )  # 12
Größe, naïve, 日本語テキスト 12345 67 and 👩‍👩‍👧 🎉🎉, don't WE'LL  <|im_start|>user\nhi<|im_end|>  \r\n\n x"""


@pytest.fixture(scope="module")
def file():
    return GgufFile(PATH)


@pytest.fixture(scope="module")
def tokenizer(file):
    return file.tokenizer()


@pytest.fixture(scope="module", params=["numpy", "numba", "int8"])
def model(request, file):
    config = file.config()
    if request.param == "numpy":
        return Llama(config, file.weights(config))
    pytest.importorskip("numba", reason="the compiled kernels need numba (outrider[fast])")
    from models.fast_llama import FastLlama
    from models.kernels.int8 import HAS_VNNI

    if request.param == "int8" and not HAS_VNNI:
        pytest.skip("this processor has no avx512_vnni")
    return FastLlama(config, file.weights(config), is_int8=request.param == "int8")


def test_rows_do_not_depend_on_batch_or_chunking(model):
    model.bind(20, 16)
    assert_rows_do_not_depend_on_company(model, 0, max_length=24, block_tokens=16, num_sequences=3, num_trials=1)


def test_runner_target_scores_every_fed_position(model, tokenizer):
    order = "Repeat this list: red, green, blue, red, green, blue, red, green, blue"
    prompt = tokenizer.chat([{"role": "user", "content": order}])
    assert_runner_target_scores_every_fed_position(model, prompt, max_new=16, block_tokens=16)


def test_it_talks(model, tokenizer):
    from models.runner_target import RunnerTarget
    from spec import SamplingParams, SpecConfig, generate

    prompt = tokenizer.chat([{"role": "user", "content": "What is the capital of France?"}])
    config = SpecConfig.parse("prompt_lookup", 4)
    done = generate(
        RunnerTarget(model, 20, 16), config, prompt, SamplingParams(temperature=0.0), 0, 60, tokenizer.eos_ids
    )
    assert "Paris" in tokenizer.decode(done.tokens)
    assert done.finish_reason == "stop"


def test_text_survives_and_streams(tokenizer):
    ids = tokenizer.encode(TEXT)
    assert tokenizer.decode(ids) == TEXT
    decoder = codecs.getincrementaldecoder("utf-8")()
    assert "".join(decoder.decode(tokenizer.token_bytes(token)) for token in ids) == TEXT
    assert tokenizer.encode("") == []


def test_no_bos_and_the_ends_are_known(tokenizer):
    assert tokenizer.encode("<|im_start|>", parse_special=True) == [1]
    assert tokenizer.encode("a")[0] != 1
    assert tokenizer.eos_ids == {0, 2}
    chat = tokenizer.chat([{"role": "user", "content": "Hi"}])
    assert chat[0] == 1
    assert chat.count(1) == 3  # the system message that the template adds, the user, and where the assistant speaks


def test_ids_are_those_of_llama_cpp(tokenizer):
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is the other implementation")
    other = llama_cpp.Llama(str(PATH), vocab_only=True, verbose=False)
    for text in (TEXT, *TEXT.splitlines(), "  leading", "½ ² ٣٤ Ⅷ", "a\u00a0b\u2003c", "<|im_end|", "\x00\x01"):
        for special in (False, True):
            expected = other.tokenize(text.encode(), add_bos=False, special=special)
            assert tokenizer.encode(text, parse_special=special) == expected


def test_logits_are_those_of_llama_cpp_in_float32(model, tokenizer, tmp_path):
    """On a float32 copy of the weights: on the quantised file llama.cpp rounds activations to 8 bits."""
    if getattr(model, "is_int8", False):
        pytest.skip("this kernel rounds activations to 8 bits, too")
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is the other implementation")
    ids = tokenizer.encode(TEXT)[:100]
    other = llama_cpp.Llama(
        str(float32_copy(tmp_path / "f32.gguf")), n_ctx=128, logits_all=True, type_k=0, type_v=0, flash_attn=False,
        verbose=False,
    )  # fmt: skip
    other.eval(ids)
    expected = np.array(other.scores[: len(ids)])
    model.bind(7, 16)
    found = model.forward([Chunk(ids=ids, start=0, table=list(range(7)), num_rows=len(ids))])
    assert np.abs(found - expected).max() < 1e-4  # of logits up to 40


def float32_copy(path):
    import gguf

    reader = gguf.GGUFReader(PATH)
    writer = gguf.GGUFWriter(path, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        if field.types[0] == gguf.GGUFValueType.ARRAY:
            writer.add_array(name, field.contents())
        else:
            writer.add_key_value(name, field.contents(), field.types[0])
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path

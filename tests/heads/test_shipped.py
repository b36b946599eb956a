"""The heads that come with the package: small, weights and nothing else, and often right for their model."""

import json
from pathlib import Path

import numpy as np
import pytest

import models.heads
from models.heads import build_heads, default_heads, read_heads
from models.heads.features import Text
from models.heads.judging import judge
from models.loading import RELEASES, locate, open_model
from models.loading.safetensors_file import FLOATS, INTEGERS, read_metadata, read_tensors
from models.weights import LlamaConfig
from spec import SamplingParams, SpecConfig, generate

FILES = sorted((Path(models.heads.__file__).parent / "data").iterdir())
SMOLLM2 = LlamaConfig(
    vocab_size=49152, dim=576, num_layers=30, num_heads=9, num_kv_heads=3, head_dim=64, ffn_dim=1536, max_model_len=2048
)  # fmt: skip


def test_every_file_is_found_by_the_name_of_a_known_model():
    assert [default_heads(name) for name in RELEASES if default_heads(name)] == FILES
    assert default_heads("another") is default_heads("") is None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_holds_weights_of_8_bits_and_little_else(path):
    assert path.stat().st_size < 3.2e6
    assert read_metadata(path).keys() == {"format", "config"}
    assert json.loads(read_metadata(path)["config"]).keys() == {"taps", "hidden_size", "vocab_size"}
    tensors = read_tensors(path, {**FLOATS, **INTEGERS})
    assert {name.partition(".")[0] for name in tensors} == {"first", "later", "d2t", "t2d"}
    heads = read_heads(path, SMOLLM2)
    assert heads.first.weight.blocks == heads.later.weight.blocks == "Q8_0"
    assert (np.diff(heads.words.ids) > 0).all()


@pytest.mark.skipif(locate("smollm2-135m") is None, reason="smollm2-135m is not pulled (outrider models pull)")
def test_the_model_they_are_for_often_chooses_what_they_say():
    pytest.importorskip("gguf", reason="real models need outrider[real]")
    from models import LoneProposer, RunnerTarget
    from models.kernel_choice import build_llama

    file = open_model("smollm2-135m")
    config, tokenizer = file.config(), file.tokenizer()
    weights = file.weights(config)
    heads = read_heads(default_heads("smollm2-135m"), config)
    proposer = build_heads(heads, config, weights)
    model = build_llama(config, weights).with_taps(proposer.taps)
    prompt = tokenizer.chat([{"role": "user", "content": "Explain how a bicycle works, for a child."}])
    target = RunnerTarget(model, num_blocks=16, block_tokens=16)
    cfg = SpecConfig("linear", 2, model="beside")
    params = SamplingParams(temperature=0)
    done = generate(target, cfg, prompt, params, 0, 96, (), proposer=LoneProposer(proposer, target))
    assert done.stats.accepted_by_depth[0] / done.stats.rounds > 0.25
    judged = judge(proposer, model, [Text([*prompt, *done.tokens], len(prompt), is_held_out=True)], 2)
    assert judged.top(1)[0] > 0.25
    assert judged.top(3)[0] > judged.top(1)[0] > judged.top(1)[1]

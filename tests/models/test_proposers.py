"""What drafts for a model, from the files that a configuration names."""

import pytest

from actors import Engine, EngineConfig, Request
from models import Chunk, DraftModel
from models.heads import LinearHeads, MedusaHeads, Words, write_heads
from models.loading import open_model
from models.proposers import check_drafts, load_speculative
from spec import SamplingParams, SpecConfig
from tests.heads.tiny import Seeded
from tests.models.folders import LETTERS, bpe, write_model

VOCABULARY = 97
NAMES = [*LETTERS, "hello", *(f"<{i}>" for i in range(VOCABULARY - len(LETTERS) - 4))]


@pytest.fixture
def folder(tmp_path):
    pytest.importorskip("tokenizers", reason="tokenizers come with outrider[real]")
    for name in ("target", "other"):
        (tmp_path / name).mkdir()
    write_model(tmp_path / "target", bpe(vocabulary=NAMES))
    return tmp_path


def heads(kind):
    seeded, dim = Seeded(3), 40
    if kind == "linear":
        return LinearHeads((0, 2), seeded.affine(dim, 3 * dim), seeded.affine(dim, 2 * dim), Words())
    return MedusaHeads(tuple((seeded.affine(dim, dim),) for _ in range(2)), (None, None))


async def text_of(loaded, speculative):
    config = EngineConfig(num_blocks=32, block_tokens=4, max_model_len=100, speculative=speculative)
    async with Engine(loaded.model, config, proposer=loaded.proposer) as engine:
        stream = engine.submit(Request(prompt=[5, 9, 7], params=SamplingParams(temperature=0), max_tokens=20))
        tokens = [token.id async for token in stream]
        return tokens, engine.stats().counters


async def test_a_folder_drafts_for_another(folder):
    speculative = SpecConfig("model", 4, model=str(folder / "target"))
    loaded = load_speculative(folder / "target", speculative, "numpy")
    assert isinstance(loaded.proposer, DraftModel)
    tokens, counters = await text_of(loaded, speculative)
    assert counters.num_accepted == 16
    plain = load_speculative(folder / "target", SpecConfig.parse("none", 1), "numpy")
    assert plain.proposer is None
    assert (await text_of(plain, SpecConfig.parse("none", 1)))[0] == tokens


@pytest.mark.parametrize("kind", ["linear", "medusa"])
async def test_heads_draft_for_the_model_they_are_of(folder, kind):
    config = open_model(folder / "target").config()
    write_heads(folder / "heads.safetensors", heads(kind), config)
    for draft, head_k in ((kind, {}), ("hybrid", {"head_k": 2})):
        speculative = SpecConfig(draft, 2, rule="match", model=str(folder / "heads.safetensors"), **head_k)
        check_drafts(folder / "target", speculative)
        loaded = load_speculative(folder / "target", speculative, "numpy")
        assert loaded.proposer.kind == kind
        tokens, counters = await text_of(loaded, speculative)
        assert sum(counters.rounds_by_drafted[1:]) > 3
        plain = load_speculative(folder / "target", SpecConfig.parse("none", 1), "numpy")
        assert (await text_of(plain, SpecConfig.parse("none", 1)))[0] == tokens


def refused(folder, speculative, words):
    for call in (
        lambda: check_drafts(folder / "target", speculative),
        lambda: load_speculative(folder / "target", speculative, "numpy"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=words):
            call()


def test_what_does_not_belong_to_the_target_is_refused_by_name(folder):
    config = open_model(folder / "target").config()
    write_heads(folder / "heads", heads("medusa"), config)
    own, gone = str(folder / "heads"), str(folder / "gone")
    refused(folder, SpecConfig("linear", 1, model=own), "has medusa heads: draft 'linear' needs linear heads")
    refused(folder, SpecConfig("medusa", 3, model=own), "has 2 heads, one a token ahead: drafts have 3 layers")
    refused(folder, SpecConfig("medusa", 1, model=gone), "no draft heads at .*gone")
    refused(folder, SpecConfig("model", 1, model=gone), "no model at .*gone")
    write_model(folder / "other", bpe(vocabulary=[*NAMES[:-2], NAMES[-1], NAMES[-2]]))
    other = SpecConfig("model", 1, model=str(folder / "other"))
    refused(folder, other, "token 92 is '<48>' to the draft model: '<47>' to the target")


def test_a_model_without_drafts_from_a_file_is_loaded_as_it_is(folder):
    loaded = load_speculative(folder / "target", SpecConfig.parse("ngram", 3), "numpy")
    loaded.model.bind(4, 4)
    assert loaded.model.forward([Chunk([1, 2], 0, [0], 1)]).shape == (1, VOCABULARY)

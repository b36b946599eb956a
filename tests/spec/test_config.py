"""A configuration says all four choices, and is refused as a whole where they do not go together."""

import tomllib

import msgspec
import pytest

from spec import BestFirst, Chain, Draft, Dynamic, Expansion, SamplingParams, Sequoia, SpecConfig, SpecError, Static

SHAPES = [
    Chain(4),
    Chain(4, p_min=0.25),
    Expansion((2, 2, 1)),
    Static(((0,), (1,), (0, 0))),
    Sequoia((0.6, 0.2), 12, 4),
    Sequoia((0.6, 0.2), "auto", 4),
    Dynamic(10, 3, 4),
    BestFirst(8, 0.05),
]


def config(table):
    return msgspec.convert(tomllib.loads(table), SpecConfig)


def test_a_table_says_all_four_choices():
    cfg = config("""
        draft = "fake"
        shape = { kind = "sequoia", acceptance = [0.6, 0.2], nodes = 12, depth = 4 }
        children = "distinct"
        rule = "traversal"
        draft_temperature = 0.8
    """)
    assert cfg == SpecConfig(
        Draft.FAKE, 12, shape=Sequoia((0.6, 0.2), 12, 4), children="distinct", rule="traversal", draft_temperature=0.8
    )
    assert (cfg.k, cfg.tree_shape.max_nodes, cfg.tree_shape.max_depth) == (12, 12, 4)


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_a_configuration_survives_json(shape):
    cfg = SpecConfig("fake", shape=shape)
    assert msgspec.json.decode(msgspec.json.encode(cfg), type=SpecConfig) == cfg
    assert cfg.k == shape.max_nodes


def test_without_a_shape_drafts_are_chains():
    assert SpecConfig("prompt_lookup", 4).tree_shape == Chain(4)
    assert SpecConfig("fake", 40).tree_shape == Chain(40)
    assert SpecConfig("suffix", 64).tree_shape == Chain(64)


REFUSED = {
    "text with more than 16": ({"draft": "ngram", "k": 17}, ["k is 17"]),
    "text with a longer chain": ({"draft": "ngram", "shape": Chain(17)}, ["shape.k is 17"]),
    "a model with more than 64": ({"draft": "fake", "k": 65}, ["k is 65"]),
    "neither k nor a shape": ({"draft": "fake"}, ["k is 0", "shape"]),
    "two sizes": ({"draft": "fake", "k": 3, "shape": Chain(4)}, ["k is 3", "shape"]),
    "text as a tree": ({"draft": "prompt_lookup", "shape": Expansion((2,))}, ["shape is 'expansion'", "draft"]),
    "suffixes as a fixed tree": ({"draft": "suffix", "shape": Expansion((2,))}, ["shape is 'expansion'", "draft"]),
    "a suffix chain with p_min": ({"draft": "suffix", "shape": Chain(4, p_min=0.1)}, ["p_min is 0.1", "draft"]),
    "text drawn at random": ({"draft": "suffix", "k": 4, "children": "iid"}, ["children is 'iid'", "draft"]),
    "another unknown word": ({"draft": "fake", "k": 4, "children": "best"}, ["children is 'best'"]),
    "an unknown rule": ({"draft": "fake", "k": 4, "rule": "typical"}, ["rule is 'typical'"]),
    "the first occurrence of an n-gram": (
        {"draft": "ngram", "k": 4, "occurrence": "earliest"},
        ["occurrence is 'earliest'", "draft"],
    ),
    "an unknown occurrence": ({"draft": "prompt_lookup", "k": 4, "occurrence": "middle"}, ["occurrence is 'middle'"]),
    "lookup with a depth": ({"draft": "prompt_lookup", "k": 4, "max_depth": 8}, ["max_depth is 8", "draft"]),
    "lookup with a factor": ({"draft": "prompt_lookup", "k": 4, "factor": 2.0}, ["factor is 2.0", "draft"]),
    "lookup with prompts": ({"draft": "prompt_lookup", "k": 4, "prompts": True}, ["prompts is True", "draft"]),
    "lookup with a floor": ({"draft": "prompt_lookup", "k": 4, "min_prob": 0.5}, ["min_prob is 0.5", "draft"]),
    "text with a temperature": ({"draft": "suffix", "k": 4, "draft_temperature": 0.5}, ["draft_temperature", "draft"]),
    "a draft temperature of 0": ({"draft": "fake", "k": 4, "draft_temperature": 0.0}, ["draft_temperature is 0.0"]),
    "a model with n-grams": ({"draft": "fake", "k": 4, "max_ngram": 5}, ["max_ngram is 5", "draft"]),
    "no factor": ({"draft": "suffix", "k": 4, "factor": 0.0}, ["factor is 0.0"]),
    "no depth": ({"draft": "suffix", "k": 4, "max_depth": 1}, ["max_depth is 1"]),
    "match with draws": ({"draft": "fake", "k": 4, "children": "iid", "rule": "match"}, ["rule is 'match'", "'iid'"]),
    "traversal without": ({"draft": "fake", "k": 4, "rule": "traversal"}, ["rule is 'traversal'", "children is 'top'"]),
    "dynamic with draws": (
        {"draft": "fake", "shape": Dynamic(4, 2, 2), "children": "iid"},
        ["children is 'iid'", "shape is 'dynamic'"],
    ),
    "best first with draws": (
        {"draft": "fake", "shape": BestFirst(4), "children": "distinct"},
        ["children is 'distinct'", "shape is 'best_first'"],
    ),
    "p_min with draws": (
        {"draft": "fake", "shape": Chain(4, p_min=0.1), "children": "iid"},
        ["children is 'iid'", "p_min 0.1"],
    ),
    "ranks left out with draws": (
        {"draft": "fake", "shape": Static(((0,), (2,))), "children": "distinct"},
        ["children is 'distinct'", "gaps"],
    ),
}


@pytest.mark.parametrize(("fields", "told"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_with_its_fields(fields, told):
    with pytest.raises(SpecError) as refused:
        SpecConfig(**fields)
    assert all(part in str(refused.value) for part in told), str(refused.value)


@pytest.mark.parametrize(
    "fields", ['shape = { kind = "star" }', "shap = 1", "shape = { kind = 'chain', k = 2, d = 1 }"]
)
def test_an_unknown_name_is_refused(fields):
    with pytest.raises(msgspec.ValidationError):
        config(f"draft = 'fake'\n{fields}")


def test_one_word_switches_drafts_off():
    cfg = SpecConfig("suffix", shape=BestFirst(32), max_depth=9)
    assert msgspec.structs.replace(cfg, draft="none").draft is Draft.NONE


def test_nothing_is_drawn_at_temperature_0():
    cfg = SpecConfig("fake", shape=Expansion((2, 2)), children="distinct", rule="traversal", draft_temperature=0.5)
    greedy = cfg.for_request(SamplingParams(temperature=0))
    assert (greedy.children, greedy.shape) == ("top", cfg.shape)
    assert cfg.for_request(SamplingParams()) is cfg


def test_a_draft_model_has_the_parameters_of_the_request():
    params = SamplingParams(temperature=0.7, top_k=5)
    assert SpecConfig("fake", 4).draft_params(params) == params
    assert SpecConfig("fake", 4).draft_params(SamplingParams(temperature=0, top_k=5)) == SamplingParams(top_k=5)
    assert SpecConfig("fake", 4, draft_temperature=0.3).draft_params(params) == SamplingParams(temperature=0.3, top_k=5)

"""Drafts as scans of the context, and the configuration that names them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec import Draft, SpecConfig, SpecError, ngram_draft, prompt_lookup, propose
from tests import reference as ref

contexts = st.integers(1, 4).flatmap(lambda vocab: st.lists(st.integers(0, vocab - 1), max_size=40))


@pytest.mark.parametrize(
    ("ctx", "k", "max_ngram", "min_ngram", "draft"),
    [
        ([5, 6, 7, 8, 5, 6], 3, 3, 1, [7, 8, 5]),  # runs into the suffix
        ([5, 6, 7, 8, 5, 6], 9, 3, 1, [7, 8, 5, 6]),  # and ends with the context
        ([1, 2, 3, 9, 1, 2, 4, 9, 1, 2], 2, 3, 1, [4, 9]),  # the most recent of two
        ([1, 2, 3, 7, 2, 4, 1, 2], 1, 3, 1, [3]),  # a longer match beats a more recent shorter one
        ([1, 2, 3, 7, 2, 4, 1, 2], 1, 1, 1, [4]),
        ([7, 7, 7], 4, 3, 1, [7]),  # overlapping itself
        ([1, 2, 1], 3, 3, 2, []),  # matches of one token are too short
        ([1, 2, 3], 3, 3, 1, []),
        ([4], 3, 3, 1, []),
        ([], 3, 3, 1, []),
        ([7, 7, 7], 0, 3, 1, []),
        ([7, 7, 7], -2, 3, 1, []),
    ],
)
def test_hand_example_prompt_lookup(ctx, k, max_ngram, min_ngram, draft):
    assert prompt_lookup(ctx, k, max_ngram, min_ngram) == draft


@given(contexts, st.integers(-1, 9), st.integers(1, 3), st.integers(0, 3))
def test_prompt_lookup_matches_reference(ctx, k, min_ngram, more):
    max_ngram = min_ngram + more
    assert prompt_lookup(ctx, k, max_ngram, min_ngram) == ref.prompt_lookup(ctx, k, max_ngram, min_ngram)


@pytest.mark.parametrize(
    ("ctx", "k", "n", "draft"),
    [
        ([7, 4, 7, 2, 7], 1, 2, [2]),  # 4 and 2 followed 7 once each: the lower id
        ([7, 4, 7, 2, 7, 4, 7], 1, 2, [4]),  # now 4 leads
        ([1, 2, 3, 1, 2], 4, 3, [3, 1, 2, 3]),  # the drafted tokens join the context
        ([9, 1, 5, 2, 5, 3, 1, 5], 1, 3, [2]),  # "1 5" decides before "5" is asked
        ([9, 1, 5, 2, 5, 3, 5, 3, 1, 5], 1, 2, [3]),
        ([8, 8, 8], 3, 3, [8, 8, 8]),  # overlaps count
        ([1, 2, 3], 2, 3, []),
        ([1, 1, 1], 2, 1, []),  # order 1 looks at nothing
        ([], 2, 3, []),
        ([8, 8, 8], 0, 3, []),
    ],
)
def test_ngram_draft_hand_example(ctx, k, n, draft):
    assert ngram_draft(ctx, k, n) == draft


@given(contexts, st.integers(-1, 9), st.integers(1, 5))
def test_ngram_draft_matches_reference(ctx, k, n):
    assert ngram_draft(ctx, k, n) == ref.ngram_draft(ctx, k, n)


@given(
    contexts,
    st.sampled_from([Draft.NONE, Draft.NGRAM, Draft.PROMPT_LOOKUP]),
    st.integers(1, 16),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(-1, 20),
)
def test_propose_goes_by_the_kind_of_draft(ctx, draft, k, min_ngram, more, asked):
    cfg = SpecConfig(draft, k, max_ngram=min_ngram + more, min_ngram=min_ngram)
    proposed = propose(cfg, ctx, asked)
    assert proposed == ref.propose(draft.value, ctx, asked, min_ngram + more, min_ngram)
    assert len(proposed) <= max(asked, 0)


def test_config_parses_runtime_values():
    cfg = SpecConfig.parse("prompt_lookup", 5)
    assert (cfg.draft, cfg.k, cfg.max_ngram, cfg.min_ngram) == (Draft.PROMPT_LOOKUP, 5, 3, 1)
    assert SpecConfig.parse("ngram", 1).draft is Draft.NGRAM
    assert SpecConfig.parse("none", 16).draft is Draft.NONE
    for bad in ("", "NGRAM", "lookahead", None):
        with pytest.raises(SpecError, match=r"draft.*none.*ngram.*prompt_lookup") as refused:
            SpecConfig.parse(bad, 4)
        assert repr(bad) in str(refused.value)
    for bad in (0, -1, 17, 2.5, "4", None, True):
        with pytest.raises(SpecError, match=r"k is .*1.*16") as refused:
            SpecConfig.parse("ngram", bad)
        assert repr(bad) in str(refused.value)
    with pytest.raises(SpecError, match="min_ngram is 0"):
        SpecConfig("ngram", 4, max_ngram=3, min_ngram=0)
    with pytest.raises(SpecError, match="max_ngram is 2"):
        SpecConfig("ngram", 4, max_ngram=2, min_ngram=3)
    SpecConfig("ngram", 4, max_ngram=64)
    with pytest.raises(SpecError, match=r"max_ngram is 65.*64"):
        SpecConfig("ngram", 4, max_ngram=65)
    with pytest.raises(AttributeError):
        cfg.k = 6

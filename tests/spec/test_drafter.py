"""The incremental drafter gives the scanning functions' drafts, whatever happened to its sequence before."""

from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec import Drafter, SpecConfig, SpecError, prompt_lookup, propose
from spec.lookup_index import LookupIndex

configs = st.one_of(
    st.builds(
        lambda draft, min_ngram, more: SpecConfig(draft, 8, max_ngram=min_ngram + more, min_ngram=min_ngram),
        st.sampled_from(["none", "ngram", "prompt_lookup"]),
        st.integers(1, 2),
        st.sampled_from([0, 1, 2, 4, 9]),
    ),
    st.builds(
        lambda min_ngram, more: SpecConfig(
            "prompt_lookup", 8, max_ngram=min_ngram + more, min_ngram=min_ngram, occurrence="earliest"
        ),
        st.integers(1, 2),
        st.sampled_from([0, 2, 9]),
    ),
    st.builds(
        lambda max_depth, factor, min_prob: SpecConfig(
            "suffix", 8, max_depth=max_depth, factor=factor, min_prob=min_prob
        ),
        st.integers(2, 9),
        st.sampled_from([0.5, 1.0, 2.5]),
        st.sampled_from([0.0, 0.1, 0.5]),
    ),
)


def steps_over(vocab):
    token = st.integers(0, vocab - 1)
    return st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.lists(token, max_size=6)),
            st.tuples(st.just("append"), st.lists(token, min_size=40, max_size=70)),
            st.tuples(st.just("propose"), st.integers(-1, 8)),
        ),
        max_size=12,
    )


@settings(max_examples=200)
@given(configs, st.integers(1, 4).flatmap(steps_over))
def test_drafter_equals_the_scan_after_any_history(cfg, steps):
    drafter, ctx = Drafter(cfg), []
    for step, value in steps:
        if step == "append":
            drafter.append(value)
            ctx += value
        else:
            assert drafter.propose(value) == propose(cfg, ctx, value)
        assert drafter.propose(8) == propose(cfg, ctx, 8)
        assert len(drafter) == len(ctx)


@given(configs, st.integers(1, 3).flatmap(lambda vocab: st.lists(st.integers(0, vocab - 1), max_size=120)))
def test_one_bulk_append_equals_many_single_ones(cfg, tokens):
    bulk, single, asked = Drafter(cfg), Drafter(cfg), Drafter(cfg)
    bulk.append(tokens)
    for token in tokens:
        single.append([token])
        asked.append([token])
        asked.propose(4)
    assert bulk.propose(8) == single.propose(8) == asked.propose(8) == propose(cfg, tokens, 8)


def looks_up(index, pieces, max_ngram, min_ngram, is_earliest):
    ctx = []
    for piece in pieces:
        index.append(piece)
        ctx += piece
        assert index.propose(5) == prompt_lookup(ctx, 5, max_ngram, min_ngram, is_earliest=is_earliest)


@settings(max_examples=200)
@given(
    st.integers(1, 4).flatmap(lambda vocab: st.lists(st.lists(st.integers(0, vocab - 1), max_size=60), max_size=5)),
    st.integers(1, 3),
    st.sampled_from([0, 1, 2, 3, 4, 9, 60]),
    st.booleans(),
)
def test_the_lookup_index_finds_either_occurrence(pieces, min_ngram, more, is_earliest):
    with mock.patch("spec.lookup_index.NUM_SCANNED", 0):
        index = LookupIndex(min_ngram + more, min_ngram, is_earliest=is_earliest)
        looks_up(index, pieces, min_ngram + more, min_ngram, is_earliest)


@settings(max_examples=300)
@given(
    st.lists(
        st.lists(st.sampled_from([0, 1, 256, 257, 65536, 2**24, 2**31 - 1, -1, -(2**31)]), max_size=20), max_size=6
    ),
    st.integers(1, 3),
    st.integers(0, 3),
    st.booleans(),
    st.sampled_from([0, 20, 512]),
)
def test_a_short_context_is_searched_and_indexed_when_it_is_long(pieces, min_ngram, more, is_earliest, num_scanned):
    """Ids whose bytes look like others' where they are not cut at a token."""
    with mock.patch("spec.lookup_index.NUM_SCANNED", num_scanned):
        index = LookupIndex(min_ngram + more, min_ngram, is_earliest=is_earliest)
        looks_up(index, pieces, min_ngram + more, min_ngram, is_earliest)


@pytest.mark.parametrize("draft", ["ngram", "prompt_lookup"])
@pytest.mark.parametrize("max_ngram", [3, 64])
@pytest.mark.parametrize("vocab", [2, 60, 900])
def test_long_texts_that_repeat_themselves(draft, max_ngram, vocab):
    """What is copied is copied again with changes; 64-grams occur, and long before they are found."""
    cfg = SpecConfig(draft, 8, max_ngram=max_ngram)
    text = [i * i * 7 % vocab for i in range(90)]
    text = text + [i % vocab for i in range(11)] + text[:75] + [1 % vocab] + text[10:]
    drafter = Drafter(cfg)
    for i in range(0, len(text), 13):
        drafter.append(text[i : i + 13])
        assert drafter.propose(8) == propose(cfg, text[: i + 13], 8)


@given(configs, st.lists(st.integers(0, 2), max_size=30), st.lists(st.integers(1, 8), max_size=4))
def test_proposing_leaves_no_trace(cfg, tokens, asked):
    quiet, talkative = Drafter(cfg), Drafter(cfg)
    quiet.append(tokens)
    talkative.append(tokens)
    for k in asked:
        assert talkative.propose(k) == talkative.propose(k)
    for token in (0, 1, 0, 1, 1):
        quiet.append([token])
        talkative.append([token])
        tokens = [*tokens, token]
        assert talkative.propose(8) == quiet.propose(8) == propose(cfg, tokens, 8)


@pytest.mark.parametrize("draft", ["none", "ngram", "prompt_lookup", "suffix"])
@pytest.mark.parametrize("bad", [2**31, -(2**31) - 1, "a", 1.5])
def test_what_is_no_token_id_is_refused_and_nothing_is_added(draft, bad):
    drafter = Drafter(SpecConfig.parse(draft, 4), [1, 2, 1, 2])
    before = drafter.propose(4)
    with pytest.raises(SpecError, match="tokens is"):
        drafter.append([1, bad])
    assert (len(drafter), drafter.propose(4)) == (4, before)


@pytest.mark.parametrize("extreme", [2**31 - 1, -(2**31), -1, 0])
@pytest.mark.parametrize("draft", ["ngram", "prompt_lookup", "suffix"])
def test_every_32_bit_id_is_a_token(draft, extreme):
    for cfg in (SpecConfig(draft, 4), SpecConfig(draft, 4, max_ngram=3 if draft == "suffix" else 9)):
        ctx = [extreme, 5, extreme, 7, extreme, 5, extreme]
        assert Drafter(cfg, ctx).propose(4) == propose(cfg, ctx, 4) != []


def test_a_gram_across_the_border_of_two_long_appends_is_found():
    cfg = SpecConfig("prompt_lookup", 4, min_ngram=2)
    drafter = Drafter(cfg, range(600))
    drafter.append([*range(1000, 1050), 599, 1000])
    assert drafter.propose(4) == [1001, 1002, 1003, 1004]


@given(st.lists(st.integers(0, 3), max_size=200), st.integers(1, 40))
def test_the_lookup_index_has_two_entries_a_token_at_the_most(tokens, max_ngram):
    with mock.patch("spec.lookup_index.NUM_SCANNED", 0):
        index = LookupIndex(max_ngram, 1, is_earliest=False)
        index.append(tokens)
        assert len(index._edges) <= 2 * len(tokens)
        index.append(tokens * 3)
        num_entries = len(index._edges)
        index.append(tokens * 5)
        assert len(index._edges) <= num_entries + 2 * max_ngram, "what repeats itself adds none"

"""The incremental drafter gives the scanning functions' drafts, whatever happened to its sequence before."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec import Drafter, SpecConfig, SpecError, propose

configs = st.builds(
    lambda draft, min_ngram, more: SpecConfig(draft, 8, max_ngram=min_ngram + more, min_ngram=min_ngram),
    st.sampled_from(["none", "ngram", "prompt_lookup"]),
    st.integers(1, 2),
    st.integers(0, 2),
)


def steps_over(vocab):
    token = st.integers(0, vocab - 1)
    return st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.lists(token, max_size=6)),
            st.tuples(st.just("append"), st.lists(token, min_size=40, max_size=70)),
            st.tuples(st.just("truncate"), st.integers(0, 8)),
            st.tuples(st.just("truncate_to"), st.floats(0, 1)),
            st.tuples(st.just("propose"), st.integers(-1, 8)),
        ),
        max_size=12,
    )


@settings(max_examples=150)
@given(configs, st.integers(1, 4).flatmap(steps_over))
def test_drafter_equals_the_scan_after_any_history(cfg, steps):
    drafter, ctx = Drafter(cfg), []
    for step, value in steps:
        if step == "append":
            drafter.append(value)
            ctx += value
        elif step == "propose":
            assert drafter.propose(value) == propose(cfg, ctx, value)
        else:
            length = max(0, len(ctx) - value) if step == "truncate" else int(value * len(ctx))
            drafter.truncate(length)
            del ctx[length:]
        assert drafter.propose(8) == propose(cfg, ctx, 8)
    while ctx:  # every record of what a token replaced is used once
        ctx.pop()
        drafter.truncate(len(ctx))
        assert drafter.propose(2) == propose(cfg, ctx, 2)


@given(configs, st.integers(1, 3).flatmap(lambda vocab: st.lists(st.integers(0, vocab - 1), max_size=120)))
def test_one_bulk_append_equals_many_single_ones(cfg, tokens):
    bulk, single, asked = Drafter(cfg), Drafter(cfg), Drafter(cfg)
    bulk.append(tokens)
    for token in tokens:
        single.append([token])
        asked.append([token])
        asked.propose(4)
    assert bulk.propose(8) == single.propose(8) == asked.propose(8) == propose(cfg, tokens, 8)


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


@pytest.mark.parametrize("draft", ["none", "ngram", "prompt_lookup"])
def test_a_length_the_sequence_never_had_is_refused(draft):
    drafter = Drafter(SpecConfig.parse(draft, 4))
    drafter.append([1, 2, 1, 2])
    before = drafter.propose(4)
    for length in (-1, 5):
        with pytest.raises(SpecError, match=f"length is {length}"):
            drafter.truncate(length)
    assert drafter.propose(4) == before


@pytest.mark.parametrize("draft", ["none", "ngram", "prompt_lookup"])
@pytest.mark.parametrize("bad", [2**31, -(2**31) - 1, "a", 1.5])
def test_what_is_no_token_id_is_refused_and_nothing_is_added(draft, bad):
    drafter = Drafter(SpecConfig.parse(draft, 4), [1, 2, 1, 2])
    before = drafter.propose(4)
    with pytest.raises(SpecError, match="tokens is"):
        drafter.append([1, bad])
    assert (len(drafter), drafter.propose(4)) == (4, before)

"""Suffix drafts from the index are those of plain counting, and the index counts what is there."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec.drafts import prompt_lookup, suffix_draft
from spec.lookup_index import GramIndex, LongGramIndex
from spec.suffix import SuffixDrafts, SuffixRules
from spec.suffix_index import MAX_LEADERS, SuffixIndex
from tests.spec.vectors import each

NO_BOUND = 10**6


def index_of(*texts, depth=24):
    index = SuffixIndex(depth)
    for text in texts:
        index.append(text)
        index.end_text()
    return index


def draft_of(ctx, finished, num_nodes, rules, room):
    own = SuffixIndex(rules.max_depth)
    own.append(ctx)
    return SuffixDrafts(rules, own).propose(num_nodes, room, index_of(*finished, depth=rules.max_depth))


def plain(draft):
    return draft and draft._replace(parents=list(draft.parents))


def expected_of(case):
    expect = case["expect"]
    return expect and (
        expect["tokens"],
        expect["parents"],
        expect["values"],
        expect["score"],
        expect["match_len"],
        expect["source"] == "own",
    )


@pytest.mark.parametrize("draft", [suffix_draft, draft_of])
@each("suffix", "suffix")
def test_vector(case, draft):
    rules = SuffixRules(case["max_depth"], case["factor"], case["min_prob"], case["shape"] == "best_first")
    room = NO_BOUND if case["room"] is None else case["room"]
    assert plain(draft(case["ctx"], case["finished"], case["k"], rules, room)) == expected_of(case)


@pytest.mark.parametrize("kind", [GramIndex, LongGramIndex, None])
@each("suffix", "earliest")
def test_vector_of_the_earliest_occurrence(case, kind):
    ctx, k, max_ngram, min_ngram = (case[name] for name in ("ctx", "k", "max_ngram", "min_ngram"))
    if kind is None:
        draft = prompt_lookup(ctx, k, max_ngram, min_ngram, is_earliest=True)
    else:
        index = kind(max_ngram, min_ngram, is_earliest=True)
        index.append(ctx)
        draft = index.propose(k)
    assert draft == case["draft"]


vocabularies = st.sampled_from([1, 2, 2, 3, 5])
rules_of = st.builds(
    SuffixRules,
    max_depth=st.integers(2, 12),
    factor=st.sampled_from([0.5, 1.0, 1.5, 3.0, 40.0]),
    min_prob=st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0]),
    is_tree=st.booleans(),
)


@st.composite
def texts_of(draw, vocab, *, max_size=40):
    """Tokens that often go on as somewhere before."""
    text = draw(st.lists(st.integers(0, vocab - 1), max_size=8))
    for start, length in draw(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 14)), max_size=3)):
        text += text[start : start + length]
        text.append(draw(st.integers(0, vocab - 1)))
    return text[:max_size]


@settings(max_examples=300)
@given(st.data(), vocabularies, rules_of, st.integers(1, 9), st.integers(1, 12))
def test_drafts_are_those_of_plain_counting(data, vocab, rules, num_nodes, room):
    """After any history of appends and proposals, which leave no trace."""
    finished = data.draw(st.lists(texts_of(vocab), max_size=3))
    of_finished = index_of(*finished, depth=rules.max_depth)
    own, ctx = SuffixIndex(rules.max_depth), []
    drafts = SuffixDrafts(rules, own)
    for piece in data.draw(st.lists(texts_of(vocab), min_size=1, max_size=3)):
        own.append(piece)
        ctx += piece
        for known, index in (([], None), (finished, of_finished)):
            assert plain(drafts.propose(num_nodes, room, index)) == plain(
                suffix_draft(ctx, known, num_nodes, rules, room)
            )


@settings(max_examples=200)
@given(st.data(), st.sampled_from([1, 2, 3, 90]), st.integers(1, 8))
def test_what_the_index_says_of_a_string(data, vocab, depth):
    """How often it occurs, where first and where last, and what follows it, best first."""
    token = st.integers(0, vocab - 1)
    size = 300 if vocab > MAX_LEADERS else 25
    texts = data.draw(st.lists(st.lists(token, min_size=size // 2, max_size=size), min_size=1, max_size=3))
    index = index_of(*texts, depth=depth)
    flat = [token for text in texts for token in text]
    seen = {}
    start = 0
    for text in texts:
        for m in range(1, depth + 1):
            for i in range(len(text) - m + 1):
                seen.setdefault(tuple(text[i : i + m]), []).append(start + i + m - 1)
        start += len(text)
    for string, ends in seen.items():
        state, num_matched = index.match(string)
        assert num_matched == len(string)
        assert index.length[index.link[state]] < num_matched <= index.length[state]
        assert (index.count[state], index.first[state], index.recent[state]) == (len(ends), ends[0], ends[-1])
        assert index.token_of(state) == string[-1] == flat[ends[0]]
        if len(string) < depth:
            following = {other[-1]: len(seen[other]) for other in seen if other[:-1] == string} if vocab < 9 else None
            if following is None:
                following = {t: len(seen[(*string, t)]) for t in range(vocab) if (*string, t) in seen}
            order = sorted(following, key=lambda token: (-following[token], token))
            assert [index.token_of(after) for after in index.followers(state)] == order[:MAX_LEADERS]
            assert (index.best[state] and index.token_of(index.best[state])) == (order[0] if order else 0)


def test_a_token_with_very_many_followers_keeps_the_best_in_order():
    """More followers than are kept, overtaking one another, some of which are split off as they are."""
    text = []
    for times in range(4):
        for token in range(1, 130):
            if (token * 7 + times) % 5 < 3 or times == 0:
                text += [0, token] + [200 + token] * (token % 3 == 0)
    index = SuffixIndex(3)
    for i in range(0, len(text), 7):
        index.append(text[i : i + 7])
    index.end_text()
    state, _ = index.match([0])
    counts = {}
    for before, token in pairwise(text):
        if before == 0:
            counts[token] = counts.get(token, 0) + 1
    order = sorted(counts, key=lambda token: (-counts[token], token))
    assert len(order) > MAX_LEADERS
    assert [index.token_of(after) for after in index.followers(state)] == order[:MAX_LEADERS]


def test_a_text_that_repeats_itself_needs_no_more_states():
    """Two states a token at most, whatever the lengths that are asked for."""
    for text in ([0] * 500, [i % 7 for i in range(500)], [i * i % 11 for i in range(500)], list(range(500)) * 2):
        for depth in (2, 60):
            assert index_of(text, depth=depth).num_states <= 2 * len(text)

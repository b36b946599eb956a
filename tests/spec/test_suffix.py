"""Suffix drafts from the index are those of plain counting, and the index counts what is there."""

from collections import Counter
from itertools import pairwise
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec import BestFirst, Drafter, DraftTree, SpecConfig, SpecError
from spec.drafts import prompt_lookup, suffix_draft
from spec.finished import FinishedRequests
from spec.lookup_index import NUM_SCANNED, LookupIndex
from spec.suffix import SuffixDrafts, SuffixRules
from spec.suffix_index import MAX_LEADERS, SuffixIndex
from spec.tree import NO_DRAFT
from tests.spec.vectors import each

NO_BOUND = 10**6


def index_of(*texts, depth=24):
    index = SuffixIndex(depth)
    for text in texts:
        index.append(text)
        index.end_text()
    return index


def draft_of(ctx, finished, num_nodes, rules, room):
    drafts = SuffixDrafts(rules)
    drafts.append(ctx)
    return drafts.draft(num_nodes, room, index_of(*finished, depth=rules.max_depth))


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


@pytest.mark.parametrize("num_scanned", [0, NUM_SCANNED])
@each("suffix", "earliest")
def test_vector_of_the_earliest_occurrence(case, num_scanned):
    ctx, k, max_ngram, min_ngram = (case[name] for name in ("ctx", "k", "max_ngram", "min_ngram"))
    assert prompt_lookup(ctx, k, max_ngram, min_ngram, is_earliest=True) == case["draft"]
    with mock.patch("spec.lookup_index.NUM_SCANNED", num_scanned):
        index = LookupIndex(max_ngram, min_ngram, is_earliest=True)
        index.append(ctx)
        assert index.propose(k) == case["draft"]


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
    drafts, ctx = SuffixDrafts(rules), []
    for piece in data.draw(st.lists(texts_of(vocab), min_size=1, max_size=3)):
        drafts.append(piece)
        ctx += piece
        for known, index in (([], None), (finished, of_finished)):
            assert plain(drafts.draft(num_nodes, room, index)) == plain(
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
        assert (index.count[state], index.first[state]) == (len(ends), ends[0])
        assert index.token_of(state) == string[-1] == flat[ends[0]]
        if len(string) < depth:
            following = {other[-1]: len(seen[other]) for other in seen if other[:-1] == string} if vocab < 9 else None
            if following is None:
                following = {t: len(seen[(*string, t)]) for t in range(vocab) if (*string, t) in seen}
            order = sorted(following, key=lambda token: (-following[token], token))
            assert [index.token_of(after) for after in index.followers(state, 0)] == order[:MAX_LEADERS]
            if len(order) < MAX_LEADERS:
                for least in {*following.values(), 1 + max(following.values(), default=0)}:
                    frequent = [token for token in order if following[token] >= least]
                    assert [index.token_of(after) for after in index.followers(state, least)] == frequent
            assert (index.best[state] and index.token_of(index.best[state])) == (order[0] if order else 0)


def test_a_token_with_very_many_followers_keeps_the_best_in_order():
    """More followers than are kept, that overtake one another and part from longer strings they had been one with."""
    text = []
    for times in range(5):
        for token in range(1, 130):
            if (token * 7 + times) % 5 < 3 or times == 0:
                text += [300 + (token * 3 + times) % 4, 0, token] + [200 + token] * (token % 3 == 0)
    index = SuffixIndex(3)
    most = 0
    for i in range(0, len(text), 7):
        index.append(text[i : i + 7])
        counts = Counter(pairwise(text[: i + 7]))
        order = sorted((after for before, after in counts if before == 0), key=lambda after: (-counts[0, after], after))
        most = max(most, len(order))
        if len(order) > MAX_LEADERS:
            state, _ = index.match([0])
            assert [index.token_of(after) for after in index.followers(state, 0)] == order[:MAX_LEADERS]
    assert most > MAX_LEADERS


def test_a_text_that_repeats_itself_needs_no_more_states():
    """Two states a token at most, and no more steps to add one than the longest that is asked for."""
    for text in ([0] * 500, [i % 7 for i in range(500)], [i * i % 11 for i in range(500)], list(range(500)) * 2):
        for depth in (2, 60):
            assert index_of(text, depth=depth).num_states <= 2 * len(text)
            index = SuffixIndex(depth)
            index.append(text)
            assert len(list(index.suffixes())) <= depth


def test_a_drafter_looks_at_finished_requests_of_its_salt():
    cfg = SpecConfig("suffix", shape=BestFirst(8, min_prob=0.25), factor=2.0)
    finished = FinishedRequests()
    texts = {None: [[1, 2, 3, 4, 5], [1, 2, 3, 6, 7]], "a": [[1, 2, 9, 9]]}
    for salt, of_salt in texts.items():
        for text in of_salt:
            finished.add(salt, text)
    ctx = [8, 1, 2, 3]
    for is_taken_in in (False, True):
        if is_taken_in:
            finished.take_in(100)
        for salt in (None, "a", "b"):
            drafted = Drafter(cfg, ctx, finished, salt).draft(8, 2)
            expected = suffix_draft(ctx, texts.get(salt, []) if is_taken_in else [], 8, SuffixRules.of(cfg), 2)
            if expected is None:
                assert (drafted.tree, drafted.values) == (NO_DRAFT, [])
            else:
                assert (list(drafted.tree.tokens), list(drafted.tree.parents)) == expected[:2]
                assert (drafted.draft_probs, drafted.values) == (None, expected.values)
    assert Drafter(cfg, ctx, finished).draft(8, 2).tree == DraftTree([4, 6, 5, 7], [-1, -1, 0, 1])


def test_drafts_of_a_drafter_keep_to_nodes_and_depth():
    cfg = SpecConfig("suffix", shape=BestFirst(8, min_prob=0.0), factor=3.0)
    drafter = Drafter(cfg, [1, 2, 3, 1, 2, 4, 1, 2, 5, 1, 2])
    for num_nodes, depth in [(8, 1), (2, 8), (3, 2), (0, 3), (3, 0), (-1, -1)]:
        tree = drafter.draft(num_nodes, depth).tree
        assert len(tree) <= max(num_nodes, 0)
        assert max(tree.depths, default=0) <= max(depth, 0)
        assert (drafter.strength > 0) == (len(tree) > 0)
    lookup = Drafter(SpecConfig("prompt_lookup", 4), [1, 2, 3, 1, 2])
    assert lookup.draft(4, 2).tree == DraftTree.chain([3, 1])
    assert lookup.strength == 2


pieces = st.lists(st.integers(0, 3), min_size=1, max_size=12)


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), pieces, st.integers(0, 9)), min_size=15, max_size=40), st.integers(8, 90)
)
def test_finished_requests_are_the_newest_ones(steps, most_tokens):
    """In the order they came, oldest out first, never more than the bound; a quarter of it stays beside the newest."""
    finished, taken = FinishedRequests(most_tokens), {"a": [], "b": []}
    drafts = SuffixDrafts(SuffixRules(8, 2.0, 0.0, is_tree=True))
    drafts.append([0, 1, 2, 3, 0, 1, 2])
    for salt, text, num_spare in steps:
        finished.add(salt, text)
        kept = text[-(most_tokens // 8) :]
        finished.take_in(num_spare)
        drafts.draft(8, 4, finished.index(salt))  # of a text that is half taken in as well
        finished.take_in(100)
        assert finished.num_waiting == 0
        taken[salt].append(kept)
        assert finished.num_tokens <= most_tokens
        for other, texts in taken.items():
            index = finished.index(other)
            if index is None:
                assert not texts or other != salt
                taken[other] = []
                continue
            newest = []
            while sum(map(len, newest)) < len(index.text):
                newest.insert(0, texts[-1 - len(newest)])
            assert [token for text in newest for token in text] == index.text.tolist()
            assert len(newest) == len(texts) or len(index.text) - len(newest[-1]) > most_tokens // 4
            ctx, rules = [0, 1, 2, 3, 0, 1, 2], SuffixRules(8, 2.0, 0.0, is_tree=True)
            assert plain(drafts.draft(8, 4, index)) == plain(suffix_draft(ctx, newest, 8, rules, 4))


def test_a_text_that_is_half_taken_in_drafts_what_is_there():
    """Its last token has not been followed, and is no match."""
    finished = FinishedRequests()
    finished.add(None, [1, 2, 3, 4])
    finished.take_in(3)
    for min_prob in (0.0, 0.5):
        for is_tree in (False, True):
            drafts = SuffixDrafts(SuffixRules(8, 2.0, min_prob, is_tree))
            drafts.append([9, 1, 2, 3])
            assert drafts.draft(4, 4, finished.index(None)) is None
            drafts.append([1])
            assert drafts.draft(4, 4, finished.index(None)).tokens[:1] == [2]


def test_texts_that_wait_are_bounded():
    finished = FinishedRequests(32)
    finished.add(None, [1, 2, 3, 4])
    finished.take_in(2)
    for token in range(20):
        finished.add(None, [token] * 4)
    assert finished.num_waiting <= 32
    while finished.num_waiting:
        before = finished.num_waiting
        finished.take_in(1)
        assert finished.num_waiting == before - 1
    assert finished.index(None).text.tolist()[-8:] == [18] * 4 + [19] * 4
    with pytest.raises(SpecError, match="most_tokens is 7"):
        FinishedRequests(7)

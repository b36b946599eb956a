"""Verification of trees against the plain reference, and of chains against `verify_draft`."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec import DraftTree, Pcg32, Round, SamplingParams, SpecError, verify_draft, verify_round, verify_tree
from tests import reference as ref
from tests import reference_trees as trees
from tests.spec.strategies import one_round, one_tree_round
from tests.spec.targets import params_of

seeds = st.integers(0, 2**60)


@settings(max_examples=250)
@given(one_tree_round(), seeds)
def test_a_round_equals_the_reference(case, seed):
    rng, counted = Pcg32(seed, 5), ref.Pcg32(seed, 5)
    verified = verify_tree(
        np.array(case.rows),
        DraftTree(case.tokens, case.parents),
        case.draft_probs,
        params_of(case.params),
        case.prompt,
        case.output,
        rng,
        rule=case.rule,
        children=case.children,
    )
    expected = trees.verify_tree(
        case.rows,
        case.tokens,
        case.parents,
        case.draft_probs,
        case.params,
        case.prompt,
        case.output,
        counted,
        case.rule,
        case.children,
    )
    assert (verified.tokens, list(verified.path)) == (expected["tokens"], expected["path"])
    assert verified.logprobs == pytest.approx(expected["logprobs"], rel=1e-9)
    assert rng.state == counted.state


@settings(max_examples=150)
@given(one_round(), seeds)
def test_on_a_chain_it_is_verify_draft_bit_for_bit(case, seed):
    rng, of_chain = Pcg32(seed, 5), Pcg32(seed, 5)
    params, rows = params_of(case.params), np.array(case.rows, np.float32)
    verified = verify_tree(
        rows,
        DraftTree.chain(case.draft),
        case.draft_probs,
        params,
        case.prompt,
        case.output,
        rng,
        rule=case.verify,
        children="top" if case.draft_probs is None else "iid",
    )
    chain = verify_draft(
        rows, case.draft, case.draft_probs, params, case.prompt, case.output, of_chain, verify=case.verify
    )
    assert (verified.tokens, verified.logprobs) == (chain.tokens, chain.logprobs)
    assert list(verified.path) == list(chain.path) == list(range(chain.n_accepted))
    assert rng.state == of_chain.state


@settings(max_examples=100)
@given(one_tree_round(), seeds)
def test_an_empty_tree_is_one_draw(case, seed):
    rng, counted = Pcg32(seed, 5), Pcg32(seed, 5)
    params = params_of(case.params)
    probs = None if case.children == "top" else []
    options = {"rule": case.rule, "children": case.children}
    rows = np.array(case.rows[:1])
    verified = verify_tree(rows, DraftTree([], []), probs, params, case.prompt, case.output, rng, **options)
    alone = verify_draft(rows, [], None, params, case.prompt, case.output, counted)
    assert (verified.tokens, list(verified.path), rng.state) == (alone.tokens, [], counted.state)


def test_draws_as_they_are_counted_on_one_tree():
    """Tokens 4 7 2 under -1 -1 0: where the path goes does not move the stream on its way."""
    tree, law = DraftTree([4, 7, 2], [-1, -1, 0]), np.full(8, 0.125)
    favoured = {"first child": 4, "second child": 7, "neither": 0}
    for name, token in favoured.items():
        rows = np.zeros((4, 8))
        rows[0, token] = 40
        rows[1, 2] = 40  # below the first child its child is accepted
        num_draws = {}
        for rule, children in (("match", "top"), ("resample", "top"), ("resample", "iid"), ("traversal", "iid")):
            rng = Pcg32(3, 1)
            probs = None if children == "top" else [law] * 3
            verified = verify_tree(rows, tree, probs, SamplingParams(), [0], [], rng, rule=rule, children=children)
            counted = Pcg32(3, 1)
            num_draws[rule] = next(n for n in range(9) if counted.state == rng.state or counted.next_u32() is None)
            assert list(verified.path) == {"first child": [0, 2], "second child": [1], "neither": []}[name]
        assert num_draws["match"] == len(verified.tokens)
        assert num_draws["resample"] == {"first child": 6, "second child": 4, "neither": 3}[name]
        assert num_draws["traversal"] == {"first child": 2, "second child": 4, "neither": 4}[name]


@pytest.mark.parametrize("rule", ["match", "resample"])
def test_a_row_that_no_path_comes_by_is_not_looked_at(rule):
    rows = np.zeros((3, 4), np.float32)
    rows[0, 1] = 60
    rows[2] = np.nan
    tree = DraftTree([1, 2], [-1, -1])
    for temperature in (0, 1.0):
        params = SamplingParams(temperature=temperature)
        assert list(verify_tree(rows, tree, None, params, [0], [], Pcg32(1), rule=rule).path) == [0]


@pytest.mark.parametrize("temperature", [0, 1.0])
@pytest.mark.parametrize(("rule", "children"), [("match", "top"), ("resample", "top"), ("traversal", "iid")])
def test_a_bad_row_found_late_leaves_the_generator_where_it_was(rule, children, temperature):
    rows = np.zeros((3, 4), np.float32)
    rows[0, 1] = rows[1, 2] = 60
    rows[2] = np.nan
    rng = Pcg32(1)
    state = rng.state
    probs = None if children == "top" else np.full((2, 4), 0.25)
    params = SamplingParams(temperature=temperature)
    with pytest.raises(SpecError):
        verify_tree(rows, DraftTree.chain([1, 2]), probs, params, [0], [], rng, rule=rule, children=children)
    assert rng.state == state


@pytest.mark.parametrize("rule", ["resample", "match"])
def test_penalties_count_the_path_and_nothing_else(rule):
    """The sibling's token, and the token of a node that was left, are not on the path."""
    row = [0.0, 2.0, 1.9, 1.8]
    tree = DraftTree([1, 2, 2, 3], [-1, -1, 0, 0])
    params = SamplingParams(temperature=0, frequency_penalty=1.0)
    verified = verify_tree(np.array([row] * 5), tree, None, params, [0], [], Pcg32(1), rule=rule)
    assert (verified.tokens, list(verified.path)) == ([1, 2, 3], [0, 2])
    sampled = SamplingParams(temperature=0.001, frequency_penalty=1.0)
    verified = verify_tree(np.array([row] * 5), tree, None, sampled, [0], [], Pcg32(1), rule=rule)
    assert (verified.tokens, list(verified.path)) == ([1, 2, 3], [0, 2])


def test_equal_siblings_are_refused_unless_they_were_drawn_apart():
    tree, rows, law = DraftTree([1, 2, 1], [-1, -1, -1]), np.zeros((4, 4)), np.full(4, 0.25)
    for children in ("top", "distinct"):
        probs = None if children == "top" else [law] * 3
        with pytest.raises(SpecError, match="tokens is 1"):
            verify_tree(rows, tree, probs, SamplingParams(), [0], [], Pcg32(1), children=children)
    verify_tree(rows, tree, [law] * 3, SamplingParams(), [0], [], Pcg32(1), children="iid")


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_laws_are_checked_before_anything_is_drawn(temperature):
    tree, rows, good = DraftTree([1, 2], [-1, -1]), np.zeros((3, 4)), [0.25] * 4
    bad = {
        "missing": None,
        "a law too few": [good],
        "another length": [good[:3]] * 2,
        "negative": [[0.5, 0.75, -0.25, 0.0]] * 2,
        "not finite": [[np.nan, 0.5, 0.25, 0.25]] * 2,
        "infinite": [[np.inf, 0.5, 0.25, 0.25]] * 2,
        "a sum of 1.002": [[0.252, 0.25, 0.25, 0.25]] * 2,
        "nothing for the token": [[0.5, 0.5, 0.0, 0.0]] * 2,
        "unequal": [good, [0.125, 0.375, 0.25, 0.25]],
    }
    params, rng = SamplingParams(temperature=temperature), Pcg32(1)
    state = rng.state
    for probs in bad.values():
        with pytest.raises(SpecError, match="draft_probs"):
            verify_tree(rows, tree, probs, params, [0], [], rng, children="distinct")
    with pytest.raises(SpecError, match="draft_probs"):
        verify_tree(rows, tree, [good] * 2, params, [0], [], rng)
    assert rng.state == state


def test_a_round_says_how_its_children_were_drawn():
    """Once the first of two distinct siblings is gone, all that the draft had left was the second."""
    rows = np.log([[0.1, 0.3, 0.6], [1, 1, 1], [1, 1, 1]])
    law = [0.8, 0.1, 0.1]
    found = set()
    for seed in range(200):
        rng, counted = Pcg32(seed), Pcg32(seed)
        round_ = Round(
            [0, 1], SamplingParams(), [0], [], rng, draft_probs=[law] * 2, parents=[-1, -1], children="distinct"
        )
        told = verify_round(rows, round_)
        alone = verify_tree(
            rows, round_.tree, [law] * 2, SamplingParams(), [0], [], counted, rule="resample", children="distinct"
        )
        assert (told.tokens, rng.state) == (alone.tokens, counted.state)
        as_iid = verify_tree(rows, round_.tree, [law] * 2, SamplingParams(), [0], [], Pcg32(seed), children="iid")
        found.add(as_iid.tokens == told.tokens)
    assert found == {True, False}

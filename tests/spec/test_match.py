"""Matching: sampled text that speculation cannot change, accepted as often as under the rejection rule."""

import math
from itertools import product

import numpy as np
import pytest

from spec import Pcg32, SamplingParams, SpecError, generate, verify_draft
from tests import reference as ref
from tests.spec.targets import config_of, fake_target, params_of, rows_of

PARAMS = {
    "plain": {},
    "warm": {"temperature": 1.4},
    "cut": {"temperature": 0.9, "top_k": 5, "top_p": 0.9, "min_p": 0.02},
    "penalised": {"repetition_penalty": 1.2, "frequency_penalty": 0.8, "presence_penalty": -0.5},
    "all": {"temperature": 0.8, "top_k": 6, "top_p": 0.95, "frequency_penalty": -1.0, "logit_bias": {"2": 1.0}},
    "late stop": {"min_tokens": 9, "stop_token_ids": [1, 6]},
}
PROMPT = [3, 1, 2, 3, 1, 2, 3, 1]


def run(target, draft, k, params, seed, **options):
    target.truncate(0)
    return generate(target, config_of(draft, k), PROMPT, params, seed, 20, [], **options)


@pytest.mark.parametrize("changes", PARAMS.values(), ids=PARAMS)
def test_matching_gives_the_text_of_no_drafts(changes):
    target, params = fake_target(seed=4, vocab=8, order=1, sharp=4.0), params_of(ref.make_params(**changes))
    accepted = rejected = 0
    for seed in range(4):
        plain = run(target, "none", 0, params, seed)
        for draft, k, verify in product(("none", "ngram", "prompt_lookup"), range(9), ("match",)):
            matched = run(target, draft, k, params, seed, verify=verify)
            assert matched.tokens == plain.tokens
            assert matched.logprobs == pytest.approx(plain.logprobs, rel=1e-9)
            assert matched.finish_reason == plain.finish_reason
            accepted += matched.stats.accepted
            rejected += matched.stats.drafted - matched.stats.accepted
    assert accepted > 100
    assert rejected > 100


def test_the_rejection_rule_does_change_the_text():
    """Otherwise the test above would say nothing about matching."""
    target = fake_target(seed=4, vocab=8, order=1, sharp=4.0)
    plain = [run(target, "none", 0, SamplingParams(), seed).tokens for seed in range(4)]
    assert plain != [run(target, "prompt_lookup", 4, SamplingParams(), seed).tokens for seed in range(4)]


def test_both_rules_accept_as_often_round_by_round():
    """The mean of n_accepted is within four standard errors of `sum_i p_0(d_0) ... p_i(d_i)`, for both rules.

    A round accepts at least `j` tokens with the probability of all `j` first drafts: 3,000 seeds, fixed rows.
    """
    laws = [[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.3, 0.3, 0.4], [1 / 3] * 3]
    rows, draft = rows_of([[math.log(p) for p in law] for law in laws]), [0, 1, 2]
    at_least = [0.6, 0.6 * 0.7, 0.6 * 0.7 * 0.4]
    mean = sum(at_least)
    variance = sum((2 * j + 1) * p for j, p in enumerate(at_least)) - mean**2
    num_seeds = 3000
    for verify in ("resample", "match"):
        accepted = [
            verify_draft(rows, draft, None, SamplingParams(), [0], [], Pcg32(seed, 1), verify=verify).n_accepted
            for seed in range(num_seeds)
        ]
        assert abs(sum(accepted) / num_seeds - mean) < 4 * math.sqrt(variance / num_seeds)


@pytest.mark.parametrize("draft", ["ngram", "prompt_lookup"])
def test_both_rules_accept_as_often_over_whole_requests(draft):
    """The mean accepted tokens per request differ by less than four standard errors of their difference."""
    target = fake_target(seed=4, vocab=8, order=1, sharp=4.0)
    num_seeds, means, errors = 250, [], []
    for verify in ("resample", "match"):
        accepted = [
            run(target, draft, 4, SamplingParams(), seed, verify=verify).stats.accepted for seed in range(num_seeds)
        ]
        mean = sum(accepted) / num_seeds
        means.append(mean)
        errors.append(sum((n - mean) ** 2 for n in accepted) / (num_seeds - 1) / num_seeds)
    assert min(means) > 1
    assert abs(means[0] - means[1]) < 4 * math.sqrt(sum(errors))


def test_matching_draws_one_uniform_per_emitted_token():
    rows = rows_of([[0.0, 1.0, 2.0, 0.5]] * 4)
    for seed, params in product(
        range(40), (SamplingParams(), SamplingParams(top_p=0.9), SamplingParams(temperature=0))
    ):
        rng, counted = Pcg32(seed, 1), Pcg32(seed, 1)
        verified = verify_draft(rows, [2, 2, 1], None, params, [0], [], rng, verify="match")
        for _ in verified.tokens if params.temperature else ():
            counted.next_u32()
        assert rng.state == counted.state


def test_an_unknown_rule_is_refused():
    with pytest.raises(SpecError, match="rule is 'rejection'"):
        run(fake_target(), "ngram", 4, SamplingParams(), 1, verify="rejection")


@pytest.mark.parametrize("draft_probs", [None, np.full((2, 3), 1 / 3)])
def test_a_rule_for_trees_is_refused_where_a_chain_is_verified(draft_probs):
    rng = Pcg32(1, 1)
    state = rng.state
    with pytest.raises(SpecError, match="verify is 'traversal': 'resample' or 'match' here"):
        verify_draft(
            np.zeros((3, 3), np.float32), [0, 1], draft_probs, SamplingParams(), [0], [], rng, verify="traversal"
        )
    assert rng.state == state

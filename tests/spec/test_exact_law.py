"""A round's law equals the target's: not by samples but as fractions, for every outcome of the uniforms."""

import math
from collections import defaultdict
from fractions import Fraction
from functools import partial
from itertools import product

import numpy as np
import pytest

from spec import SamplingParams, speculative_step, verify_draft
from tests import reference as ref
from tests.spec.exact import Round, cuts, intervals, normalized, one_hot, outcomes

# What a context's law may be; the dyadic ones have few cuts, which keeps the walks of three drafts short.
WEIGHTS = {
    2: [(1, 2), (3, 1), (2, 5)],
    3: [(1, 2, 3), (4, 1, 1), (0, 2, 1)],
    4: [(1, 2, 3, 1), (3, 0, 1, 1), (1, 1, 2, 5)],
}
DYADIC = {
    2: [(1, 1), (1, 3), (3, 1)],
    3: [(1, 2, 1), (2, 1, 1), (0, 1, 3)],
    4: [(2, 1, 1, 0), (1, 1, 1, 1), (0, 1, 1, 2)],
}


def laws_by_prefix(choices, salt):
    """A law for every prefix; neighbours among the prefixes differ."""
    return lambda prefix: normalized(
        choices[(salt + sum((i + 1) * (t + 1) for i, t in enumerate(prefix))) % len(choices)]
    )


def real_rule(params=None, verify="resample"):
    params = params or SamplingParams()

    def rule(rows, draft, draft_probs, rng):
        verified = verify_draft(rows, draft, draft_probs, params, [0], [], rng, verify=verify)
        assert verified.n_accepted == len(verified.tokens) - 1
        return verified.tokens

    return rule


def one_step(p, q, x, rng):
    return speculative_step(p, q, x, rng.next_f64(), rng.next_f64())[0]


@pytest.mark.parametrize("salt", range(3))
@pytest.mark.parametrize("vocab", [2, 3, 4])
def test_step_keeps_the_law(vocab, salt):
    p = normalized(WEIGHTS[vocab][salt])
    for weights in WEIGHTS[vocab] + DYADIC[vocab]:
        q = normalized(weights)
        law = defaultdict(Fraction)
        for x in range(vocab):
            if q[x]:
                by_draw = [intervals(points) for points in cuts("resample", p, x, q)]
                floats = np.array(p, float), np.array(q, float), x
                for token, weight in outcomes(partial(one_step, *floats), by_draw):
                    law[token] += q[x] * weight
        assert [law[token] for token in range(vocab)] == list(p)


@pytest.mark.parametrize("verify", ["resample", "match"])
@pytest.mark.parametrize(("vocab", "m"), [(2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (3, 3), (4, 1), (4, 2)])
def test_deterministic_drafts_keep_the_law(vocab, m, verify):
    """For each draft there is: which one was made may not matter."""
    choices = WEIGHTS[vocab] if vocab**m < 9 else DYADIC[vocab]
    case = Round(vocab, m, laws_by_prefix(choices, 1), rule=verify)
    for draft in product(range(vocab), repeat=m):
        assert case.law_of(real_rule(verify=verify), draft) == case.target_law()


@pytest.mark.parametrize("verify", ["resample", "match"])
@pytest.mark.parametrize("draft", [(3, 1, 2), (0, 0, 1), (2, 2, 2), (1, 3, 1), (3, 0, 3)])
def test_three_deterministic_drafts_over_four_ids_keep_the_law(draft, verify):
    case = Round(4, 3, laws_by_prefix(DYADIC[4], 0), rule=verify)
    assert case.law_of(real_rule(verify=verify), draft) == case.target_law()


def stochastic(vocab, m, rule="resample"):
    """Drafts over all ids where that is a short walk, over two of them else."""
    choices = WEIGHTS if m == 1 else DYADIC
    draft_law = laws_by_prefix(choices[vocab], 1)
    if vocab**m > 16:
        two = [(1, 1, 0, 0), (0, 1, 3, 0), (1, 0, 1, 0)]
        draft_law = laws_by_prefix([weights[:vocab] for weights in two], 0)
    return Round(vocab, m, laws_by_prefix(choices[vocab], 0), draft_law=draft_law, rule=rule)


@pytest.mark.parametrize(("vocab", "m"), [(2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (3, 3), (4, 1), (4, 2), (4, 3)])
def test_stochastic_drafts_keep_the_law(vocab, m):
    case = stochastic(vocab, m)
    assert case.law_of(real_rule()) == case.target_law()


def halved_where_emitted(base):
    """A presence penalty of log 2 halves the weight of what was emitted: a law that depends on the accepted tokens."""
    return lambda prefix: normalized([mass / (2 if token in prefix else 1) for token, mass in enumerate(base(prefix))])


def two_best(base):
    def law(prefix):
        best = sorted(range(len(base(prefix))), key=lambda token: (-base(prefix)[token], token))[:2]
        return normalized([mass if token in best else 0 for token, mass in enumerate(base(prefix))])

    return law


@pytest.mark.parametrize(
    ("params", "transform"),
    [(SamplingParams(presence_penalty=math.log(2)), halved_where_emitted), (SamplingParams(top_k=2), two_best)],
    ids=["penalties", "top-k"],
)
@pytest.mark.parametrize("vocab", [2, 3])
def test_the_law_kept_is_that_of_the_parameters(params, transform, vocab):
    base = laws_by_prefix(DYADIC[vocab], 0)
    law = transform(base)
    for verify in ("resample", "match"):
        case = Round(vocab, 2, base, law=law, rule=verify)
        for draft in product(range(vocab), repeat=2):
            assert case.law_of(real_rule(params, verify), draft) == case.target_law()
    case = Round(vocab, 2, base, law=law, draft_law=laws_by_prefix(DYADIC[vocab], 2))
    assert case.law_of(real_rule(params)) == case.target_law()


@pytest.mark.parametrize(("vocab", "m"), [(2, 3), (3, 2), (4, 2)])
def test_both_rules_accept_with_exactly_the_same_probability(vocab, m):
    for draft in product(range(vocab), repeat=m):
        num_accepted = {}
        for verify in ("resample", "match"):
            case = Round(vocab, m, laws_by_prefix(DYADIC[vocab], 1), rule=verify)
            law = num_accepted[verify] = defaultdict(Fraction)
            for tokens, weight in case.outcomes(real_rule(verify=verify), draft):
                law[len(tokens) - 1] += weight
        assert num_accepted["match"] == num_accepted["resample"]
        at_least_one = sum(mass for n, mass in num_accepted["match"].items() if n)
        assert at_least_one == case.law(())[draft[0]]


def bent_rule(accepts=None, replacement=None, replacing_uniform="u_resample", bonus_row=-1):
    """The rejection rule with a part exchanged."""
    accepts = accepts or (lambda p, q, x, u: u < p[x] / q[x])
    replacement = replacement or ref.residual

    def rule(rows, draft, draft_probs, rng):
        laws = [ref.distribution(row.tolist(), ref.DEFAULT_PARAMS, [], []) for row in rows]
        for i, (x, p) in enumerate(zip(draft, laws, strict=False)):
            q = one_hot(x, len(p)) if draft_probs is None else draft_probs[i].tolist()
            uniforms = {"u_accept": rng.next_f64(), "u_resample": rng.next_f64()}
            if not accepts(p, q, x, uniforms["u_accept"]):
                return [*draft[:i], ref.sample_dense(replacement(p, q), uniforms[replacing_uniform])]
        return [*draft, ref.sample_dense(laws[bonus_row], rng.next_f64())]

    return rule


BIASED = {
    "accepts by p alone": {"accepts": lambda p, _q, x, u: u < p[x]},
    "accepts always": {"accepts": lambda *_: True},
    "resamples from p": {"replacement": lambda p, _q: p},
    "resamples from |p - q|": {
        "replacement": lambda p, q: ref.normalize([abs(a - b) for a, b in zip(p, q, strict=True)])
    },
    "resamples with the accepting uniform": {"replacing_uniform": "u_accept"},
    "takes the bonus from the row before": {"bonus_row": -2},
}


@pytest.mark.parametrize("bias", BIASED.values(), ids=BIASED)
@pytest.mark.parametrize("vocab", [3, 4])
def test_a_biased_rule_is_found_out(bias, vocab):
    case = stochastic(vocab, 1, rule="any")
    assert case.law_of(bent_rule()) == case.target_law()
    assert case.law_of(bent_rule(**bias)) != case.target_law()

"""Top-k and top-p keep what an exact reference keeps: equal and almost equal logits, holes, subnormal and huge ones."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from spec import SamplingParams, dense_distribution
from spec.verify import verify_draft
from tests import reference as ref
from tests.spec.targets import params_of

UNDECIDED = Decimal("1e-12")  # float64 sums cannot tell masses that are so near


def exact_law(x, fields):
    """The law of penalised float64 logits, or None where a mass is too near to a cut for float64 to say."""
    with localcontext() as context:
        context.prec = 60
        best, temperature = Decimal(max(x)), Decimal(fields["temperature"])
        #   Decimal of a float is exact, and so are its order and, to 60 digits, its differences
        weights = [exp((Decimal(value) - best) / temperature) if value > -math.inf else Decimal(0) for value in x]
        order = sorted(range(len(x)), key=lambda token: (-Decimal(x[token]), token))
        least = Decimal(fields["min_p"])
        if any(abs(weight - least) < UNDECIDED for weight in weights if least and weight != least):
            return None
        kept = [token for token in order if weights[token] > 0 and weights[token] >= least]
        if fields["top_k"]:
            kept = kept[: fields["top_k"]]
        total, before, top_p = sum(weights[token] for token in kept), Decimal(0), Decimal(fields["top_p"])
        nucleus = []
        for token in kept:
            if top_p < 1 and nucleus and abs(before / total - top_p) < UNDECIDED:
                return None
            if top_p == 1 or before / total < top_p:
                nucleus.append(token)
            before += weights[token]
        total = sum(weights[token] for token in nucleus)
        return [float(weights[token] / total) if token in nucleus else 0.0 for token in range(len(x))]


def exp(exponent):
    return exponent.exp() if exponent > -745 else Decimal(0)


def near(value):
    """A few numbers that float64, float32 or a difference with something large cannot tell from `value`."""
    ulps = st.integers(-2, 2).map(lambda steps: value + steps * math.ulp(value))
    return st.one_of(st.just(value), ulps, st.floats(-1e-15, 1e-15).map(lambda part: value + value * part))


anchors = st.sampled_from(
    [0.0, 1.0, -1.0, 7.5, -7.5, 5e-324, -5e-324, 1e-320, 2.2e-308, 1e-20, 2e-20, 1e16, -1e16, 3e38, 1.7e308, -1.7e308]
)
logits = st.one_of(anchors, anchors.flatmap(near), st.just(-math.inf), st.floats(-30, 30))
temperatures = st.sampled_from([5e-324, 1e-300, 1e-20, 1e-3, 0.7, 1.0, 1.5, 1e3, 1e16, 1e20, 1e300, 1e308])
fields_of = st.builds(
    ref.make_params,
    temperature=temperatures,
    top_k=st.integers(0, 5),
    top_p=st.sampled_from([1.0, 1e-9, 0.3, 0.5, 0.7, 0.95]),
    min_p=st.sampled_from([0.0, 0.0, 0.2, 0.9, 1.0]),
    logit_bias=st.dictionaries(
        st.sampled_from(["0", "1", "2"]), st.one_of(anchors, st.floats(-5, 5), st.just(-math.inf)), max_size=2
    ),
)
rows = st.lists(logits, min_size=3, max_size=6)


@settings(max_examples=400)
@given(rows, fields_of)
@example([1.0, 1e-20, 2e-20], ref.make_params(top_k=2))
@example([0.0, 1.0, 1.0 + 2**-52], ref.make_params(top_k=2, logit_bias={"0": 1e20}, temperature=1e20))
@example([1.7e308, -1.7e308, -1.7e308], ref.make_params(temperature=1e308, top_p=0.95))
@example([5e-324, 0.0, 1e-323], ref.make_params(temperature=1e300, top_k=1))
def test_what_is_kept_is_what_exact_arithmetic_keeps(row, fields):
    params = params_of(fields)
    x = ref.apply_penalties(row, fields, [0], [])
    assume(max(row) > -math.inf and -math.inf < max(x) < math.inf)
    expected = exact_law(x, fields)
    assume(expected is not None)
    p = dense_distribution(row, params, [0], [])
    assert p.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize(
    ("row", "changes", "kept"),
    [
        ([1.0, 1e-20, 2e-20], {"top_k": 2}, [0, 2]),
        ([1.0, 1e-20, 2e-20], {"top_p": 0.6}, [0, 2]),
        ([1e-20, 1.0, 2e-20], {"top_k": 2, "temperature": 0.5}, [1, 2]),
        ([1.0, 2.0, 2.0 + 2**-50, 0.5], {"top_k": 2, "logit_bias": {"0": 1e20}, "temperature": 1e20}, [0, 2]),
        ([0.0, 1.0, 1.0 + 2**-52], {"top_k": 2, "temperature": 1e300}, [1, 2]),
        ([0.0, 5e-324, 1e-323], {"top_k": 1, "temperature": 1e300}, [2]),
        ([-math.inf, 2.0, 2.0], {"top_k": 1}, [1]),
        ([0.0, -0.0, 0.0], {"top_k": 2}, [0, 1]),
    ],
)
def test_hand_example(row, changes, kept):
    p = dense_distribution(np.array(row), params_of(ref.make_params(**changes)), [0], [])
    assert np.flatnonzero(p).tolist() == kept


def test_verification_draws_from_what_is_kept():
    """Of two tokens that only their order tells apart, the worse one is never emitted, whatever is drafted."""
    rows = np.array([[1.0, 1e-20, 2e-20]] * 2, np.float32)
    seen = set()
    for seed in range(64):
        verified = verify_draft(rows, [1], None, SamplingParams(top_k=2), [0], [], ref.Pcg32(seed))
        seen.update(verified.tokens)
    assert seen == {0, 2}


@pytest.mark.parametrize("num_tied", [3, 600, 5000])
def test_a_wide_row_with_ties_at_every_cut(num_tied):
    """More ids tie than a first guess at the nucleus holds: the lowest of them are kept."""
    row = np.zeros(6000, np.float32)
    row[1000 : 1000 + num_tied] = 1e-20
    p = dense_distribution(row, SamplingParams(top_p=0.2501, top_k=5900), [0], [])
    first = list(range(1000, 1000 + num_tied))
    rest = [token for token in range(6000) if not 1000 <= token < 1000 + num_tied]
    assert np.flatnonzero(p).tolist() == sorted((first + rest)[:1476])

"""From a row to a distribution and from a distribution to a token: the edges that vectors alone do not name."""

import math

import numpy as np
import pytest
from hypothesis import given, settings

from spec import (
    Pcg32,
    SamplingParams,
    SpecError,
    apply_penalties,
    argmax,
    dense_distribution,
    sample,
    sample_dense,
    stream,
)
from spec.distribution import sample_each
from tests import reference as ref
from tests.spec.strategies import one_round
from tests.spec.targets import params_of


@settings(max_examples=100)
@given(one_round())
def test_distribution_matches_reference(case):
    row, params = np.array(case.rows[0], np.float32), params_of(case.params)
    x = apply_penalties(row, params, case.prompt, case.output)
    p = dense_distribution(row, params, case.prompt, case.output)
    assert x.dtype == p.dtype == np.float64
    expected = ref.apply_penalties(case.rows[0], case.params, case.prompt, case.output)
    assert x.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    expected = ref.distribution(case.rows[0], case.params, case.prompt, case.output)
    assert p.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("sharp", [0.0, 0.2, 3.0, 40.0])
def test_a_wide_row_is_cut_like_a_narrow_one(sharp):
    """Flat rows have a nucleus of most ids, sharp ones of a few; steps of 1/4 make ties at every cut."""
    row = [round(4 * logit) / 4 for logit in ref.fake_row({"seed": 5, "order": 1, "vocab": 1500, "sharp": sharp}, [1])]
    for changes in (
        {"top_p": 0.5003},
        {"top_p": 0.9703},
        {"top_k": 700, "top_p": 0.9003},
        {"top_k": 40},
        {"min_p": 0.3},
    ):
        fields = ref.make_params(**changes)
        p = dense_distribution(np.array(row, np.float32), params_of(fields), [0], [])
        expected = ref.distribution(row, fields, [0], [])
        assert np.flatnonzero(p).tolist() == [token for token, mass in enumerate(expected) if mass]
        assert p.tolist() == pytest.approx(expected, rel=1e-9)


def test_row_is_left_as_it_was():
    row = np.array([0.5, 1.5, -1.0], np.float32)
    params = SamplingParams(temperature=0.5, top_k=2, frequency_penalty=1.0, logit_bias={0: 2.0})
    apply_penalties(row, params, [1], [2])
    dense_distribution(row, params, [1], [2])
    sample(row, params, [1], [2], Pcg32(1))
    assert row.tolist() == [0.5, 1.5, -1.0]


def test_ties_go_to_the_lowest_id():
    assert argmax(np.array([1.0, 3.0, 3.0, 3.0], np.float32)) == 1
    row = np.array([2.0, 2.0, 1.0, 2.0], np.float32)
    assert dense_distribution(row, SamplingParams(temperature=0), [], []).tolist() == [1, 0, 0, 0]
    assert dense_distribution(row, SamplingParams(top_k=2), [], []).tolist() == [0.5, 0.5, 0, 0]
    assert dense_distribution(row, SamplingParams(top_p=0.25), [], []).tolist() == [1, 0, 0, 0]


def test_top_p_keeps_an_id_while_the_mass_before_it_is_below():
    row = np.zeros(4, np.float32)
    for top_p, kept in [(0.25, 1), (0.2500001, 2), (0.5, 2), (0.51, 3), (0.76, 4), (1.0, 4)]:
        assert np.count_nonzero(dense_distribution(row, SamplingParams(top_p=top_p), [], [])) == kept


def test_top_p_counts_mass_after_top_k():
    row = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32))
    p = dense_distribution(row, SamplingParams(top_k=2, top_p=0.57), [], [])  # 0.4 of 0.7 is 0.571
    assert p.tolist() == [1, 0, 0, 0]


def test_sample_dense_skips_what_has_no_mass():
    """A uniform of exactly 0 does not draw an id of probability 0; the one just below 1 does not run off the end."""
    assert sample_dense(np.array([0.0, 0.5, 0.5, 0.0]), 0.0) == 1
    assert sample_dense(np.array([0.0, 0.5, 0.5, 0.0]), 0.5) == 2
    assert sample_dense(np.array([0.5, 0.4999999, 0.0]), 1 - 2**-32) == 1
    assert sample_dense(np.array([0.25, 0.25, 0.5]), 0.25) == 1


def test_sampling_draws_once_and_greedy_never():
    row = np.array([0.5, 1.5, 1.0], np.float32)
    rng, again = stream(7, 2), stream(7, 2)
    assert sample(row, SamplingParams(temperature=0), [0], [], rng) == 1
    assert rng.state == again.state
    u = again.next_f64()
    assert sample(row, SamplingParams(), [0], [], rng) == sample_dense(
        dense_distribution(row, SamplingParams(), [0], []), u
    )
    assert rng.state == again.state


REFUSED = [
    ("temperature", -0.1), ("temperature", math.inf), ("temperature", math.nan), ("top_k", -1), ("top_p", 0.0),
    ("top_p", 1.01), ("top_p", math.nan), ("min_p", -0.01), ("min_p", 1.5), ("repetition_penalty", 0.0),
    ("repetition_penalty", -1.0), ("presence_penalty", 2.1), ("presence_penalty", -2.1), ("frequency_penalty", 2.1),
    ("frequency_penalty", -2.1), ("frequency_penalty", math.nan),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), REFUSED)
def test_refused_parameters_name_field_and_value(field, value):
    with pytest.raises(SpecError, match=field) as refused:
        SamplingParams(**{field: value})
    assert str(value) in str(refused.value)


def test_edges_of_the_allowed_are_allowed():
    for field, value in [("temperature", 0), ("top_p", 1.0), ("top_p", 1e-9), ("min_p", 0.0), ("min_p", 1.0)]:
        SamplingParams(**{field: value})
    for value in (-2, 2):
        SamplingParams(presence_penalty=value, frequency_penalty=value)


def test_params_do_not_change():
    with pytest.raises(AttributeError):
        SamplingParams().temperature = 2.0


@pytest.mark.parametrize("params", [SamplingParams(logit_bias={4: 1.0}), SamplingParams(stop_token_ids=(9,))])
@pytest.mark.parametrize("function", [apply_penalties, dense_distribution])
def test_ids_out_of_the_vocabulary_are_refused(function, params):
    with pytest.raises(SpecError, match=r"4|9"):
        function(np.zeros(4, np.float32), params, [0], [])


@pytest.mark.parametrize("bad", [[0.0, math.nan, 1.0], [0.0, math.inf, 1.0], [-math.inf] * 3, []])
@pytest.mark.parametrize("temperature", [0, 0.5, 1.0])
def test_rows_without_a_distribution_are_refused(bad, temperature):
    params, rng = SamplingParams(temperature=temperature), Pcg32(3)
    state = rng.state
    with pytest.raises(SpecError):
        dense_distribution(np.array(bad, np.float32), params, [0], [])
    with pytest.raises(SpecError):
        sample(np.array(bad, np.float32), params, [0], [], rng)
    with pytest.raises(SpecError):
        argmax(np.array(bad, np.float32))
    assert rng.state == state
    holes = np.array([-math.inf, 0.0, -math.inf], np.float32)
    assert dense_distribution(holes, params, [0], []).tolist() == [0, 1, 0]


@pytest.mark.parametrize("penalty", [1e-308, 1e308])
@pytest.mark.parametrize("temperature", [0.0, 1e-3, 1.0])
def test_a_penalty_past_the_largest_number_still_gives_a_distribution(penalty, temperature):
    params = SamplingParams(temperature=temperature, repetition_penalty=penalty)
    p = dense_distribution([30.0, -30.0, 25.0, 1.0], params, [0, 1, 2], [])
    assert p.sum() == pytest.approx(1.0)
    assert p.argmax() == (0 if penalty < 1 else 3)


@pytest.mark.parametrize("vocab", [4096, 4097, 4608, 5000, 8192])
def test_a_wide_law_is_sampled_as_a_narrow_one(vocab):
    """By dyadic masses, whose sums are exact: at every border of an interval, and on both sides of it."""
    dice = np.random.default_rng(vocab)
    p = np.zeros(vocab)
    ids = np.sort(dice.choice(vocab - 3, 64, replace=False))
    p[ids] = 1 / 64
    for i, token in enumerate(ids):
        for u in (i / 64, (i + 0.5) / 64, (i + 1) / 64 - 2**-32):
            assert sample_dense(p, u) == token
            assert sample_each(np.stack([p, p[::-1]]), [u, u])[0] == token
    p *= 1 - 2**-20  # rounding, or a law that was summed otherwise, leaves nothing for the last uniforms
    assert sample_dense(p, 1 - 2**-32) == ids[-1]
    assert sample_each(p[None], [1 - 2**-32]) == [ids[-1]]


def test_a_wide_law_is_sampled_as_the_reference_samples():
    dice = np.random.default_rng(3)
    p = dice.random(5000) ** 8
    p /= p.sum()
    for u in dice.random(200):
        assert sample_dense(p, u) == ref.sample_dense(p.tolist(), u)

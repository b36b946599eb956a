"""One round's verification against hand examples and the reference, and what it refuses."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec import Pcg32, SamplingParams, SpecError, residual, speculative_step, verify_draft
from tests import reference as ref
from tests.spec.strategies import one_round
from tests.spec.targets import params_of

GREEDY = SamplingParams(temperature=0)


class Scripted:
    """A generator that draws what it is told; `num_left` of them have not been drawn."""

    def __init__(self, *uniforms):
        self.uniforms = uniforms
        self.state = 0

    def next_f64(self):
        self.state += 1
        return self.uniforms[self.state - 1]

    @property
    def num_left(self):
        return len(self.uniforms) - self.state


def rows_with_best(*best, vocab=4):
    return np.eye(vocab, dtype=np.float32)[list(best)]


def rows_with_law(*laws):
    with np.errstate(divide="ignore"):
        return np.log(np.array(laws)).astype(np.float32)


@pytest.mark.parametrize(
    ("best", "draft", "tokens"),
    [
        ((1, 2, 3, 0), [1, 2, 3], [1, 2, 3, 0]),  # all accepted: the bonus token of the last row
        ((1, 2, 3, 0), [1, 0, 3], [1, 2]),  # the mismatch ends it, though the next one would agree
        ((2, 1, 1), [1, 1], [2]),  # the first draft is checked too
        ((3,), [], [3]),
    ],
)
def test_hand_example_greedy_verify(best, draft, tokens):
    rng = Scripted()
    verified = verify_draft(rows_with_best(*best), draft, None, GREEDY, [0], [], rng)
    assert list(verified.tokens) == tokens
    assert verified.n_accepted == len(tokens) - 1
    one_of_four = 1 - math.log(math.e + 3)
    assert list(verified.logprobs) == pytest.approx([one_of_four] * len(tokens), rel=1e-9)


def test_greedy_takes_the_lowest_of_equals():
    rows = np.array([[1, 1, 0], [0, 2, 2], [3, 3, 3]], np.float32)
    assert verify_draft(rows, [0, 2], None, GREEDY, [1, 1, 1], [], Scripted()).tokens == [0, 1]
    assert verify_draft(rows, [0, 1], None, GREEDY, [1, 1, 1], [], Scripted()).tokens == [0, 1, 0]


def test_greedy_penalties_see_what_this_round_accepted():
    rows = np.array([[0, 1, 2.5]] * 3, np.float32)
    params = SamplingParams(temperature=0, frequency_penalty=2.0)
    verified = verify_draft(rows, [2, 2], None, params, [0], [], Scripted())
    assert (list(verified.tokens), verified.n_accepted) == ([2, 1], 1)
    assert list(verified.logprobs) == pytest.approx([ref.logprob([0, 1, 2.5], 2), ref.logprob([0, 1, 2.5], 1)])


#    p = [.5, .3, .2], q = [.2, .6, .2]: id 1 is accepted below .3 / .6, and what is left to draw from is id 0
@pytest.mark.parametrize(
    ("x", "u_accept", "u_resample", "step"),
    [
        (1, 0.49, 0.9, (1, True)),
        (1, 0.51, 0.9, (0, False)),
        (0, 0.999, 0.0, (0, True)),
        (2, 0.999, 0.0, (2, True)),
    ],
)
def test_hand_example_sampled_step(x, u_accept, u_resample, step):
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.6, 0.2])
    assert residual(p, q).tolist() == [1, 0, 0]
    assert speculative_step(p, q, x, u_accept, u_resample) == step


def test_hand_example_sampled_round():
    p, q = [0.5, 0.3, 0.2], [0.2, 0.6, 0.2]
    rows = rows_with_law(p, p, [0.1, 0.2, 0.7])
    rng = Scripted(0.49, 0.1, 0.9, 0.1, 0.29)
    verified = verify_draft(rows, [1, 2], [q, q], SamplingParams(), [0], [], rng)
    assert (list(verified.tokens), verified.n_accepted, rng.num_left) == ([1, 2, 1], 2, 0)
    rng = Scripted(0.51, 0.1, 0.9)
    verified = verify_draft(rows, [1, 2], [q, q], SamplingParams(), [0], [], rng)
    assert (list(verified.tokens), verified.n_accepted, rng.num_left) == ([0], 0, 1)


def test_one_hot_drafts_resample_among_the_others():
    rows = rows_with_law([0.5, 0.25, 0.25], [0.2, 0.2, 0.6])
    for u_resample, token in [(0.0, 1), (0.49, 1), (0.51, 2), (0.99, 2)]:
        rng = Scripted(0.51, u_resample)
        verified = verify_draft(rows, [0], None, SamplingParams(), [0], [], rng)
        assert (list(verified.tokens), rng.num_left) == ([token], 0)
    assert verify_draft(rows, [0], None, SamplingParams(), [0], [], Scripted(0.49, 0.0, 0.3)).tokens == [0, 1]


def test_matching_draws_once_a_token():
    rows = rows_with_law([0.5, 0.25, 0.25], [0.2, 0.2, 0.6])
    for draft, uniforms, tokens in [([0], (0.4, 0.3), [0, 1]), ([0], (0.6,), [1]), ([1], (0.4,), [0])]:
        rng = Scripted(*uniforms)
        verified = verify_draft(rows, draft, None, SamplingParams(), [0], [], rng, verify="match")
        assert (list(verified.tokens), verified.n_accepted, rng.num_left) == (tokens, len(tokens) - 1, 0)


def test_a_uniform_of_zero_accepts_nothing_impossible():
    with_hole = rows_with_law([0.0, 0.5, 0.5], [1 / 3] * 3)
    for draft_probs in (None, [[0.5, 0.25, 0.25]]):
        verified = verify_draft(with_hole, [0], draft_probs, SamplingParams(), [0], [], Scripted(0.0, 0.0))
        assert (list(verified.tokens), verified.n_accepted) == ([1], 0)
    assert verify_draft(with_hole, [0], None, SamplingParams(), [0], [], Scripted(0.0), verify="match").tokens == [1]
    p = np.array([0.0, 0.5, 0.5])
    assert speculative_step(p, np.array([1.0, 0.0, 0.0]), 0, 0.0, 0.0) == (1, False)


def test_residual_without_mass_is_the_law_itself():
    p = np.array([0.25, 0.75])
    assert residual(p, p).tolist() == [0.25, 0.75]
    assert residual(np.array([0.0, 1.0]), np.array([0.0, 1.0])).tolist() == [0, 1]


@settings(max_examples=200)
@given(one_round(), st.integers(0, 2**64 - 1))
def test_verify_matches_reference(case, seed):
    rng, ref_rng = Pcg32(seed, 3), ref.Pcg32(seed, 3)
    verified = verify_draft(
        np.array(case.rows, np.float32),
        case.draft,
        case.draft_probs,
        params_of(case.params),
        case.prompt,
        case.output,
        rng,
        verify=case.verify,
    )
    tokens, logprobs, n_accepted = ref.verify_draft(
        case.rows, case.draft, case.draft_probs, case.params, case.prompt, case.output, ref_rng, case.verify
    )
    assert (list(verified.tokens), verified.n_accepted) == (tokens, n_accepted)
    assert list(verified.logprobs) == pytest.approx(logprobs, rel=1e-9, abs=1e-12)
    assert rng.state == ref_rng.state


OK_ROWS, OK_DRAFT, OK_PROBS = [[0.0, 1.0, 2.0]] * 3, [1, 2], [[0.25, 0.5, 0.25]] * 2
BAD_SHAPES = {
    "a row too few": (OK_ROWS[:2], OK_DRAFT, None),
    "a row too many": (OK_ROWS * 2, OK_DRAFT, None),
    "no rows": ([], OK_DRAFT, None),
    "no rows for no draft": ([], [], None),
    "unequal rows": ([[0.0, 1.0, 2.0], [0.0, 1.0], [0.0, 1.0, 2.0]], OK_DRAFT, None),
    "empty rows": ([[], [], []], OK_DRAFT, None),
    "id above the vocabulary": (OK_ROWS, [1, 3], None),
    "id below the vocabulary": (OK_ROWS, [-1, 1], None),
    "a law too few": (OK_ROWS, OK_DRAFT, OK_PROBS[:1]),
    "a law too many": (OK_ROWS, OK_DRAFT, OK_PROBS * 2),
    "laws for no draft": (OK_ROWS[:1], [], OK_PROBS),
    "a short law": (OK_ROWS, OK_DRAFT, [[0.5, 0.5]] * 2),
    "unequal laws": (OK_ROWS, OK_DRAFT, [[0.25, 0.5, 0.25], [0.5, 0.5]]),
    "a negative entry": (OK_ROWS, OK_DRAFT, [[0.25, 0.5, 0.25], [-0.25, 0.5, 0.75]]),
    "a nan entry": (OK_ROWS, OK_DRAFT, [[0.25, 0.5, 0.25], [math.nan, 0.5, 0.5]]),
    "an infinite entry": (OK_ROWS, OK_DRAFT, [[0.25, 0.5, 0.25], [0.25, 0.5, math.inf]]),
    "a sum above 1": (OK_ROWS, OK_DRAFT, [[0.25, 0.5, 0.25], [0.25, 0.5, 0.250003]]),
    "a sum below 1": (OK_ROWS, OK_DRAFT, [[0.25, 0.5, 0.25], [0.25, 0.5, 0.249997]]),
    "no mass at the drafted id": (OK_ROWS, OK_DRAFT, [[0.25, 0.5, 0.25], [0.5, 0.5, 0.0]]),
}


@pytest.mark.parametrize("temperature", [0, 1.0])
@pytest.mark.parametrize("bad", BAD_SHAPES.values(), ids=BAD_SHAPES)
def test_verify_rejects_bad_shapes(bad, temperature):
    rows, draft, draft_probs = bad
    rng = Pcg32(5)
    state = rng.state
    with pytest.raises(SpecError):
        verify_draft(rows, draft, draft_probs, SamplingParams(temperature=temperature), [0], [], rng)
    assert rng.state == state


def test_what_is_within_the_tolerance_is_taken():
    rng = Pcg32(5)
    verify_draft(OK_ROWS, OK_DRAFT, [[0.25, 0.5, 0.2500005]] * 2, SamplingParams(), [0], [], rng)
    verify_draft(OK_ROWS[:1], [], [], SamplingParams(), [0], [], rng)


@pytest.mark.parametrize("verify", ["resample", "match"])
@pytest.mark.parametrize("penalty", [0.0, 0.5])
@pytest.mark.parametrize("temperature", [0, 1.0])
@pytest.mark.parametrize("bad", [[0, math.nan, 0], [0, math.inf, 0], [-math.inf] * 3])
def test_a_bad_row_found_late_leaves_the_generator_where_it_was(bad, temperature, penalty, verify):
    rows = np.array([[-9, 30, -9], [-9, 30, -9], bad], np.float32)
    rng = Pcg32(5)
    state = rng.state
    params = SamplingParams(temperature=temperature, frequency_penalty=penalty)
    with pytest.raises(SpecError):
        verify_draft(rows, [1, 1], None, params, [0], [], rng, verify=verify)
    assert rng.state == state


@pytest.mark.parametrize("field", [{"logit_bias": {3: 1.0}}, {"stop_token_ids": (3,)}, {"stop_token_ids": (-1,)}])
@pytest.mark.parametrize("temperature", [0, 1.0])
def test_ids_out_of_the_vocabulary_are_refused(field, temperature):
    rng = Pcg32(5)
    state = rng.state
    with pytest.raises(SpecError, match=next(iter(field))):
        verify_draft(OK_ROWS, OK_DRAFT, None, SamplingParams(temperature=temperature, **field), [0], [], rng)
    assert rng.state == state


def test_matching_refuses_stochastic_drafts():
    rng = Pcg32(5)
    state = rng.state
    with pytest.raises(SpecError, match="match"):
        verify_draft(OK_ROWS, OK_DRAFT, OK_PROBS, SamplingParams(), [0], [], rng, verify="match")
    with pytest.raises(SpecError, match="sometimes"):
        verify_draft(OK_ROWS, OK_DRAFT, None, SamplingParams(), [0], [], rng, verify="sometimes")
    assert rng.state == state


@pytest.mark.parametrize(
    ("p", "q", "x", "u_accept", "u_resample"),
    [
        ([0.5, 0.5], [1.0], 0, 0.5, 0.5),
        ([], [], 0, 0.5, 0.5),
        ([0.5, 0.5], [0.5, 0.5], 2, 0.5, 0.5),
        ([0.5, 0.5], [0.5, 0.5], -1, 0.5, 0.5),
        ([0.5, 0.5], [0.0, 1.0], 0, 0.5, 0.5),
        ([0.5, 0.5], [0.5, 0.5], 0, 1.0, 0.5),
        ([0.5, 0.5], [0.5, 0.5], 0, -0.1, 0.5),
        ([0.5, 0.5], [0.5, 0.5], 0, 0.5, 1.0),
        ([0.5, 0.5], [0.5, 0.5], 0, 0.5, math.nan),
    ],
)
def test_step_rejects_what_it_cannot_take(p, q, x, u_accept, u_resample):
    with pytest.raises(SpecError):
        speculative_step(np.array(p), np.array(q), x, u_accept, u_resample)

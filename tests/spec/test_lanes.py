"""The lanes a request draws from: numbered, apart, and independent as a law."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec import Pcg32, SpecError, draft_stream, stream
from spec.rng import draws_ahead

NUM_SEEDS = 20_000
NUM_DRAWS = 6


def test_the_first_lane_is_the_seed_itself():
    assert stream(9).next_u32() == Pcg32(9, 0).next_u32()
    assert stream(2**64 - 1).next_u32() == Pcg32(2**64 - 1, 0).next_u32()


def test_what_a_draft_draws_is_numbered_between_the_choices():
    """Lane 1 is between choices 0 and 1: its increment says so."""
    lanes = [rng(9, choice) for choice in range(3) for rng in (stream, draft_stream)]
    assert [rng.inc >> 1 for rng in lanes] == [0, 1, 2, 3, 4, 5]
    assert len({tuple(rng.next_u32() for _ in range(4)) for rng in lanes}) == 6


@pytest.mark.parametrize("of", [stream, draft_stream])
@pytest.mark.parametrize(("seed", "choice"), [(-1, 0), (2**64, 0), (1, -1)])
def test_a_lane_that_is_none_is_refused(of, seed, choice):
    with pytest.raises(SpecError):
        of(seed, choice)


@given(st.lists(st.tuples(*[st.integers(0, 2**64 - 1)] * 2)), st.integers(0, 30))
def test_draws_foreseen_are_the_draws_that_come(streams, num_draws):
    rngs = [Pcg32.at(state, inc | 1) for state, inc in streams]
    draws, states = draws_ahead(rngs, num_draws)
    assert [rng.state for rng in rngs] == [state for state, _ in streams], "looking ahead moves nothing"
    for rng, own_draws, own_states in zip(rngs, draws.tolist(), states.tolist(), strict=True):
        for draw, state in zip(own_draws, own_states, strict=False):
            assert rng.state == state
            assert rng.next_f64() == draw
        assert rng.state == own_states[-1]


def test_lanes_of_one_seed_are_independent():
    """At equal positions two lanes agree on a flat token of four as often as chance has it, over many seeds.

    Streams that differ in their increment alone agreed on the second with probability 0.203; 0.25 is 15 standard
    deviations away from that.
    """
    tokens = np.array(
        [
            [[int(4 * rng.next_f64()) for _ in range(NUM_DRAWS)] for rng in (stream(s), draft_stream(s), stream(s, 1))]
            for s in range(NUM_SEEDS)
        ]
    )
    deviation = (0.25 * 0.75 / NUM_SEEDS) ** 0.5
    for one, other in combinations(range(3), 2):
        agreement = (tokens[:, one] == tokens[:, other]).mean(axis=0)
        assert np.abs(agreement - 0.25).max() < 4.5 * deviation, (one, other, agreement)
        shifted = (tokens[:, one, 1:] == tokens[:, other, :-1]).mean(axis=0)
        assert np.abs(shifted - 0.25).max() < 4.5 * deviation, (one, other, shifted)


def test_lanes_of_neighbouring_seeds_are_independent():
    """Seeds that clients count up do not share draws across lanes either."""
    tokens = np.array([[int(4 * rng.next_f64()) for rng in (stream(s), stream(s, 1))] for s in range(NUM_SEEDS)])
    deviation = (0.25 * 0.75 / NUM_SEEDS) ** 0.5
    assert abs((tokens[1:, 0] == tokens[:-1, 1]).mean() - 0.25) < 4.5 * deviation
    assert abs((tokens[1:, 1] == tokens[:-1, 0]).mean() - 0.25) < 4.5 * deviation

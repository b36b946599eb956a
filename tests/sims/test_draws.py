"""Lengths, prompts, arrivals: what is drawn is what was asked for."""

from itertools import islice

import numpy as np
import pytest

from sims.arrivals import Open
from sims.errors import SimError
from sims.leaving import POINTS, WAYS, Leaving
from sims.lengths import Lengths
from sims.prompts import Prompts


@pytest.mark.parametrize("text", ["64", "16-256", "lognormal:128:0.8", "1-1"])
def test_lengths_are_read_and_written_alike(text):
    lengths = Lengths.parse(text)
    assert Lengths.parse(str(lengths)) == lengths


@pytest.mark.parametrize(
    "text", ["", "0", "a", "5-2", "-3", "lognormal:8", "lognormal:0:1", "lognormal:8:-1", "1.5", "3-"]
)
def test_bad_lengths_are_refused_with_what_is_allowed(text):
    with pytest.raises(SimError, match=r"LOW-HIGH"):
        Lengths.parse(text)


def test_lengths_follow_their_distribution():
    rng = np.random.default_rng(1)
    uniform = [Lengths.parse("3-7").draw(rng) for _ in range(5000)]
    assert sorted(set(uniform)) == [3, 4, 5, 6, 7]
    assert np.mean(uniform) == pytest.approx(5, abs=0.1)
    lognormal = [Lengths.parse("lognormal:100:0.5").draw(rng) for _ in range(5000)]
    assert np.median(lognormal) == pytest.approx(100, rel=0.05)
    assert np.std(np.log(lognormal)) == pytest.approx(0.5, rel=0.05)
    assert min(lognormal) >= 1
    assert max(lognormal) <= 1600


@pytest.mark.parametrize("burstiness", [0.0, 0.5, 1.0, 3.0])
def test_open_arrivals_have_their_rate_and_burstiness(burstiness):
    times = list(islice(Open(50.0, burstiness).times_s(np.random.default_rng(2)), 40000))
    gaps = np.diff(times)
    assert 1 / gaps.mean() == pytest.approx(50, rel=0.1)
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness, rel=0.1, abs=1e-9)


def repeated(prompt):
    """Share of a prompt's trigrams that occurred before in it."""
    seen, count = set(), 0
    for i in range(len(prompt) - 2):
        trigram = tuple(prompt[i : i + 3])
        count += trigram in seen
        seen.add(trigram)
    return count / (len(prompt) - 2)


def test_repetition_is_tunable():
    shares = []
    for repetition in (0.0, 0.5, 0.9):
        rng = np.random.default_rng(3)
        prompts = Prompts(repetition=repetition, shared_rate=0.0)
        shares.append(np.mean([repeated(prompts.draw(rng, 300, 1000, 0)) for _ in range(20)]))
    assert shares[0] < 0.01
    assert 0.2 < shares[1] < 0.6 < shares[2]


def test_shared_texts_are_shared_and_leave_a_token_of_their_own():
    rng = np.random.default_rng(4)
    prompts = Prompts(shared_rate=1.0, shared_tokens=32, num_shared=3)
    drawn = [prompts.draw(rng, 40, 1000, 9) for _ in range(60)]
    assert len({tuple(p[:32]) for p in drawn}) == 3
    assert len({tuple(p) for p in drawn}) > 50
    short = [prompts.draw(rng, 8, 1000, 9) for _ in range(60)]
    assert {tuple(p[:7]) for p in short} == {tuple(p[:7]) for p in drawn}
    none = [Prompts(shared_rate=0.0).draw(rng, 40, 1000, 9) for _ in range(60)]
    assert len({tuple(p[:4]) for p in none}) > 50


@pytest.mark.parametrize("num_tokens", [1, 2, 31, 500])
def test_prompts_have_their_length_and_stay_in_the_vocabulary(num_tokens):
    prompt = Prompts(shared_rate=1.0).draw(np.random.default_rng(5), num_tokens, 7, 0)
    assert len(prompt) == num_tokens
    assert set(prompt) <= set(range(7))


def test_clients_leave_at_their_rate_and_in_every_way():
    rng = np.random.default_rng(6)
    drawn = [Leaving(cancel_rate=0.3).draw(rng, 10) for _ in range(4000)]
    leaves = [leave for leave in drawn if leave is not None]
    assert len(leaves) / 4000 == pytest.approx(0.3, abs=0.03)
    assert {(leave.point, leave.way) for leave in leaves} == {(p, w) for p in POINTS for w in WAYS}
    assert {leave.num_tokens for leave in leaves} == set(range(1, 11))


def test_the_rate_of_leaving_does_not_move_the_other_draws():
    one, other = np.random.default_rng(7), np.random.default_rng(7)
    for _ in range(50):
        Leaving(cancel_rate=0.0).draw(one, 10)
        Leaving(cancel_rate=1.0).draw(other, 10)
    assert one.random() == other.random()

"""Speed-ups worked by hand, sums with their resamples, and rates that are given."""

import numpy as np
import pytest

from plans.errors import PlanError
from plans.gain import Given, check_batches, plain_s, speedups
from plans.logs import Recording
from plans.replay import NUM_LENGTHS
from plans.tally import NUM_RESAMPLES, Tally, interval


class Line:
    """A pass of n rows takes 1 + n / 10 seconds, and a sequence's context a thousandth for each token."""

    def pass_s(self, num_rows, batch, context):
        return 1 + num_rows / 10 + batch * context / 1000

    def explain(self):
        return ["line"]


def rounds_of(drafted, accepted):
    found = np.zeros((1, 2, NUM_LENGTHS))
    found[0, 0, : len(drafted)] = drafted
    found[0, 1, : len(accepted)] = accepted
    return found


def test_a_speedup_is_tokens_a_round_times_the_plain_pass_over_the_round():
    #   6 rounds draft nothing, 4 draft 2, of which all are accepted: 18 tokens in 10 rounds
    rounds = rounds_of([6, 0, 4], [6, 0, 4])
    alone = speedups(rounds, np.array(18.0), np.array([0.0]), Line(), 1, 0)
    assert alone[0] == pytest.approx(1.8 * 1.1 / (0.6 * 1.1 + 0.4 * 1.3))
    #   in a batch of 10, 18 rows a pass; the draft takes 1 ms for each sequence
    many = speedups(rounds, np.array(18.0), np.array([0.01]), Line(), 10, 100)
    assert plain_s(Line(), 10, 100) == pytest.approx(3)
    assert many[0] == pytest.approx(1.8 * 3 / (1 + 1.8 + 1 + 0.01))


def test_given_rates_are_of_tokens_whose_forerunners_were_accepted():
    given = Given.parse("eagle3=0.8,0.5@0.1")
    assert given == Given("eagle3", (0.8, 0.5), 0.1)
    assert given.tokens_per_round(1) == pytest.approx(1.8)
    assert given.tokens_per_round(2) == pytest.approx(2.2)
    assert given.speedup(2, Line(), 1, 0) == pytest.approx(2.2 * 1.1 / (1.3 + 0.22))


@pytest.mark.parametrize("text", ["eagle3", "=0.5", "x=", "x=0.5,", "x=1.5", "x=-1", "x=nan", "x=0.5@-1", "x=0.5@nan"])
def test_rates_that_are_none_are_refused(text):
    with pytest.raises(PlanError, match="acceptance"):
        Given.parse(text)


def log(num, seed=0):
    rng = np.random.default_rng(seed)
    for number in range(num):
        n = int(rng.integers(1, 50))
        rounds = rng.integers(0, 20, (3, 2, NUM_LENGTHS))
        yield number, Recording(np.zeros(10 + n, np.int64), 10, None), rounds


def test_parts_of_a_log_add_up_to_the_whole_to_the_last_bit():
    whole, parts = Tally(), [Tally(), Tally(), Tally()]
    for number, recording, rounds in log(200):
        whole.add(number, recording, rounds)
        parts[number // 70].add(number, recording, rounds)
    parts[1].merge(parts[2])
    parts[0].merge(parts[1])
    assert (parts[0].rounds == whole.rounds).all()
    assert (parts[0].tokens == whole.tokens).all()
    assert parts[0].mean_context == whole.mean_context
    assert parts[0].num_requests == whole.num_requests == 200


def test_sums_are_of_the_log_and_resamples_have_its_mean():
    tally, tokens, total, context = Tally(), 0, 0, 0
    for number, recording, rounds in log(500):
        tally.add(number, recording, rounds)
        tokens += recording.num_completion
        total = total + rounds
        context += sum(10 + i for i in range(recording.num_completion))
    assert tally.tokens[0] == tally.num_tokens == tokens
    assert (tally.rounds[0] == total).all()
    assert tally.mean_context == context / tokens
    assert tally.rounds.shape == (NUM_RESAMPLES + 1, 3, 2, NUM_LENGTHS)
    assert abs(tally.tokens[1:].mean() / tokens - 1) < 0.02
    assert tally.tokens[1:].std() > 0.02 * tokens


def test_an_interval_holds_the_mean_of_what_it_is_drawn_from_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    num_held = 0
    for _ in range(200):
        tally = Tally()
        for number, n in enumerate(rng.geometric(0.05, 60)):
            tally.add(number + 64 * int(rng.integers(1000)), Recording(np.zeros(n), 0, None), np.ones((1, 2, 17)))
        per_request = tally.tokens / tally.rounds[:, 0, 0, 0]
        low, high = interval(per_request[1:], 60)
        num_held += low <= 20 <= high
    assert 170 <= num_held <= 200


def test_of_one_request_nothing_is_known_of_others():
    assert interval(np.ones(NUM_RESAMPLES), 1) is None
    assert interval(np.arange(200.0), 9) == pytest.approx((4.975, 194.025))


def test_batches_are_checked():
    assert check_batches([4, 1, 4]) == [1, 4]
    with pytest.raises(PlanError, match="batch 0"):
        check_batches([0])

"""A choice under load: times that can be worked out by hand, and what clients get of both ways at any rate."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from cli.main import main
from plans.errors import PlanError
from plans.load import Choice, Load, answer_load, take_requests
from plans.logs import Log, Recording
from plans.methods import methods
from plans.plan import Asked, make_plan
from plans.tokens import Words
from sims.service import Speculating, Targets
from tests.plans.test_plan import write

LOOKUP = methods()["lookup"].config(4)
CYCLE = [1, 2, 3, 4, 5]


class PerPass:
    """Seconds a pass, a row more than one, a further sequence, and a token of context."""

    def __init__(self, pass_s=1.0, row_s=0.0, sequence_s=0.0, token_s=0.0):
        self.of = pass_s, row_s, sequence_s, token_s

    def pass_s(self, num_rows, batch, context):
        pass_s, row_s, sequence_s, token_s = self.of
        return pass_s + row_s * (num_rows - 1) + sequence_s * (batch - 1) + token_s * batch * context

    def explain(self):
        return ["a pass"]


def recording(prompt, completion):
    return Recording(np.array([*prompt, *completion], np.int64), len(prompt), None)


TARGETS = Targets(500.0, 50.0)


def load(rates=(0.001,), times_s=None, seed=0, targets=TARGETS):
    return Load(rates, times_s, 100, seed, targets)


def served(recordings, cost, how, *, draft_s=0.0, is_adaptive=False, speculative=LOOKUP):
    choice = Choice(Speculating(speculative, is_adaptive, draft_s), 1, 10.0)
    return answer_load(recordings, choice, cost, how, lambda what, num: None)


def odd(num, length=6):
    """Requests in which nothing repeats itself."""
    return [recording([100 * i + j for j in range(8)], [100 * i + 50 + j for j in range(length)]) for i in range(num)]


def test_alone_a_request_takes_its_passes_and_no_more():
    cost = PerPass(1.0, row_s=0.01, token_s=0.001)
    (answer,) = served(odd(2), cost, load(times_s=[0.0, 1000.0]))
    first_s = 1.0 + 7 * 0.01  # the prompt, nothing before it
    tpots_s = [1.0 + 0.001 * context for context in range(8, 13)]
    assert answer.rate is None
    assert answer.plain.ttft_ms.p50 == pytest.approx(1e3 * first_s)
    assert answer.plain.tpot_ms.p50 == pytest.approx(1e3 * np.mean(tpots_s))
    assert answer.plain.itl_ms.p50 == pytest.approx(1e3 * np.median(tpots_s))
    assert answer.plain.mean_e2e_ms == pytest.approx(1e3 * (first_s + sum(tpots_s)))
    assert answer.plain.tokens_per_s == pytest.approx(12 / (1000 + first_s + sum(tpots_s)))
    assert answer.plain.mean_batch == 1
    assert answer.speed == pytest.approx(1.0), "no draft was made"


def test_requests_at_once_share_their_passes():
    cost = PerPass(1.0, sequence_s=0.25)
    (answer,) = served(odd(3), cost, load(times_s=[0.0, 0.0, 0.0]))
    assert answer.plain.tpot_ms.p99 == pytest.approx(1500)
    assert answer.plain.mean_batch == pytest.approx(3)
    assert answer.plain.tokens_per_s == pytest.approx(18 / (6 * 1.5))


def test_drafts_that_come_true_answer_sooner_and_cost_their_time():
    cyclic = [recording([i, *CYCLE * 3], CYCLE * 4) for i in (90, 91)]
    free, paid = (served(cyclic, PerPass(), load(times_s=[0.0, 500.0]), draft_s=each)[0] for each in (0.0, 0.5))
    assert free.plain == paid.plain
    assert free.drafted.mean_e2e_ms == pytest.approx(4e3), "20 tokens, five a round"
    assert free.speed == pytest.approx(5.0)
    assert paid.drafted.mean_e2e_ms == pytest.approx(4e3 + 4 * 500)
    assert free.drafted.itl_ms.p50 == pytest.approx(1e3), "those of a round arrive together"


def test_adaptive_drafts_are_cut_to_what_pays():
    """After each 1 lookup goes on with 2, and the answer with another token."""
    misleading = [recording([90 + i, *CYCLE * 3], [1, 50, 1, 51, 1, 52, 1, 53] * 3) for i in range(2)]
    dear = PerPass(0.001, row_s=1.0)
    fixed, adaptive = (
        served(misleading, dear, load(times_s=[0.0, 500.0]), is_adaptive=is_adaptive)[0]
        for is_adaptive in (False, True)
    )
    assert fixed.plain == adaptive.plain
    assert adaptive.drafted.mean_e2e_ms < 0.7 * fixed.drafted.mean_e2e_ms


def test_good_is_what_keeps_both_targets():
    times_s = [0.0, 0.5, 100.0, 200.0]  # the second waits half a pass more for its first token
    how = load(times_s=times_s, targets=Targets(1100, 1100))
    (answer,) = served(odd(4), PerPass(), how)
    assert answer.plain.good_share == 0.75
    assert answer.plain.goodput_per_s == pytest.approx(3 / 206)
    (slow,) = served(odd(4), PerPass(), how._replace(targets=Targets(1100, 900)))
    assert slow.plain.good_share == 0


def test_the_same_seed_is_the_same_arrivals_and_more_a_second_wait_longer():
    def at(**how):
        return served(odd(60), PerPass(0.01, sequence_s=0.01), load(**how))

    assert at(rates=[1.0, 9.0]) == at(rates=[1.0, 9.0]) != at(rates=[1.0, 9.0], seed=1)
    calm, busy = at(rates=[1.0, 9.0])
    assert (calm.rate, busy.rate) == (1.0, 9.0)
    assert calm.plain.mean_batch < busy.plain.mean_batch
    assert calm.plain.tpot_ms.p50 < busy.plain.tpot_ms.p50


def test_requests_are_taken_that_can_be_served_beside_each_other():
    one, other = recording([1, 2], [3, 4, 5]), recording([1, 2], [3, 9])
    further = recording([1, 2, 3, 4, 5, 6], [7])
    unasked = recording([], [1, 2])
    assert take_requests([one, one, unasked, other, further], 9) == ([one, one, further], 2)
    assert take_requests([one, further, unasked], 2) == ([one, further], 0)
    with pytest.raises(PlanError, match="load: 1 requests of the log can be served beside each other: at least 2"):
        served([one], PerPass(), load())


@pytest.fixture
def log_file(tmp_path):
    rows = [
        {"prompt": f"w{i} a b c d e a b c d e", "completion": "a b c d e a b c d e a b c d e" if i % 2 else f"x{i} y z"}
        for i in range(8)
    ]
    return write(tmp_path / "log.jsonl", *rows)


def test_a_plan_says_what_becomes_of_its_recommendation(log_file):
    chosen = [methods()[name] for name in ("lookup", "ngram")]
    asked = Asked(chosen, [2, 6], [], PerPass(row_s=0.02), [1, 8], 1, load=load(rates=[0.01, 0.3]))
    answer = make_plan(Log([log_file], None, Words(), None), asked)
    assert answer.load.is_recommended
    assert answer.load.choice.startswith(f"{answer.recommendation.method} {answer.recommendation.size}")
    assert [each.rate for each in answer.load.answers] == [0.01, 0.3]
    assert all(each.num_requests == 8 and each.speed > 1.2 for each in answer.load.answers)
    dear = asked._replace(cost=PerPass(0.001, row_s=1.0))
    against = make_plan(Log([log_file], None, Words(), None), dear)
    assert against.recommendation.method is None
    assert not against.load.is_recommended
    assert against.load.choice


def run(*args):
    return CliRunner().invoke(main, ["plan", *map(str, args)])


def test_the_command_serves_at_every_rate_and_writes_what_it_found(log_file, tmp_path):
    found = run(log_file, "--rate", "5", "--rate", "0.5", "--html", tmp_path / "p.html", "--json", tmp_path / "p.json")
    assert found.exit_code == 0, found.output
    assert "under load: plain and" in found.output
    told = json.loads((tmp_path / "p.json").read_text())["load"]
    assert [each["rate"] for each in told["answers"]] == [0.5, 5.0]
    assert "Under load" in (tmp_path / "p.html").read_text()
    without = run(log_file, "--json", "-")
    assert json.loads(without.output)["load"] is None


def test_requests_come_at_the_times_of_a_trace(log_file, tmp_path):
    rows = [{"timestamp": 2000 * i, "input_length": 5, "output_length": 5, "hash_ids": [i]} for i in range(5)]
    found = run(log_file, "--trace", write(tmp_path / "t.jsonl", *rows), "--json", "-")
    assert found.exit_code == 0, found.output
    (answer,) = json.loads(found.output)["load"]["answers"]
    assert (answer["rate"], answer["num_requests"]) == (None, 5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--rate", "0"], "0 is not in the range x>0"),
        (["--rate", "1", "--trace", "LOG"], "--trace takes the place of --rate"),
        (["--load-requests", "9"], "--load-requests has no effect here: it needs --rate or --trace"),
        (["--slo-tpot", "9"], "--slo-tpot has no effect here"),
        (["--seed", "9"], "--seed has no effect here: it needs --target or --rate"),
        (["--trace", "LOG"], "it may be a recording of conversations"),
    ],
)
def test_what_load_may_be(log_file, options, words):
    found = run(log_file, *(str(log_file) if option == "LOG" else option for option in options))
    assert found.exit_code != 0
    assert words in " ".join(found.output.split())

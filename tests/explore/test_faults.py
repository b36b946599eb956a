"""Each fault: streams go on with exactly the tokens they would have had, or end with an error; the pool is whole.

That and everything else is what a run checks; here it is seen that the fault strikes, and what becomes of the streams.
"""

import io

import pytest
from click.testing import CliRunner

from cli.main import main
from scheduler import EngineConfig, Request
from sims.arrivals import Closed
from sims.config import SimConfig
from sims.errors import SimError
from sims.explore.loop import ExploringLoop
from sims.explore.run import choose_by, run, run_on
from sims.explore.scenario import Client, Fault, Scenario
from sims.explore.watch import Watch
from sims.faults import KINDS, Rates
from sims.lengths import Lengths
from sims.simulate import simulate
from sims.timeline import Timeline
from spec import SamplingParams, SpecConfig

SURVIVED = ("raise", "raise_late", "hang", "die_runner")


def engine(**changes):
    fields = {
        "num_blocks": 12,
        "block_tokens": 4,
        "max_batch_tokens": 12,
        "max_model_len": 32,
        "speculative": SpecConfig.parse("prompt_lookup", 3),
        "pass_timeout_s": 0.01,
        "max_restarts": 100,
    }
    return EngineConfig(**(fields | changes))


def crowd(temperature=1.0):
    return [
        Client(
            request=Request(
                prompt=[i % 3, 1, 0, 1, 0], max_tokens=9, seed=i, params=SamplingParams(temperature), verify=verify
            )
        )
        for i, verify in enumerate(["resample", "match"] * 2)
    ]


@pytest.mark.parametrize("kind", SURVIVED)
@pytest.mark.parametrize("nth", range(4))
def test_streams_go_on_as_if_nothing_had_been(kind, nth):
    scenario = Scenario(engine=engine(), clients=crowd(), faults=[Fault(kind, nth)], order=nth)
    outcome = run(scenario)
    assert outcome.violation is None
    assert outcome.coverage.faults == {kind: 1}
    assert outcome.coverage.ends == {"length": 4}


@pytest.mark.parametrize("kind", sorted(set(KINDS) - set(SURVIVED)))
def test_streams_end_with_an_error_and_new_ones_are_served(kind):
    again = Request(prompt=[1, 2], max_tokens=3)
    clients = [Client(request=client.request, again=again) for client in crowd()]
    outcome = run(Scenario(engine=engine(), clients=clients, faults=[Fault(kind, 5)], order=1))
    assert outcome.violation is None
    assert outcome.coverage.faults == {kind: 1}
    assert outcome.coverage.ends["error"] == 4
    assert outcome.coverage.ends["length"] == 4


@pytest.mark.parametrize("kind", KINDS)
def test_past_the_intensity_every_stream_ends_with_an_error(kind):
    outcome = run(Scenario(engine=engine(max_restarts=0), clients=crowd(), faults=[Fault(kind, 0)], order=2))
    assert outcome.violation is None
    assert outcome.coverage.faults["given_up"] >= 1
    assert set(outcome.coverage.ends) <= {"error"}


@pytest.mark.parametrize("kind", KINDS)
def test_restarts_of_the_runner_are_counted_and_no_others(kind):
    """One for each crash of its own, however many sequences start over, idle or not; none where another actor dies."""
    faults = [Fault(kind, nth) for nth in (0, 3, 5)]
    scenario = Scenario(engine=engine(), clients=crowd(), faults=faults, order=3)
    watch = Watch(scenario)
    assert run_on(ExploringLoop(choose_by(scenario)), scenario, watch) is None
    num_struck = watch.coverage.faults[kind]
    assert num_struck >= 1
    assert watch.insides.scheduler.load().counters.num_restarts == (num_struck if kind in SURVIVED else 0)


@pytest.mark.parametrize("nth", range(0, 20, 3))
def test_out_of_blocks_at_any_allocation(nth):
    outcome = run(Scenario(engine=engine(), clients=crowd(), faults=[Fault("out_of_blocks", nth)], order=nth))
    assert outcome.violation is None
    assert outcome.coverage.faults == ({"out_of_blocks": 1} if outcome.coverage.ends.get("error") else {})


def test_others_go_on_while_one_stops_reading_for_ever():
    greedy = SamplingParams(temperature=0.0)
    stuck = Client(request=Request(prompt=[1, 0, 1], max_tokens=20, params=greedy), reads=1)
    scenario = Scenario(engine=engine(stream_tokens=4, num_blocks=6), clients=[stuck, *crowd()], order=3)
    outcome = run(scenario)
    assert outcome.violation is None
    assert outcome.coverage.ends == {"length": 4, "cancelled": 1}
    assert outcome.coverage.pairs["preempted Stop"] == 1  # it was made to give up its place


def test_a_row_of_nan_ends_one_stream_only():
    outcome = run(Scenario(engine=engine(), clients=crowd(), bad_rows=[4], order=4))
    assert outcome.violation is None
    assert outcome.coverage.ends == {"length": 3, "error": 1}


def test_the_engine_can_be_closed_at_any_message_of_a_stream_that_fails():
    seen = set()
    for number in range(1, 12):
        for order in range(12):
            outcome = run(
                Scenario(engine=engine(), clients=crowd()[:1], bad_rows=[0, 1], order=order, close_at_message=number)
            )
            assert outcome.violation is None
            seen |= outcome.coverage.pairs.keys()
    assert "failed Stop" in seen  # rarer than most: a campaign of thousands may miss it


# by rate, in a simulation


def config(**changes):
    rates = {"raise_": 0.05, "raise_late": 0.05, "hang": 0.02, "die_runner": 0.02}
    fields = {
        "requests": 60,
        "engine": engine(num_blocks=256, block_tokens=8, max_batch_tokens=128, max_model_len=256, max_restarts=1000),
        "arrivals": Closed(20),
        "prompt_tokens": Lengths.parse("4-24"),
        "output_tokens": Lengths.parse("4-24"),
        "faults": Rates(**rates),
        "compare": 60,
    }
    return SimConfig(**(fields | changes))


def test_a_simulation_survives_faults_of_the_model_with_equal_outputs():
    file = io.BytesIO()
    report = simulate(config(), timeline=Timeline(file))
    assert report.problems == []
    assert set(report.faults) == {"raise", "raise_late", "hang", "die_runner"}
    assert report.restarts == sum(report.faults.values()) >= 4
    assert report.requests.failed == 0
    assert report.audit.outputs_compared == 60
    assert b'"recomputed"' in file.getvalue()


def test_a_simulation_loses_streams_but_no_block():
    rates = Rates(die_blocks=0.002, die_scheduler=0.002, out_of_blocks=0.002)
    report = simulate(config(faults=rates, requests=120))
    assert report.problems == []
    assert report.faults
    assert 0 < report.requests.failed < 120
    assert report.blocks.leaked == 0


def test_equal_seeds_give_equal_faults():
    first, second = simulate(config()), simulate(config())
    assert first.faults == second.faults
    assert first.digest == second.digest


def test_rates_and_hangs_are_checked():
    with pytest.raises(SimError, match=r"die_runner is 1.5"):
        Rates(die_runner=1.5)
    with pytest.raises(SimError, match="pass_timeout_s"):
        config(faults=Rates(hang=0.1), engine=engine(pass_timeout_s=None))
    refused = CliRunner().invoke(main, ["sim", "--requests", "3", "--fault-hang", "0.1"])
    assert refused.exit_code == 2
    assert "--pass-timeout-ms" in refused.output


def test_faults_are_options_of_the_command():
    given = ["--fault-raise", "0.1", "--fault-hang", "0.05", "--pass-timeout-ms", "50", "--max-restarts", "1000"]
    done = CliRunner().invoke(main, ["sim", "--requests", "30", "--output-tokens", "8", *given])
    assert done.exit_code == 0, done.output
    assert "raise" in done.output
    assert "hang" in done.output

"""A slice of a campaign, and what surrounds one: the summary, its file, the command, scenarios as text."""

import itertools
import json
import pickle
from functools import cache

import msgspec
import pytest
from click.testing import CliRunner

from cli.main import main
from kvpool import KvPool
from sims.errors import SimError
from sims.explore.campaign import Campaign, Failure, load, save
from sims.explore.coverage import MESSAGES, STATES, Coverage, impossible, num_possible
from sims.explore.diagram import diagram
from sims.explore.draw import draw
from sims.explore.exhaustive import explore
from sims.explore.run import run
from sims.explore.scenario import Leave, from_json, to_json
from sims.explore.summary import pairs, summary
from sims.explore.tiny import TINY
from sims.explore.twice import run_twice
from sims.faults import KINDS
from sims.sweep.executor import WorkerDied

NUM_SEEDS = 320
SLICES = 4


@cache
def explored_part(part):
    campaign = Campaign()
    size = NUM_SEEDS // SLICES
    campaign.go_on(range(part * size, (part + 1) * size), shrinks=False)
    return campaign


@pytest.mark.parametrize("part", range(SLICES))
def test_every_law_holds_in_a_slice_of_seeds(part):
    campaign = explored_part(part)
    assert campaign.failures == []
    assert campaign.num_runs == NUM_SEEDS // SLICES


def test_the_slice_covers_what_there_is():
    coverage = Coverage()
    for part in range(SLICES):
        coverage.add(explored_part(part).coverage)
    assert set(coverage.faults) == {*KINDS, "given_up"}
    assert set(coverage.ends) == {"length", "stop", "cancelled", "error"}
    assert len(list(coverage.missing())) <= 6
    assert list(coverage.surprising()) == []
    stages = {tuple(key.split()) for key in coverage.cancels}
    assert {("unseen", "Step"), ("waiting", "Step"), ("prefill", "Step"), ("decode", "Step")} <= stages
    assert {stage for _, stage in stages} >= {"Admit", "Reserve", "Step", "Settle", "between"}


@pytest.mark.parametrize("seed", range(0, 300, 10))
def test_the_same_seed_is_the_same_run(seed):
    assert run_twice(draw(seed)).violation is None


@pytest.mark.parametrize(("name", "faults"), [("leaves", set()), ("model-raises", {"raise"})])
def test_every_order_of_a_tiny_scenario_keeps_the_laws(name, faults):
    explored = explore(TINY[name])
    assert explored.violation is None
    assert explored.num_states > 100
    assert {"unseen between", "waiting Admit", "prefill Step", "decode Step", "decode Settle"} <= explored.cancels
    assert explored.faults == faults
    assert explored.num_orders > 10_000
    assert explored.num_runs == 1 + explored.num_choices - explored.num_states  # each choice is made once


@pytest.mark.parametrize("name", ["scheduler-cancelled", "blocks-cancelled", "runner-cancelled"])
def test_a_task_of_the_engine_may_be_cancelled_at_any_moment(name):
    explored = explore(TINY[name])
    assert explored.violation is None
    assert explored.num_states > 500


def test_some_seeds_cancel_tasks_of_the_engine():
    coverage = Coverage()
    for part in range(SLICES):
        coverage.add(explored_part(part).coverage)
    assert {key.split()[0] for key in coverage.strikes} == {"scheduler", "blocks", "runner"}
    assert {key.split()[1] for key in coverage.strikes} >= {"between", "Step"}


# scenarios as text


@pytest.mark.parametrize("seed", range(40))
def test_a_scenario_survives_its_text(seed):
    scenario = draw(seed)
    assert from_json(to_json(scenario)) == scenario


@pytest.mark.parametrize("name", TINY)
def test_so_does_a_tiny_one(name):
    assert from_json(to_json(TINY[name])) == TINY[name]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "scenario"),
        ('{"engine":{},"clients":[],"colour":1}', "colour"),
        ('{"engine":{"num_blocks":0},"clients":[]}', "num_blocks"),
        ('{"engine":{},"clients":[],"faults":[{"kind":"earthquake","nth":0}]}', "earthquake"),
        ('{"engine":{},"clients":[],"faults":[{"kind":"hang","nth":0}]}', "pass_timeout_s"),
        ('{"engine":{},"clients":[{"request":{"prompt":[1]},"leave":{}}]}', "exactly one of"),
    ],
)
def test_a_bad_scenario_is_refused_by_name(text, said):
    with pytest.raises(SimError, match=said):
        from_json(text)


def test_a_leave_that_could_never_happen_is_refused():
    with pytest.raises(SimError, match="needs num_tokens"):
        Leave(way="break", delay_s=1.0)
    with pytest.raises(SimError, match="Hello"):
        Leave(message="Hello")


# the summary and its file


def test_a_campaign_goes_on_where_its_file_stands(tmp_path):
    file = tmp_path / "summary.json"
    assert load(file) == Campaign()
    whole, first = Campaign(), Campaign()
    whole.go_on(range(12))
    first.go_on(range(5))
    save(first, file)
    second = load(file)
    assert second == first
    second.go_on(range(second.next_seed, 12))
    assert msgspec.structs.replace(second, seconds=0.0) == msgspec.structs.replace(whole, seconds=0.0)
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


class Backwards:
    """Runs what it is given from the last to the first, each answer as it would come from another process."""

    num_workers = 4

    def run(self, task, items):
        for item in reversed(list(items)):
            yield item, pickle.loads(pickle.dumps(task(item)))


def without_time(campaign):
    return msgspec.json.encode(msgspec.structs.replace(campaign, seconds=0.0))


def test_a_campaign_comes_to_the_same_wherever_its_seeds_run(monkeypatch):
    monkeypatch.setattr(KvPool, "release", lambda self, block: None)  # seeds break laws
    here, elsewhere = Campaign(), Campaign()
    here.go_on(range(12), shrinks=False)
    elsewhere.go_on(range(12), shrinks=False, executor=Backwards())
    assert here.failures
    assert without_time(here) == without_time(elsewhere)


def test_a_seed_that_kills_its_worker_ends_the_campaign_by_name():
    class Deadly(Backwards):
        def run(self, task, items):
            yield from ((item, WorkerDied("killed") if item == 3 else task(item)) for item in items)

    campaign = Campaign()
    with pytest.raises(SimError, match="seed 3: killed"):
        campaign.go_on(range(6), executor=Deadly())
    assert campaign.next_seed == 3


def test_time_ends_a_campaign():
    campaign = Campaign()
    campaign.go_on(itertools.count(), until_s=0.0)
    assert campaign.num_runs == 0


def test_a_file_that_is_no_summary_is_refused(tmp_path):
    file = tmp_path / "summary.json"
    file.write_text('{"next_seed": "soon"}')
    with pytest.raises(SimError, match="next_seed"):
        load(file)


def test_every_pair_is_seen_or_missing_or_impossible():
    lines = "\n".join(summary(Campaign()))
    assert lines.count("never seen") == num_possible()
    num_impossible = sum(impossible(state, message) is not None for state in STATES for message in MESSAGES)
    assert num_possible() + num_impossible == len(STATES) * len(MESSAGES)
    assert sum(line.split().count("-") for line in pairs(Campaign().coverage)) == num_impossible


# the command


def invoke(*args):
    return CliRunner().invoke(main, ["explore", *args])


def test_the_command_explores_and_resumes(tmp_path):
    file = tmp_path / "summary.json"
    first = invoke("--seeds", "3", "--resume", str(file))
    assert first.exit_code == 0, first.output
    assert first.output.startswith("3 runs, ")
    second = invoke("--seeds", "2", "--resume", str(file), "--pairs", "--twice")
    assert second.output.startswith("5 runs, ")
    assert "impossible, because" in second.output
    assert json.loads(file.read_text())["next_seed"] == 5


def test_the_command_draws_a_scenario_and_its_timeline(tmp_path):
    file = tmp_path / "scenario.json"
    file.write_text(to_json(TINY["comes-again"]))
    timeline = tmp_path / "timeline.json"
    shown = invoke("--scenario", str(file), "--timeline", str(timeline), "--twice")
    assert shown.exit_code == 0, shown.output
    assert shown.output.splitlines()[-1] == "every law held"
    assert shown.output == invoke("--scenario", file.read_text()).output
    assert json.loads(timeline.read_text())["traceEvents"]


def test_the_command_explores_every_order():
    done = invoke("--exhaustive", "alone")
    assert done.exit_code == 0
    assert done.output.startswith("alone: ")


def test_the_command_shows_a_failing_seed_with_what_repeats_it(monkeypatch):
    monkeypatch.setattr(KvPool, "release", lambda self, block: None)
    done = invoke("--start", "0", "--seeds", "1", "--no-shrink")
    assert done.exit_code == 1
    assert "seed 0 broke a law" in done.output
    command = next(line for line in done.output.splitlines() if "--scenario" in line)
    scenario = from_json(command.partition("--scenario '")[2].removesuffix("'"))
    assert scenario == draw(0)
    assert run(scenario).violation is not None
    assert done.output.rstrip().endswith(diagram(scenario).splitlines()[-1])


def test_a_kind_of_failure_is_told_once_with_the_traceback_of_what_died(monkeypatch):
    def burst(self, block):
        raise ZeroDivisionError(f"block {block}")

    monkeypatch.setattr(KvPool, "release", burst)
    done = invoke("--seeds", "12", "--no-shrink")
    assert done.exit_code == 1
    told = [line for line in done.output.splitlines() if "broke a law." in line]
    assert 1 <= len(told) <= 2
    num_failed = int(done.output.split(" seeds broke a law")[0].split()[-1])
    assert num_failed >= 8
    assert done.output.count("outrider explore --seed ") == len(told)
    assert "  Traceback (most recent call last):" in done.output
    assert 'File "test_campaign.py", line ' in done.output
    assert "ZeroDivisionError: block " in done.output
    assert str(pytest.__file__)[:6] not in done.output
    assert f"  so did {num_failed - len(told)} more: " in done.output or len(told) == 2


def test_failures_are_of_one_kind_where_only_numbers_differ():
    def failure(what, traceback=""):
        return Failure(0, "conservation", what, "", traceback)

    assert failure("block 3 counts [1, 2] owners").kind == failure("block 12 counts [4] owners").kind
    assert failure("block 3 is lost").kind != failure("block 3 counts twice").kind
    at = 'File "pool.py", line 7, in release'
    assert failure("scheduler: KeyError: 3", at).kind == failure("blocks: KeyError: 4", at).kind
    assert failure("scheduler: KeyError: 3", at).kind != failure("scheduler: KeyError: 3", at.replace("7", "8")).kind


def test_one_seed_is_run_and_drawn(monkeypatch):
    done = invoke("--seed", "3")
    assert done.exit_code == 0
    assert done.output == f"{diagram(draw(3))}\n"
    monkeypatch.setattr(KvPool, "release", lambda self, block: None)
    broken = invoke("--seed", "0")
    assert broken.exit_code == 1
    assert "VIOLATION" in broken.output


def test_ctrl_c_ends_a_campaign_with_its_summary(monkeypatch, tmp_path):
    file = tmp_path / "summary.json"
    num_run = 0

    def interrupted(scenario):
        nonlocal num_run
        num_run += 1
        if num_run == 4:
            raise KeyboardInterrupt
        return run(scenario)

    monkeypatch.setattr("sims.explore.campaign.run", interrupted)
    done = invoke("--resume", str(file))
    assert done.exit_code == 130
    assert done.stdout.startswith("3 runs, ")
    assert done.stderr == "broken off before seed 3\n"
    assert json.loads(file.read_text())["next_seed"] == 3


def test_ctrl_c_while_a_failure_is_made_smaller_loses_nothing_of_it(monkeypatch, tmp_path):
    file = tmp_path / "summary.json"

    def interrupted(scenario, law, run):
        run(scenario)
        raise KeyboardInterrupt

    monkeypatch.setattr("sims.explore.campaign.shrink", interrupted)
    monkeypatch.setattr(KvPool, "release", lambda self, block: None)
    done = invoke("--resume", str(file))
    assert done.exit_code == 130
    assert "1 seeds broke a law" in done.stdout
    kept = load(file)
    assert [from_json(found.scenario) for found in kept.failures] == [draw(kept.failures[0].seed)]
    assert kept.next_seed == kept.failures[0].seed + 1 == kept.num_runs


@pytest.mark.parametrize(
    "args",
    [
        ("--exhaustive", "leaves", "--seeds", "3"),
        ("--exhaustive", "leaves", "--seed", "3"),
        ("--seed", "1", "--seeds", "3"),
        ("--resume", "/dev/full"),
        ("--resume", "/nowhere/summary.json"),
        ("--minutes", "nan"),
        ("--timeline", "file.json"),
        ("--scenario", "no-such-file"),
        ("--scenario", "{}"),
        ("--exhaustive", "nothing"),
    ],
)
def test_the_command_refuses_what_does_not_go_together(args):
    assert invoke(*args).exit_code == 2

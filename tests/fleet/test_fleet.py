import json

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.main import main
from sims.errors import SimError
from sims.fleet.config import Fleet, Outage
from sims.leaving import POINTS, WAYS, Leave, Leaving
from sims.lengths import Lengths
from sims.page import page
from sims.simulate import simulate
from tests.sims.small import comparable, small
from tests.sims.test_simulate import accounts_add_up

STORM = (Outage(0, 0.05, 0.1), Outage(1, 0.06, 0.1), Outage(2, 0.07, 0.05), Outage(0, 0.2, 0.05))


def fleet(policy="round-robin", **changes):
    return Fleet(**{"replicas": 3, "router": policy, "lag_s": 0.01, "retry_s": 0.02} | changes)


def fleet_adds_up(report):
    accounts_add_up(report)
    for name in ("sent", "completed"):
        assert sum(getattr(each, name) for each in report.fleet.replicas) >= report.requests.completed
    assert sum(each.completed for each in report.fleet.replicas) == report.requests.completed
    assert sum(each.lost for each in report.fleet.replicas) == report.fleet.retries
    for each in report.fleet.replicas:
        assert each.blocks.free + each.blocks.evictable == each.blocks.total
        assert each.audit.checks > 0 == each.audit.violations == each.blocks.held


@pytest.mark.parametrize("policy", ["round-robin", "least-tokens", "prefix"])
def test_no_token_is_lost_or_repeated_whoever_crashes(policy):
    config = small(requests=120, compare=120, fleet=fleet(policy, crashes=STORM, drains=(Outage(1, 0.25, 0.1),)))
    report = simulate(config)
    fleet_adds_up(report)
    assert report.audit.outputs_compared > 90
    assert report.fleet.retries > 10
    assert report.fleet.repeated > 0
    assert [each.crashes for each in report.fleet.replicas] == [2, 1, 1]
    assert all(each.down_s > 0 for each in report.fleet.replicas)
    assert comparable(report) == comparable(simulate(config))


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.builds(Outage, st.integers(0, 1), st.floats(0, 0.3), st.floats(0, 0.1)), max_size=6),
    st.lists(st.builds(Outage, st.integers(0, 1), st.floats(0, 0.3), st.floats(0, 0.1)), max_size=2),
    st.integers(0, 100),
    st.booleans(),
)
def test_whatever_the_schedule_every_text_is_the_references(crashes, drains, seed, shuffle):
    there = fleet("prefix", replicas=2, crashes=tuple(crashes), drains=tuple(drains))
    report = simulate(small(seed=seed, requests=30, compare=30, shuffle=shuffle, fleet=there))
    fleet_adds_up(report)
    assert report.requests.submitted == 30


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("point", POINTS)
def test_clients_leave_wherever_their_request_is(monkeypatch, point, way):
    monkeypatch.setattr(Leaving, "draw", lambda self, rng, max_tokens: Leave(point, way, 3, 0.4))
    report = simulate(small(requests=24, output_tokens=Lengths.parse("12-24"), fleet=fleet(crashes=STORM)))
    report.problems[:] = [each for each in report.problems if not each.startswith("nothing was shown")]
    fleet_adds_up(report)
    assert report.requests.cancelled > 0


def test_a_client_may_leave_between_two_replicas():
    gone = (Outage(0, 0.1, 0.2), Outage(1, 0.1, 0.2), Outage(2, 0.1, 0.2))
    leaving = Leaving(vanish_at_s=(0.15,))
    report = simulate(small(requests=60, leaving=leaving, fleet=fleet(crashes=gone, retry_s=0.3)))
    fleet_adds_up(report)
    assert report.fleet.left_between == report.cancel.by_phase["between"] > 5


def test_a_drained_replica_loses_nothing():
    report = simulate(small(fleet=fleet(drains=(Outage(0, 0.05, 0.1), Outage(1, 0.05, 0.1)))))
    fleet_adds_up(report)
    assert report.fleet.retries == report.fleet.repeated == 0
    assert [each.drains for each in report.fleet.replicas] == [1, 1, 0]


def test_a_fleet_is_told_in_json_text_and_page(tmp_path):
    path, html = tmp_path / "r.json", tmp_path / "r.html"
    args = ["sim", "--requests", "40", "--no-baseline", "--replicas", "2", "--crash", "1@0.1+0.1", "--router", "prefix"]
    result = CliRunner().invoke(main, [*args, "--json", str(path), "--report", str(html)])
    assert result.exit_code == 0, result.output
    assert "2 replicas, prefix router" in result.output
    assert "over mean" in " ".join(result.output.split()) or "balance" in result.output
    assert "<h2>Replicas</h2>" in html.read_text()
    first = json.loads(path.read_text())
    again = json.loads(CliRunner().invoke(main, ["sim", "--config", str(path), "--json", "-"]).stdout)
    assert again["digest"] == first["digest"]
    assert again["config"] == first["config"]


@pytest.mark.parametrize("policy", [None, "prefix"])
def test_only_a_fleet_has_a_table_of_replicas(policy):
    report = simulate(small(requests=10, fleet=None if policy is None else fleet(policy)))
    assert ("<h2>Replicas</h2>" in page(report)) == (policy is not None)
    assert (report.fleet is None) == (policy is None)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--router", "prefix"], "--router has no effect here"),
        (["--crash", "0@1"], "--crash has no effect here"),
        (["--replicas", "2", "--lag-ms", "5"], "--lag-ms has no effect here"),
        (["--replicas", "2", "--retry-ms", "5"], "--retry-ms has no effect here"),
        (["--replicas", "2", "--timeline", "t.json"], "--timeline has no effect here"),
        (["--replicas", "2", "--crash", "2@1"], "a replica in [0, 1]"),
        (["--replicas", "2", "--crash", "soon"], "REPLICA@SECOND"),
        (["--replicas", "2", "--router", "session"], "only a trace has sessions"),
        (["--replicas", "2", "--clock", "wall"], "virtual time only"),
    ],
)
def test_what_would_change_nothing_or_cannot_be_is_refused(args, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["sim", "--requests", "10", *args])
    assert result.exit_code == 2
    assert said in result.output


def test_sessions_need_a_trace():
    with pytest.raises(SimError, match="only a trace has sessions"):
        small(fleet=fleet("session"))

"""What a client waits for counts from when its request was due, however late the machine submits it."""

import asyncio

import numpy as np
import pytest

from cli.text_report import print_report
from sims import clients
from sims.arrivals import Closed, Open
from sims.leaving import Leaving
from sims.report import PERCENTILES, Latency
from sims.simulate import simulate
from tests.sims.small import small


def test_in_virtual_time_nothing_is_late(capsys):
    report = simulate(small(arrivals=Open(50.0), leaving=Leaving(0.0), compare=0))
    assert report.latency_ms.late.count == 60
    assert report.latency_ms.late.max == pytest.approx(0, abs=1e-6)
    print_report(report)
    assert "arrivals late" not in capsys.readouterr().out


def test_in_a_closed_loop_nothing_is_due():
    report = simulate(small(arrivals=Closed(4), compare=0))
    assert report.latency_ms.late.count == 0


def test_a_late_submission_is_reported_and_counted(monkeypatch, capsys):
    """A machine that is busy for two seconds as the first request is due: all that were due meanwhile waited for it."""
    submit = clients.Crowd.submit

    def busy(self, client):
        if client.index == 0:
            loop = asyncio.get_running_loop()
            now_s = loop.time()
            monkeypatch.setattr(loop, "time", lambda ahead=loop.time: max(ahead(), now_s + 2.0))
        return submit(self, client)

    monkeypatch.setattr(clients.Crowd, "submit", busy)
    report = simulate(small(arrivals=Open(30.0, 0.0), leaving=Leaving(0.0), compare=0))
    late, ttft = report.latency_ms.late, report.latency_ms.ttft
    # due at 1/30 s, 2/30 s, ... 60/30 s: the first on time, the last as it is due or soon after
    assert late.count == ttft.count == 60
    assert late.max == pytest.approx(2000 - 1000 / 30, abs=50)
    assert late.p50 == pytest.approx(1000, abs=60)
    assert ttft.p50 > late.p50
    assert ttft.max > late.max
    print_report(report)
    assert "arrivals late by" in capsys.readouterr().out


def test_percentiles_say_their_method(capsys):
    report = simulate(small(requests=5, compare=0))
    assert report.latency_ms.percentiles == PERCENTILES
    print_report(report)
    assert f"percentiles: {PERCENTILES}" in capsys.readouterr().out
    seconds = [0.001, 0.002, 0.004, 0.008]
    expected = np.percentile(np.array(seconds) * 1e3, [50, 90, 99], method="linear")
    latency = Latency.of(seconds)
    assert [latency.p50, latency.p90, latency.p99] == pytest.approx(expected.tolist())
    assert latency.p50 == pytest.approx(3.0)

"""The load command against a real server: nobody fails who should not, and the server is whole afterwards."""

import json
import subprocess
import sys

import pytest

from tests.server.harness import Server, serving

LOAD = "import sys; from cli.load import load; load(sys.argv[1:])"


def load(url, *options):
    command = [sys.executable, "-c", LOAD, "--url", url, "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


@pytest.fixture(scope="module")
def server():
    with serving("--set", "engine.num_blocks=300", "--set", "engine.max_waiting=1000") as running:
        yield running


def test_leavers_leave_and_the_others_finish(server):
    status, report = load(server.url, "--clients", "40", "--requests", "80", "--leave", "30", "--max-tokens", "24")
    assert status == 0, report
    endings = report["endings"]
    assert sum(endings.values()) == 80
    assert 10 < endings["left"] < 40
    assert endings["finished"] == 80 - endings["left"]
    assert report["blocks"]["held"] == report["num_open"] == report["num_violations"] == 0
    assert sum(report["blocks"].values()) == 300
    assert report["num_cancels"] > 0
    assert 0 < report["ttft_s"]["p50"] <= report["ttft_s"]["p99"]
    assert report["num_tokens"] > 24 * endings["finished"] / 3


def test_refusals_are_told_apart():
    with serving("--set", "engine.max_running=1", "--set", "engine.max_waiting=1") as server:
        status, report = load(server.url, "--clients", "20", "--leave", "0", "--max-tokens", "16")
    assert status == 0, report
    assert report["endings"]["refused"] > 0
    assert report["endings"]["finished"] + report["endings"]["refused"] == 20


def test_failures_fail():
    server = Server("--api-key", "secret")
    status, report = load(server.url, "--clients", "3", "--leave", "0")
    assert (status, report["endings"]["failed"], report["problems"]) == (1, 3, {"status 401": 3})
    assert server.stop() == 0
    status, message = load(server.url)
    assert status == 1
    assert "Error: http://" in message

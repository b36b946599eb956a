"""The load command against a real server: nobody fails who should not, and the server is whole afterwards."""

import asyncio
import json
import random
import signal
import subprocess
import sys

import pytest

from server import load as server_load
from server.load import LoadConfig, Quantiles, run_load
from server.load_client import LoadClient, Outcome, now_s
from sims.clock import run as run_virtually
from tests.server.harness import Server, serving, wait_until

LOAD = [sys.executable, "-m", "outrider", "load"]


def load(url, *options):
    done = subprocess.run([*LOAD, "--url", url, "--json", *options], capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


@pytest.fixture(scope="module")
def server():
    with serving("--set", "engine.num_blocks=300", "--set", "engine.max_waiting=1000") as running:
        yield running


def test_leavers_leave_and_the_others_finish(server):
    status, report = load(server.url, "--clients", "40", "--requests", "80", "--leave", "0.3", "--max-tokens", "24")
    assert status == 0, report
    endings = report["endings"]
    assert sum(endings.values()) == report["num_requests"] == 80
    assert 10 < endings["left"] < 40
    assert endings["finished"] == 80 - endings["left"]
    assert report["blocks"]["held"] == report["num_open"] == report["num_violations"] == 0
    assert sum(report["blocks"].values()) == 300
    assert report["num_cancels"] > 0
    assert 0 < report["ttft_s"]["p50"] <= report["ttft_s"]["p99"] <= report["ttft_s"]["max"]
    assert report["late_s"]["p50"] <= report["ttft_s"]["p50"]
    assert report["e2e_s"]["count"] == endings["finished"]
    assert report["num_tokens"] > 24 * endings["finished"] / 3
    assert report["percentiles"] == "linear between ranks"


@pytest.mark.parametrize("arrivals", ["poisson", "constant"])
def test_at_a_rate_every_request_is_sent_whatever_becomes_of_the_others(server, arrivals):
    options = ("--rate", "200", "--arrivals", arrivals, "--requests", "50", "--leave", "0", "--max-tokens", "8")
    status, report = load(server.url, *options)
    assert status == 0, report
    assert report["endings"]["finished"] == report["num_requests"] == report["late_s"]["count"] == 50
    assert report["elapsed_s"] > 0.1


def test_a_traces_times_are_the_requests(server, tmp_path):
    path = tmp_path / "t.jsonl"
    rows = [{"timestamp": 1000 * i, "input_length": 3, "output_length": 3} for i in range(6)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    status, report = load(server.url, "--trace", str(path), "--speedup", "10", "--leave", "0", "--max-tokens", "4")
    assert status == 0, report
    assert report["endings"]["finished"] == 6
    assert report["elapsed_s"] > 0.49  # the last was due after half a second


def test_what_was_asked_and_answered_is_recorded_for_a_replay(server, tmp_path):
    from sims.recordings import read_conversations

    path = tmp_path / "r.jsonl"
    status, report = load(server.url, "--clients", "5", "--leave", "0", "--max-tokens", "6", "--record", str(path))
    assert status == 0, report
    found = read_conversations(path)
    assert found.format == "pairs"
    assert len(found.conversations) == 5
    assert all(len(c.prompt) == 200 and c.completion for c in found.conversations)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--rate", "5", "--clients", "3"), "--clients has no effect here: it needs a closed loop"),
        (("--speedup", "2"), "--speedup has no effect here: it needs --trace"),
        (("--arrivals", "poisson"), "--arrivals poisson needs --rate"),
        (("--arrivals", "trace"), "--arrivals trace needs --trace"),
        (("--trace", __file__), "a trace in a table of no known layout"),
        (("--trace", __file__, "--rate", "3"), "--rate has no effect here"),
        (("--rate", "nan"), "not a finite number"),
        (("--leave", "30"), "0<=x<=1"),
        (("--url", "ftp://x"), "http://HOST:PORT"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, message):
    done = subprocess.run([*LOAD, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


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
    assert status == 2
    assert "Error: http://" in message


def test_broken_off_it_reports_what_was(server):
    command = [*LOAD, "--url", server.url, "--rate", "20", "--requests", "2000", "--leave", "0", "--json"]
    submitted = "tl_engine_requests_submitted_total"
    before = server.value(submitted)
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: server.value(submitted) >= before + 3)
    running.send_signal(signal.SIGINT)
    out, errors = running.communicate(timeout=30)
    assert running.returncode == 130, errors
    report = json.loads(out)
    assert report["is_broken_off"]
    assert report["num_requests"] == 2000
    assert 0 < sum(report["endings"].values()) < 2000
    assert report["num_open"] == report["blocks"]["held"] == 0


# when a request counts from


METRICS = 'tl_engine_blocks{state="free"} 7\ntl_engine_blocks{state="held"} 0\n'
TAKES_S = 0.5


def config(**changes):
    settings = {
        "host": "nowhere",
        "port": 1,
        "num_clients": 2,
        "num_requests": 4,
        "leave_share": 0.0,
        "prompt_chars": 5,
        "max_tokens": 3,
        "seed": 0,
        "timeout_s": 5.0,
        "api_key": None,
    }
    return LoadConfig(**settings | changes)


class SlowServer:
    """Takes half a second for a request, in virtual time; knows when each was due, and when it was sent."""

    def __init__(self):
        self.asked = []
        self.busy_s = {}

    async def ask(self, _client, plan, due_s):
        self.asked.append((plan.number, due_s, now_s()))
        asyncio.get_running_loop()._now_s += self.busy_s.get(plan.number, 0.0)  # the machine does something else
        await asyncio.sleep(TAKES_S)
        return Outcome(plan, "finished", 0.0, 0.01, (), now_s() - due_s, 1, "a")


@pytest.fixture
def slow_server(monkeypatch):
    server = SlowServer()

    async def metrics(_client):
        return METRICS

    async def ask(client, plan, due_s):
        return await server.ask(client, plan, due_s)

    monkeypatch.setattr(LoadClient, "ask", ask)
    monkeypatch.setattr(LoadClient, "metrics", metrics)
    monkeypatch.setattr(server_load, "raise_file_limit", lambda: None)
    return server


def test_in_an_open_loop_no_request_waits_for_another(slow_server):
    done = run_virtually(run_load(config(times_s=[0.0, 0.1, 0.1, 3.0])))
    assert slow_server.asked == [(i, t, t) for i, t in enumerate([0.0, 0.1, 0.1, 3.0])]
    assert done.report.endings["finished"] == 4
    assert done.report.elapsed_s == pytest.approx(3.0 + TAKES_S)


def test_requests_that_are_sent_late_count_from_when_they_were_due(slow_server):
    slow_server.busy_s = {0: 2.0}
    done = run_virtually(run_load(config(times_s=[0.0, 0.1, 0.2, 3.0])))
    assert slow_server.asked == [(0, 0.0, 0.0), (1, 0.1, 2.0), (2, 0.2, 2.0), (3, 3.0, 3.0)]
    assert done.report.e2e_s.max == pytest.approx(0.0 + 2.0 + TAKES_S)
    assert done.report.e2e_s.p50 == pytest.approx(((2.0 - 0.1) + (2.0 - 0.2)) / 2 + TAKES_S)


def test_in_a_closed_loop_a_request_is_due_when_its_client_is_free(slow_server):
    done = run_virtually(run_load(config()))
    assert slow_server.asked == [(0, 0.0, 0.0), (1, 0.0, 0.0), (2, TAKES_S, TAKES_S), (3, TAKES_S, TAKES_S)]
    assert done.report.is_whole


def test_broken_off_those_under_way_are_told_apart(slow_server):
    async def broken_off():
        task = asyncio.create_task(run_load(config(times_s=[0.0, 1.0, 2.0, 3.0])))
        await asyncio.sleep(1.2)
        task.cancel()
        return await task

    report = run_virtually(broken_off()).report
    assert report.is_broken_off
    assert report.num_requests == 4
    assert {e: n for e, n in report.endings.items() if n} == {"finished": 1, "broken_off": 1}


def test_nothing_served_is_no_success(monkeypatch, slow_server):
    async def refuse(_client, plan, _due_s):
        return Outcome(plan, "refused")

    monkeypatch.setattr(LoadClient, "ask", refuse)
    report = run_virtually(run_load(config())).report
    assert report.endings["refused"] == 4
    assert not report.is_whole


def test_another_server_is_told_apart(monkeypatch, slow_server):
    async def metrics(_client):
        return "vllm:num_requests_running 0\n"

    monkeypatch.setattr(LoadClient, "metrics", metrics)
    with pytest.raises(ConnectionError, match="no server of Outrider's"):
        run_virtually(run_load(config()))


def test_blocks_of_all_replicas_are_counted():
    lines = [
        f'tl_engine_blocks{{model_name="fake",replica="{replica}",state="{state}"}} {count}'
        for replica, free in (("a", 90.0), ("b", 97.0))
        for state, count in (("free", free), ("held", 100 - free))
    ]
    assert server_load._by_state("\n".join(lines)) == {"free": 187, "held": 13}


async def test_connecting_counts():
    """From when it should have been sent, a request waits for its connection too."""

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        events = [{"choices": [{"text": "a"}], "usage": None}, {"choices": [{"text": "b"}], "usage": None}]
        body = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: [DONE]\n\n"
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + body)
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        client = LoadClient("127.0.0.1", listening.sockets[0].getsockname()[1], None, 5.0)
        plan = server_load._plan(config(), 0, random.Random(0))
        due_s = now_s() - 1.0  # it should have been sent a second ago
        outcome = await client.ask(plan, due_s)
    assert outcome.ending == "finished"
    assert outcome.text == "ab"
    assert outcome.late_s >= 1.0
    assert outcome.e2e_s >= outcome.ttft_s >= outcome.late_s


def test_quantiles_are_interpolated_between_ranks():
    found = Quantiles.of([1.0, 2.0, 4.0, 8.0])
    assert (found.count, found.p50, found.max) == (4, 3.0, 8.0)
    assert found.p90 == pytest.approx(4 + 0.7 * 4)
    assert Quantiles.of([]) == Quantiles(0, None, None, None, None)

"""More than the server can take, and a server that is told to stop: nobody is served wrongly and nothing is lost."""

import signal
import time

import pytest

from tests.server.harness import Client, Server, serving, wait_until

SLOW = ["--set", "model.min_pass_s=0.1"]
ENDLESS = {"prompt": "ba", "max_tokens": 4000, "ignore_eos": True, "stream": True}


@pytest.fixture(scope="module")
def server():
    """One place to run, two to wait, slow passes, little patience."""
    options = ["engine.max_running=1", "engine.max_waiting=2", "engine.num_blocks=512"]
    options += ["server.max_body_bytes=5000", "server.ping_s=0.1"]
    with serving(*SLOW, *(word for option in options for word in ("--set", option))) as running:
        yield running


def test_a_full_queue_refuses_and_says_when_to_come_again(server):
    first = Client(server, ENDLESS)
    first.read_until(b'"text"')
    queued = [Client(server, ENDLESS) for _ in range(2)]
    wait_until(lambda: server.value("vllm:num_requests_waiting") == 2)
    answer = server.post({"prompt": "ba"})
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) > 0
    assert answer.json()["error"]["type"] == "rate_limit_error"
    #   those that are in are not disturbed, and who leaves makes room
    first.read_until(b'"text"')
    queued[0].close()
    wait_until(lambda: server.value("vllm:num_requests_waiting") == 1)
    #   two choices, one place: all or nothing
    assert server.post({"prompt": "ba", "n": 2}).status_code == 429
    assert server.value("vllm:num_requests_waiting") == 1
    last = Client(server, ENDLESS)
    wait_until(lambda: server.value("vllm:num_requests_waiting") == 2)
    for client in (first, queued[1], last):
        client.close()
    server.wait_idle()


def test_whoever_waits_hears_something(server):
    """A peer that has vanished is found by the write."""
    running, waiting = Client(server, ENDLESS), Client(server, ENDLESS)
    assert b"data:" not in waiting.read_until(b": ping\n\n")
    running.close()
    waiting.close()
    server.wait_idle()


def test_a_body_that_is_too_large(server):
    answer = server.post({"prompt": "x" * 5000})
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "body_too_large"


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("POST", "/v1/completions", {"content-type": "text/plain"}, 415),
        ("GET", "/v1/completions", {}, 405),
        ("POST", "/v1/embeddings", {"content-type": "application/json"}, 404),
        ("POST", "/v1/completions", {"content-type": "application/json"}, 400),
    ],
)
def test_errors_have_one_shape(server, method, path, headers, status):
    answer = server.http.request(method, path, headers=headers)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_a_slow_reader_holds_only_its_own_sequence():
    with serving("--set", "engine.stream_tokens=16", "--set", "server.write_timeout_s=600") as server:
        slow = Client(server, ENDLESS, receive_bytes=2048)
        wait_until(lambda: server.value("tl_engine_sequences_paused") == 1)
        emitted = server.value("vllm:generation_tokens_total")
        answer = server.post({"prompt": "ni do", "max_tokens": 50, "ignore_eos": True})
        assert answer.json()["usage"]["completion_tokens"] == 50
        assert server.value("vllm:generation_tokens_total") == emitted + 50
        slow.read_until(b"[DONE]")
        slow.close()
        server.wait_idle()


def test_a_reader_that_takes_nothing_is_let_go():
    server = Server("--set", "engine.stream_tokens=16", "--set", "server.write_timeout_s=0.3")
    stuck = Client(server, ENDLESS, receive_bytes=2048)
    wait_until(lambda: server.value("tl_server_responses_total", status="499") == 1)
    server.wait_idle()
    stuck.close()
    assert server.stop() == 0


def test_what_is_open_may_finish():
    server = Server(*SLOW, "--set", "server.shutdown_s=30")
    client = Client(server, {**ENDLESS, "max_tokens": 8, "temperature": 0})
    client.read_until(b'"text"')
    server.process.send_signal(signal.SIGTERM)
    assert b"[DONE]" in client.read_until(b"[DONE]")
    client.close()
    assert server.process.wait(15) == 0
    assert "every block is back" in server.log
    server.stop()


@pytest.mark.parametrize("stream", [True, False])
def test_what_is_open_at_the_deadline_is_cancelled(stream):
    server = Server(*SLOW, "--set", "server.shutdown_s=0.2")
    client = Client(server, {**ENDLESS, "stream": stream})
    wait_until(lambda: server.value("vllm:num_requests_running") == 1)
    assert server.stop() == 3
    told = client.read_until(b"[DONE]" if stream else b"}}")
    assert b"the server is shutting down" in told
    assert stream or b"503" in told
    client.close()
    assert "1 requests were cut short; every block is back" in server.log
    assert "Traceback" not in server.log


def test_a_second_signal_hurries():
    server = Server(*SLOW, "--set", "server.shutdown_s=600")
    client = Client(server, ENDLESS)
    client.read_until(b'"text"')
    server.process.send_signal(signal.SIGINT)
    wait_until(lambda: "stopping" in server.log)
    time.sleep(0.2)
    assert server.stop(signal.SIGINT) == 3
    client.close()

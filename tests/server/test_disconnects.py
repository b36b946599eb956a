"""A client that leaves, in every state: its sequence is cancelled within a step and its blocks are back."""

import socket
import sys
import time

import pytest

from tests.server.harness import Client, serving, wait_until

PASS_S = 0.04
#   one sequence at a time, and a prompt is fed 32 tokens a pass
OPTIONS = [
    f"model.min_pass_s={PASS_S}",
    "engine.max_running=1",
    "engine.max_batch_tokens=32",
    "engine.num_blocks=256",
    "server.max_output_tokens=2000",
]
SETS = [word for option in OPTIONS for word in ("--set", option)]
ENDLESS = {"prompt": "ba", "max_tokens": 2000, "ignore_eos": True, "seed": 1}
LONG_PROMPT = {"prompt": "x" * 1500, "max_tokens": 2000, "ignore_eos": True}


@pytest.fixture(scope="module", params=["bare", "slow_send", "base_http"])
def server(request):
    """The server alone, and behind two kinds of middleware that change how a disconnect shows."""
    if request.param == "bare":
        with serving(*SETS) as running:
            yield running
    else:
        with serving(command=wrapped(request.param)) as running:
            yield running


def wrapped(kind):
    return [sys.executable, "-m", "tests.server.wrapped", kind, *OPTIONS]


def steps(server):
    return server.value("tl_engine_steps_total")


class Watch:
    """What the engine counted since it was made."""

    def __init__(self, server):
        self.server = server
        self.cancels = server.cancels()
        self.steps = steps(server)

    def new_cancels(self):
        now = self.server.cancels()
        return {
            phase: now[phase] - self.cancels.get(phase, 0) for phase in now if now[phase] != self.cancels.get(phase, 0)
        }

    def settle(self, *phases, max_steps=None):
        """Everything is back, the cancels are in these phases, and few steps were made."""
        self.server.wait_idle()
        found = self.new_cancels()
        assert sum(found.values()) == 1
        assert {phase.removesuffix("_pass") for phase in found} <= set(phases)
        if max_steps is not None:
            assert steps(self.server) - self.steps <= max_steps


def is_running(server):
    return server.value("vllm:num_requests_running") == 1


@pytest.mark.parametrize("leave", ["close", "reset"])
@pytest.mark.parametrize("stream", [True, False])
def test_in_decode(server, stream, leave):
    client = Client(server, {**ENDLESS, "stream": stream})
    wait_until(lambda: server.value("vllm:generation_tokens_total") > 0 and is_running(server))
    time.sleep(3 * PASS_S)
    watch = Watch(server)
    getattr(client, leave)()
    #   the pass under way, and one that may have begun before the news came
    watch.settle("decode", max_steps=2)


def test_between_two_tokens(server):
    client = Client(server, {**ENDLESS, "stream": True})
    client.read_until(b'"text"')
    watch = Watch(server)
    client.close()
    watch.settle("decode", max_steps=3)


@pytest.mark.parametrize("stream", [True, False])
def test_in_prefill(server, stream):
    client = Client(server, {**LONG_PROMPT, "stream": stream})
    wait_until(lambda: is_running(server))
    watch = Watch(server)
    client.close()
    watch.settle("prefill", max_steps=3)
    assert server.value("vllm:num_requests_running") == 0


@pytest.mark.parametrize("stream", [True, False])
def test_in_the_queue(server, stream):
    running = Client(server, {**ENDLESS, "stream": True})
    running.read_until(b'"text"')
    queued = Client(server, {**ENDLESS, "stream": stream})
    wait_until(lambda: server.value("vllm:num_requests_waiting") == 1)
    watch = Watch(server)
    queued.close()
    wait_until(lambda: server.value("vllm:num_requests_waiting") == 0)
    assert watch.new_cancels() == {"waiting": 1}
    assert is_running(server)
    running.close()
    server.wait_idle()


@pytest.mark.parametrize("stream", [True, False])
def test_before_the_headers(server, stream):
    watch = Watch(server)
    before = server.value("tl_server_responses_total", status="499")
    Client(server, {**ENDLESS, "stream": stream}).close()
    wait_until(lambda: server.value("tl_server_responses_total", status="499") == before + 1)
    server.wait_idle()
    #   it may have left before the request was submitted: then there is nothing to cancel
    assert sum(watch.new_cancels().values()) <= 1
    assert steps(server) - watch.steps <= 3


def test_half_closed_is_left(server):
    client = Client(server, {**ENDLESS, "stream": True})
    client.read_until(b'"text"')
    watch = Watch(server)
    client.socket.shutdown(socket.SHUT_WR)
    watch.settle("decode", max_steps=3)
    client.close()


def test_all_choices_go(server):
    client = Client(server, {**ENDLESS, "stream": True, "n": 3})
    client.read_until(b'"text"')
    watch = Watch(server)
    client.close()
    server.wait_idle()
    assert sum(watch.new_cancels().values()) == 3


def test_half_a_body_submits_nothing(server):
    submitted = server.value("tl_engine_requests_submitted_total")
    client = socket.create_connection(("127.0.0.1", server.port))
    client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n")
    client.sendall(b'content-length: 1000\r\n\r\n{"prompt": "ba", ')
    time.sleep(0.05)
    client.close()
    assert server.http.get("/health").status_code == 200
    assert server.value("tl_engine_requests_submitted_total") == submitted


def test_an_answer_that_was_complete_is_not_left(server):
    before = server.value("tl_server_responses_total", status="200")
    assert server.post({"prompt": "ba", "max_tokens": 2}).status_code == 200
    assert server.value("tl_server_responses_total", status="200") == before + 1
    server.wait_idle()


@pytest.mark.parametrize("stream", [True, False])
def test_cancelled_from_outside_before_anything_was_sent(stream):
    """The body is never entered, and what was submitted for it is let go all the same."""
    with serving(command=wrapped("cut_short")) as server:
        assert server.post({**ENDLESS, "stream": stream}).status_code == 504
        server.wait_idle()
        assert server.value("tl_engine_requests_submitted_total") == sum(server.cancels().values()) == 1

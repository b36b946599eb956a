"""One connection: what is asked on it ends with it, and nobody holds one, or fills one, for nothing."""

import contextlib
import json
import re
import resource
import signal
import socket
import sys
import time

import pytest

from tests.server.harness import SERVE, Client, Server, request_bytes, serving, wait_until

ENDLESS = {"prompt": "ba", "max_tokens": 4000, "ignore_eos": True}
SHORT = {"prompt": "ba", "max_tokens": 3, "temperature": 0}
GET = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
OPTIONS = ["model.min_pass_s=0.04", "engine.num_blocks=512", "server.max_body_bytes=20000"]
OPTIONS += ["server.max_header_bytes=4096", "server.header_timeout_s=1", "server.body_timeout_s=1"]


@pytest.fixture(scope="module")
def server():
    with serving(*(word for option in OPTIONS for word in ("--set", option))) as running:
        yield running


def connect(server):
    opened = socket.create_connection(("127.0.0.1", server.port), timeout=15)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


def read_all(connection):
    """What comes until the server closes, by whatever way."""
    data = bytearray()
    with connection, contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            data += part
    return bytes(data)


def read_until(connection, end):
    data = b""
    while not data.endswith(end):
        part = connection.recv(65536)
        assert part, data
        data += part
    return data


def is_running(server):
    return server.value("vllm:num_requests_running") > 0


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "behind",
    [
        GET,
        GET * 20,
        request_bytes(ENDLESS),
        request_bytes({**ENDLESS, "stream": True}) * 3,
        request_bytes(ENDLESS)[:-5],
        request_bytes({**ENDLESS, "prompt": "x" * 15_000}),
        GET[:20],
        b"\r\n" * 5,
    ],
    ids=["get", "gets", "post", "streams", "half a body", "large body", "half a head", "blank lines"],
)
def test_whoever_leaves_takes_along_all_he_asked(server, behind, stream):
    client = Client(server, {**ENDLESS, "stream": stream})
    wait_until(lambda: is_running(server))
    submitted = server.value("tl_engine_requests_submitted_total")
    emitted = server.value("vllm:generation_tokens_total")
    client.socket.sendall(behind)
    client.close()
    server.wait_idle()
    #   long before its time, and nothing that waited behind has ever begun
    assert server.value("vllm:generation_tokens_total") - emitted < 1000
    assert server.value("tl_engine_requests_submitted_total") == submitted


def test_what_is_sent_ahead_is_answered_in_its_order(server):
    connection = connect(server)
    bodies = [{**SHORT, "max_tokens": number} for number in (3, 1, 2)]
    connection.sendall(
        b"".join(map(request_bytes, bodies)) + GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    )
    answers = read_all(connection).decode()
    assert re.findall(r'"completion_tokens":(\d)', answers) == ["3", "1", "2"]
    assert answers.count("HTTP/1.1 200") == 4
    assert answers.endswith('{"status":"ok"}')


def test_there_is_an_end_to_what_may_be_sent_ahead(server):
    for flood in (GET * 100, request_bytes({"prompt": "x" * 9000}) * 3):
        client = Client(server, {**ENDLESS, "stream": True})
        client.read_until(b'"text"')
        client.socket.sendall(flood)
        assert b"[DONE]" not in read_all(client.socket)
        client.close()
        server.wait_idle()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 400_000,
        b"GET / HTTP/1.1\r\nhost: localhost\r\n" + b"x: a\r\n" * 60_000,
        b"GET /" + b"a" * 400_000,
        b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"
        + b"x: a\r\n" * 60_000,
        b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n1;" + b"x" * 400_000,
        b"\r\n" * 200_000,
    ],
    ids=["one header", "many headers", "url", "trailers", "chunk extension", "blank lines"],
)
def test_heads_are_bounded(server, data):
    """Whatever is sent that is not a body ends soon, for one who has no key too."""
    connection = connect(server)
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        connection.sendall(data)
    answer = read_all(connection)
    assert not answer or b"HTTP/1.1 431" in answer or b"HTTP/1.1 404" in answer
    connection.close()
    assert server.http.get("/health").status_code == 200


def test_a_head_that_is_too_large_is_refused_in_words(server):
    answer = server.http.get("/health", headers={"x": "a" * 5000})
    assert (answer.status_code, answer.json()["error"]["code"]) == (431, "headers_too_large")
    assert answer.headers["x-request-id"].startswith("req-")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", b"408"),
        (b"GET / HT", b"408"),
        (request_bytes(SHORT)[:-3], b"408"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\ncontent-length: x\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01", b"400"),
        (b"GET http://[ HTTP/1.1\r\nhost: localhost\r\n\r\n", b"400"),
    ],
    ids=["silence", "half a head", "half a body", "nonsense", "no length", "tls", "no url"],
)
def test_who_does_not_get_on_with_it_is_told(server, data, status):
    submitted = server.value("tl_engine_requests_submitted_total")
    connection = connect(server)
    connection.sendall(data)
    head, _, body = read_all(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status)
    assert b"x-request-id: req-" in head
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}
    assert server.value("tl_engine_requests_submitted_total") == submitted


def test_a_slow_but_steady_body_is_taken(server):
    connection = connect(server)
    head, mark, body = request_bytes(SHORT).partition(b"\r\n\r\n")
    connection.sendall(head + mark)
    for byte in range(0, len(body), 3):  # longer than one may stall
        time.sleep(0.1)
        connection.sendall(body[byte : byte + 3])
    assert connection.recv(100).startswith(b"HTTP/1.1 200")
    connection.close()


def test_a_refused_body_is_not_read_for_ever(server):
    connection = connect(server)
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n")
    connection.sendall(b"content-length: 100000000000\r\n\r\n" + b" " * 30_000)
    assert connection.recv(100).startswith(b"HTTP/1.1 413")
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        while True:
            connection.sendall(b" " * 1000)
            time.sleep(0.001)
    connection.close()


def test_after_a_refused_body_the_connection_goes_on(server):
    connection = connect(server)
    data = request_bytes({"prompt": "x" * 30_000})
    connection.sendall(data[:25_000])
    assert read_until(connection, b"}}").startswith(b"HTTP/1.1 413")
    connection.sendall(data[25_000:] + GET)
    assert read_until(connection, b"}").startswith(b"HTTP/1.1 200")
    connection.close()


@pytest.mark.parametrize("stream", [True, False])
def test_http_1_0_gets_no_chunks(server, stream):
    connection = connect(server)
    connection.sendall(request_bytes({**SHORT, "stream": stream}).replace(b"HTTP/1.1", b"HTTP/1.0"))
    head, _, body = read_all(connection).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert (b"content-length" in head) is not stream
    if stream:
        assert body.startswith(b"data: {")
        assert body.endswith(b"data: [DONE]\n\n")
    else:
        assert json.loads(body)["usage"]["completion_tokens"] == 3
    assert "Traceback" not in server.log


def test_an_upgrade_is_not_made(server):
    answer = server.http.get("/health", headers={"connection": "upgrade", "upgrade": "websocket"})
    assert answer.json() == {"status": "ok"}


def test_connections_are_bounded():
    for option, most in (("max_connections", 6), ("max_connections_per_address", 5)):
        with serving("--set", f"server.{option}={most}") as server:
            assert server.http.get("/health").status_code == 200  # and stays open
            held = [connect(server) for _ in range(most - 1)]
            for _ in range(20):
                refused = read_all(connect(server))
                assert refused.startswith(b"HTTP/1.1 503")
                assert b"retry-after: 1" in refused
            assert server.http.get("/health").status_code == 200
            assert 1 <= server.log.count("one more is refused") <= 10
            held.pop().close()
            wait_until(lambda: read_all_of_get(server).startswith(b"HTTP/1.1 200"))
            for connection in held:
                connection.close()


def read_all_of_get(server):
    connection = connect(server)
    connection.sendall(GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
    return read_all(connection)


def test_where_no_more_files_may_be_opened_the_log_stays_short():
    """The files are used up by something other than connections."""
    code = (
        "import os, resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))\n"
        f"import server.connections as c; c._SPARE_FILES = -1000\n{SERVE}"
    )
    command = [sys.executable, "-c", code, "--port", "0", "--set", "server.shutdown_s=0"]
    server = Server(command=command)
    begun_s = time.monotonic()
    assert server.http.get("/health").status_code == 200
    held = [connect(server) for _ in range(150)]
    time.sleep(1.5)
    assert server.http.get("/health").status_code == 200  # who is in is served
    for connection in held:
        connection.close()
    wait_until(lambda: read_all_of_get(server).startswith(b"HTTP/1.1 200"))
    lines = server.log.count("no connection can be accepted")
    assert 1 <= lines <= 2 + time.monotonic() - begun_s
    assert "Traceback" not in server.log
    assert server.stop() == 0


def test_a_second_signal_ends_it_whatever_is_being_uploaded():
    server = Server("--set", "server.shutdown_s=600", "--set", "server.body_timeout_s=600")
    uploads = [connect(server) for _ in range(2)]
    uploads[0].sendall(request_bytes(SHORT)[:-3])
    uploads[1].sendall(b"POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n")
    uploads[1].sendall(b"content-length: 1000000\r\n\r\n")
    slow = Client(server, {**ENDLESS, "stream": True}, receive_bytes=2048)  # who does not read is not waited for either
    wait_until(lambda: is_running(server))
    server.process.send_signal(signal.SIGINT)
    wait_until(lambda: "stopping" in server.log)
    time.sleep(0.3)
    assert server.process.poll() is None
    assert server.stop(signal.SIGINT) == 3
    for connection in (*uploads, slow.socket):
        connection.close()
    assert "3 requests were cut short; every block is back" in server.log
    assert "Traceback" not in server.log


def test_files_are_as_many_as_the_system_allows(server):
    soft, _ = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    assert soft == resource.getrlimit(resource.RLIMIT_NOFILE)[1]

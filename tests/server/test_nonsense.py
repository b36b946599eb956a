"""Raw connections that send requests whole, broken, ahead of their turn or not to the end, and leave as they like."""

import contextlib
import random
import socket
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.server.harness import request_bytes, serving

OPTIONS = ["engine.num_blocks=256", "server.header_timeout_s=0.3", "server.body_timeout_s=0.3"]
OPTIONS += ["server.max_body_bytes=20000", "server.max_header_bytes=4000", "model.min_pass_s=0.002"]
LOCAL = b"host: localhost\r\n"
JSON = LOCAL + b"content-type: application/json\r\n"
REQUESTS = [
    request_bytes({"prompt": "ba ni", "max_tokens": 30}),
    request_bytes({"prompt": ["a", "b"], "n": 2, "max_tokens": 300, "stream": True, "logprobs": 2, "echo": True}),
    request_bytes({"messages": [{"role": "user", "content": "x"}], "stream": True}, "/v1/chat/completions"),
    b"GET /metrics HTTP/1.1\r\n" + LOCAL + b"\r\n",
    b"GET /v1/models/a/b HTTP/1.0\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\n" + LOCAL + b"\r\n",
    b"HEAD / HTTP/1.1\r\n" + LOCAL + b"\r\n",
    b"POST /tokenize HTTP/1.1\r\n"
    + JSON
    + b"transfer-encoding: chunked\r\nexpect: 100-continue\r\n\r\n"
    + b'10\r\n{"prompt":"abc"}\r\n0\r\n\r\n',
    b"CONNECT localhost:80 HTTP/1.1\r\n" + LOCAL + b"\r\n",
    b"GET / HTTP/1.1\r\n" + LOCAL + b"upgrade: h2c\r\nconnection: upgrade, http2-settings\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nhost: \xff\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\n" + JSON + b"content-length: 99999\r\n\r\n",
]


def spoil(chance, data):
    data = bytearray(data)
    for _ in range(chance.choice([0, 0, 0, 1, 2, 5])):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(3):
            case 0:
                data[at : at + 1] = chance.randbytes(chance.choice([1, 3, 200]))
            case 1:
                del data[at : at + chance.choice([1, 5, 50])]
            case 2:
                del data[at:]
    return bytes(data)


def visit(port, seed):
    chance = random.Random(seed)
    data = b"".join(spoil(chance, chance.choice(REQUESTS)) for _ in range(chance.choice([1, 1, 2, 3, 70])))
    with socket.create_connection(("127.0.0.1", port)) as connection, contextlib.suppress(OSError):
        connection.settimeout(0.2)
        while data:
            num_bytes = chance.choice([7, 100, 5000, 100_000])
            connection.sendall(data[:num_bytes])
            data = data[num_bytes:]
            if chance.random() < 0.1:
                connection.recv(chance.choice([1, 1000]))
        if chance.random() < 0.3:
            connection.shutdown(socket.SHUT_WR)
        for _ in range(chance.choice([0, 1, 10])):
            connection.recv(chance.choice([1, 100_000]))
        if chance.random() < 0.3:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_left_of_nonsense(seed):
    with serving(*(word for option in OPTIONS for word in ("--set", option))) as server:
        with ThreadPoolExecutor(8) as visitors:
            list(visitors.map(lambda i: visit(server.port, 1000 * seed + i), range(150)))
        server.wait_idle()
        assert server.value("tl_engine_requests_submitted_total") > 5
        assert server.value("tl_engine_requests_failed_total") == 0
        assert server.value("tl_engine_conservation_violations_total") == 0
        assert server.value("http_requests_total", status="5xx") == 0
        assert server.post({"prompt": "ba", "max_tokens": 3}).json()["usage"]["completion_tokens"] == 3

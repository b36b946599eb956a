"""What every request passes: the name it speaks to, the origin of its page, a name of its own, and the count."""

import socket

import pytest

from tests.server.harness import WAIT_S, Client, serving, wait_until

ORIGIN = "https://example.org"
BODY = {"prompt": "ba", "max_tokens": 3}


@pytest.fixture(scope="module")
def server():
    options = [f"server.allowed_origins=['{ORIGIN}']", "server.allowed_hosts=['box.example.org']"]
    options += ["model.name='some/deep/model'", "server.strict=true", "model.min_pass_s=0.02"]
    with serving(*(word for option in options for word in ("--set", option))) as running:
        yield running


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8000", 200),
        ("127.0.0.1:1", 200),
        ("127.1.2.3", 200),
        ("[::1]:8000", 200),
        ("me.localhost", 200),
        ("box.example.org", 200),
        ("evil.example.org", 403),
        ("localhost.example.org", 403),
        ("192.168.1.1", 403),
        ("", 403),
        ("[::1", 200),
        ("[", 403),
    ],
)
def test_only_who_speaks_to_this_machine_is_heard(server, host, status):
    for path in ("/", "/v1/models", "/metrics", "/live"):
        answer = server.http.get(path, headers={"host": host})
        assert answer.status_code == status
        if status == 403:
            assert answer.json()["error"]["code"] == "host_not_allowed"


@pytest.mark.parametrize("hosts", [["localhost", "evil.example"], ["evil.example", "localhost"], ["localhost"] * 2])
def test_whom_a_request_speaks_to_is_said_once(plain, hosts):
    lines = "".join(f"host: {host}\r\n" for host in hosts)
    with socket.create_connection(("127.0.0.1", plain.port), WAIT_S) as connection:
        connection.sendall(f"GET /v1/models HTTP/1.1\r\n{lines}connection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"invalid_http"' in answer


def test_a_server_for_everybody_hears_everybody():
    with serving("--host", "0.0.0.0") as everywhere:
        assert everywhere.http.get("/health", headers={"host": "evil.example.org"}).status_code == 200
    with serving("--host", "0.0.0.0", "--set", "server.allowed_hosts=['me.org']") as choosy:
        for host, status in (("me.org:80", 200), ("localhost", 403)):
            assert choosy.http.get("/health", headers={"host": host}).status_code == status
        choosy.http.headers["host"] = "me.org"


def test_pages_of_allowed_origins(server):
    asked = {
        "origin": ORIGIN,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,x-stainless-lang",
    }
    preflight = server.http.options("/v1/chat/completions", headers=asked)
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == ORIGIN
    allowed = preflight.headers["access-control-allow-headers"].lower()
    assert all(name in allowed for name in ("authorization", "content-type", "x-stainless-lang"))
    assert "POST" in preflight.headers["access-control-allow-methods"]
    answer = server.post({**BODY, "stream": True}, headers={"origin": ORIGIN})
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert server.post({}, headers={"origin": ORIGIN}).headers["access-control-allow-origin"] == ORIGIN
    #   and of others
    stranger = {**asked, "origin": "https://evil.example"}
    assert server.http.options("/v1/chat/completions", headers=stranger).status_code == 400
    assert "access-control-allow-origin" not in server.post(BODY, headers={"origin": "https://evil.example"}).headers


def test_no_page_is_allowed_unless_it_is_named(plain):
    asked = {"origin": ORIGIN, "access-control-request-method": "POST"}
    for origin in (ORIGIN, plain.url):
        answer = plain.http.options("/v1/completions", headers={**asked, "origin": origin})
        assert answer.status_code == 405
        assert "access-control-allow-origin" not in answer.headers


def test_behind_cors_too_a_client_may_leave(server):
    client = Client(server, {"prompt": "ba", "max_tokens": 4000, "ignore_eos": True, "stream": True})
    client.read_until(b'"text"')
    client.close()
    server.wait_idle()


def test_every_answer_has_a_name(server):
    answers = [
        server.post(BODY),
        server.post({**BODY, "stream": True}),
        server.post({}),
        server.post({**BODY, "foo": 1}),
        server.http.get("/v1/models"),
        server.http.get("/nowhere"),
        server.http.get("/v1/completions"),
        server.http.get("/health", headers={"host": "evil.example.org"}),
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 400, 400, 200, 404, 405, 403]
    names = [answer.headers.get_list("x-request-id") for answer in answers]
    assert all(len(name) == 1 for name in names)
    assert len({name for (name,) in names}) == len(names)
    assert answers[0].headers["x-request-id"] == answers[0].json()["id"]


def test_a_model_may_have_slashes_in_its_name(server):
    assert server.http.get("/v1/models/some/deep/model").json()["id"] == "some/deep/model"
    assert server.http.get("/v1/models/some%2Fdeep%2Fmodel").json()["id"] == "some/deep/model"
    told = server.http.get("/v1/models/some/deep")
    assert (told.status_code, told.json()["error"]["code"]) == (404, "model_not_found")


def test_requests_are_counted_by_what_they_ask_for(server):
    def count(**labels):
        return server.value("http_requests_total", **labels)

    asked = {"handler": "/v1/completions", "method": "POST"}
    before = count(status="2xx", **asked), count(status="4xx", **asked), count(handler="none")
    server.post(BODY)
    server.post({})
    for i in range(3):
        server.http.get(f"/made/up/{i}")
    server.http.request("PATCH", "/coffee")
    client = Client(server, {"prompt": "ba", "max_tokens": 4000, "ignore_eos": True})
    wait_until(lambda: server.value("vllm:num_requests_running") == 1)
    client.close()
    server.wait_idle()
    wait_until(lambda: count(status="4xx", **asked) == before[1] + 2)
    assert count(status="2xx", **asked) == before[0] + 1
    assert count(handler="none") == before[2] + 4
    handlers = {name for name in server.metrics() if name.startswith("http_requests_total") and "made" in name}
    assert not handlers


def test_unknown_parameters_are_counted(plain):
    before = plain.value("tl_server_unknown_parameters_total")
    for _ in range(3):
        assert plain.post({**BODY, "made_up": 1}).status_code == 200
    assert plain.value("tl_server_unknown_parameters_total") == before + 3
    assert plain.log.count("made_up") == 1

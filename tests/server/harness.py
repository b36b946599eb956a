"""A real server process, and clients on bare sockets that can leave as rudely as they like."""

import contextlib
import json
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import httpx

WAIT_S = 15.0
SERVE = "import sys; from cli.serve import serve; serve(sys.argv[1:])"


class Server:
    """A server process of its own; `url` once it listens."""

    def __init__(self, *options, command=None):
        command = command or [sys.executable, "-c", SERVE, "--port", "0", "--set", "server.shutdown_s=0"]
        self.process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)
        self.lines = []
        self._listens = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._listens.wait(WAIT_S)
        address = re.search(r"on http://\S+:(\d+)", self.log)
        if address is None:
            self.process.kill()
            raise AssertionError(f"it does not listen: {self.log}")
        self.port = int(address[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = httpx.Client(base_url=self.url, timeout=WAIT_S)

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            if "serving" in line:
                self._listens.set()
        self._listens.set()

    @property
    def log(self):
        return "".join(self.lines)

    def stop(self, signum=signal.SIGTERM):
        """Tell it to stop and give its exit status."""
        self.http.close()
        self.process.send_signal(signum)
        status = self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        self.process.stderr.close()
        return status

    def metrics(self):
        text = self.http.get("/metrics").text
        return {name: float(value) for name, value in re.findall(r"^([^#\s]\S*(?:\{.*\})?) (\S+)$", text, re.MULTILINE)}

    def value(self, name, **labels):
        """The sum of a metric over the series that have the labels."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return sum(
            value
            for series, value in self.metrics().items()
            if series.partition("{")[0] == name and all(label in series for label in wanted)
        )

    def cancels(self):
        found = {}
        for series, value in self.metrics().items():
            if series.startswith("tl_engine_cancels_total"):
                found[re.search(r'phase="(\w+)"', series)[1]] = value
        return found

    def is_idle(self):
        seen = self.metrics()
        names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
        return all(value == 0 for series, value in seen.items() if series.partition("{")[0] in names)

    def wait_idle(self):
        """Wait until nothing is open and no block is held."""
        wait_until(self.is_idle)

    def post(self, body, path="/v1/completions", **kwargs):
        return self.http.post(path, json=body, **kwargs)


@contextlib.contextmanager
def serving(*options, command=None):
    """A server that must end with every block back and nothing to complain of."""
    server = Server(*options, command=command)
    try:
        yield server
    finally:
        status = server.stop() if server.process.poll() is None else server.process.returncode
    assert status == 0, server.log
    assert "Traceback" not in server.log
    assert "ERROR" not in server.log


def wait_until(is_true):
    end_s = time.monotonic() + WAIT_S
    while not is_true():
        assert time.monotonic() < end_s, "waited in vain"
        time.sleep(0.01)


def request_bytes(body, path="/v1/completions"):
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(data)}\r\n\r\n".encode() + data


class Client:
    """One connection that sends one request and may leave at any time."""

    def __init__(self, server, body, path="/v1/completions", receive_bytes=None):
        self.socket = socket.socket()
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(WAIT_S)
        self.socket.connect(("127.0.0.1", server.port))
        self.socket.sendall(request_bytes(body, path))

    def read_until(self, mark):
        data = bytearray()
        while mark not in data[-(65536 + len(mark)) :]:
            part = self.socket.recv(65536)
            assert part, bytes(data[-300:])
            data += part
        return bytes(data)

    def close(self):
        self.socket.close()

    def reset(self):
        """Leave without a goodbye."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def events(response):
    """The events of a streamed response, without the closing mark, which must be the last."""
    found = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line.startswith("data: ")]
    assert found[-1] == "[DONE]"
    return [json.loads(event) for event in found[:-1]]


def joined(chunks, index=0):
    choices = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
    return "".join(choice["text"] if "text" in choice else choice["delta"].get("content", "") for choice in choices)

"""A served Ray of this machine's own, and streaming clients on real sockets."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import httpx

WAIT_S = 60.0
SERVE = "import sys; from cli.serve import serve; serve(sys.argv[1:])"


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def environment():
    return {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2]), "RAY_DEDUP_LOGS": "0"}


class Fleet:
    """`outrider serve --ray` in a process of its own."""

    def __init__(self, *options):
        self.port = free_port()
        self._folder = tempfile.TemporaryDirectory()
        self._path = Path(self._folder.name) / "log"
        command = [sys.executable, "-c", SERVE, "--port", str(self.port), "--set", "server.shutdown_s=1"]
        with self._path.open("w") as file:
            self.process = subprocess.Popen([*command, *options], stderr=file, stdout=file, env=environment())
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=WAIT_S)
        try:
            wait_until(lambda: "serving on" in self.log or self.process.poll() is not None)
            assert self.process.poll() is None, self.log
        except AssertionError as error:
            log = self.log
            self.stop()
            raise AssertionError(f"it does not serve: {log[-5000:]}") from error

    @property
    def log(self):
        return self._path.read_text()

    def metrics(self):
        """Of each replica: its series, by name and labels without its own."""
        found = defaultdict(lambda: defaultdict(float))
        for name, labels, value in re.findall(r"^(\w[\w:]*)\{(.*)\} (\S+)$", self.http.get("/metrics").text, re.M):
            replica = re.search(r'\breplica="(\w+)"', labels)[1]
            state = re.search(r'\bstate="(\w+)"', labels)
            found[replica][f"{name} {state[1]}" if state else name] += float(value)
        return found

    def is_idle(self, num_replicas):
        seen = self.metrics()
        open_, held = ("vllm:num_requests_running", "vllm:num_requests_waiting"), "tl_engine_blocks held"
        idle = all(one[held] == 0 and not any(one[name] for name in open_) for one in seen.values())
        return len(seen) == num_replicas and idle

    def replica_pids(self):
        """Processes of replicas, among the descendants of this one."""
        parents, titles = {}, {}
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                pid = int(folder.name)
                parents[pid] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                titles[pid] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        ours = {self.process.pid}
        while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
            ours |= more
        return sorted(pid for pid in ours if titles.get(pid, "").startswith("ray::ServeReplica:outrider:replica"))

    def stop(self):
        self.http.close()
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(WAIT_S)
        finally:
            self.process.kill()
            self.last_log = self.log
            self._folder.cleanup()


def wait_until(is_true, wait_s=WAIT_S):
    end_s = time.monotonic() + wait_s
    while not is_true():
        assert time.monotonic() < end_s, "waited in vain"
        time.sleep(0.1)


@contextlib.contextmanager
def fleet(*options):
    served = Fleet(*options)
    try:
        yield served
    except BaseException:
        print(served.log[-20000:])
        raise
    finally:
        status = served.stop()
    assert status == 0, served.last_log


class Ended(NamedTuple):
    """How a client's stream ended: done, left, error (an event), refused (a status) or silent."""

    how: str
    replica: str | None = None
    code: str | None = None
    num_pieces: int = 0


async def stream(port, body, leave_after=None, is_rude=False, at_piece=None):
    """Make a streaming request; leave after so many pieces of text, -1 before the headers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        data = json.dumps({**body, "stream": True}).encode()
        head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
        await writer.drain()
        if leave_after == -1:
            return Ended("left")
        said = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        replica = re.search(r"x-replica: (\w+)", said)
        replica = replica and replica[1]
        if not said.startswith("http/1.1 200"):
            return Ended("refused", replica, said.split(" ")[1])
        num_pieces = 0
        while True:
            try:
                event = await reader.readuntil(b"\n\n")
            except asyncio.IncompleteReadError:
                return Ended("silent", replica, None, num_pieces)
            event = event[event.find(b"data: ") :]
            if event.startswith(b"data: [DONE]"):
                return Ended("done", replica, None, num_pieces)
            chunk = json.loads(event.removeprefix(b"data: "))
            if "error" in chunk:
                return Ended("error", replica, chunk["error"]["code"], num_pieces)
            num_pieces += 1
            if at_piece is not None:
                at_piece(replica, num_pieces)
            if leave_after is not None and num_pieces >= leave_after:
                return Ended("left", replica, None, num_pieces)
    finally:
        if is_rude:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.close()

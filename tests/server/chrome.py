"""Headless Chromium, driven over the pair of pipes it reads its protocol from."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from itertools import count

BINARY = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WAIT_S = 20.0


class Chrome:
    """One page. What it complains of is kept in `complaints`."""

    def __init__(self):
        read_in, self._in = os.pipe()
        self._out, write_out = os.pipe()
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        flags = (
            "--headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1280,1200 --remote-debugging-pipe"
        )
        command = f"exec {BINARY} {flags} --user-data-dir={self._folder.name} 3<&{read_in} 4>&{write_out}"
        self._process = subprocess.Popen(
            ["bash", "-c", command], pass_fds=(read_in, write_out), stderr=subprocess.DEVNULL
        )
        os.close(read_in)
        os.close(write_out)
        self._ids = count(1)
        self._rest = b""
        self._session = None
        self.complaints = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method, **params):
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._in, json.dumps(message).encode() + b"\0")
        while True:
            told = self._receive()
            params = told.get("params", {})
            is_error = params.get("entry", {}).get("level") == "error"
            if told.get("method") == "Runtime.exceptionThrown" or is_error:
                self.complaints.append(params)
            if told.get("id") == number:
                assert "error" not in told, told
                return told["result"]

    def _receive(self):
        while b"\0" not in self._rest:
            part = os.read(self._out, 1 << 16)
            assert part, "chromium has ended"
            self._rest += part
        first, _, self._rest = self._rest.partition(b"\0")
        return json.loads(first)

    def evaluate(self, expression):
        told = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def wait(self, expression):
        end_s = time.monotonic() + WAIT_S
        while not self.evaluate(expression):
            assert time.monotonic() < end_s, f"waited in vain for {expression}"
            time.sleep(0.05)

    def scheme(self, name):
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def screenshot(self):
        return base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"])

    def close(self):
        self._process.kill()
        self._process.wait(WAIT_S)
        os.close(self._in)
        os.close(self._out)
        self._folder.cleanup()

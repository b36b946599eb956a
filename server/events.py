"""Server-sent events, written one after another whoever writes."""

from collections.abc import Callable, Mapping
from typing import Any

import anyio
import msgspec
from starlette.types import Send

from server.config import ServerConfig

_DONE = b"data: [DONE]\n\n"
_PING = b": ping\n\n"
#   JSON has them as they are, and readers that split lines as Unicode does would cut an event in two
_LINE_ENDS = {"\u0085".encode(): rb"\u0085", "\u2028".encode(): rb"\u2028", "\u2029".encode(): rb"\u2029"}
_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-store"}


class EventSink:
    """The body of a streaming response. A client that takes nothing for `write_timeout_s` is given up."""

    def __init__(self, send: Send, config: ServerConfig, give_up: Callable[[], None]) -> None:
        self._send = send
        self._config = config
        self._give_up = give_up
        self._lock = anyio.Lock(fast_acquire=True)
        self._is_writing = False
        self._since_s = anyio.current_time()  # when the write under way began, or the last one ended

    async def start(self, headers: Mapping[str, str]) -> None:
        """Send the status and the headers."""
        raw = [(name.encode(), value.encode()) for name, value in {**_HEADERS, **headers}.items()]
        await self._write({"type": "http.response.start", "status": 200, "headers": raw})

    async def put(self, event: Any) -> None:
        """Send one event."""
        await self._body(_event(event), more=True)

    async def end(self, event: Any = None) -> None:
        """Send a last event, if any, and the mark of the end."""
        await self._body(_DONE if event is None else last_event(event), more=False)

    async def attend(self) -> None:
        """Send a comment whenever nothing else was sent for `ping_s`, and give up a client that is stuck; for ever."""
        patience_s = min(self._config.ping_s, self._config.write_timeout_s)
        while True:
            idle_s = anyio.current_time() - self._since_s
            if self._is_writing and idle_s >= self._config.write_timeout_s:
                self._give_up()
            elif not self._is_writing and idle_s >= self._config.ping_s:
                await self._body(_PING, more=True)
            await anyio.sleep(patience_s if self._is_writing else max(patience_s - idle_s, 0.01))

    async def _body(self, data: bytes, *, more: bool) -> None:
        await self._write({"type": "http.response.body", "body": data, "more_body": more})

    async def _write(self, message: dict[str, Any]) -> None:
        async with self._lock:
            self._is_writing, self._since_s = True, anyio.current_time()
            await self._send(message)
            self._is_writing, self._since_s = False, anyio.current_time()


def last_event(content: Any) -> bytes:
    """Write the last event of a stream, and the mark of the end."""
    return _event(content) + _DONE


def _event(content: Any) -> bytes:
    data = msgspec.json.encode(content)
    for line_end, escaped in _LINE_ENDS.items():
        if line_end in data:
            data = data.replace(line_end, escaped)
    return b"data: " + data + b"\n\n"

"""Server-sent events, written one after another whoever writes."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import msgspec
from starlette.types import Send

from server.config import ServerConfig

_DONE = b"data: [DONE]\n\n"
_PING = b": ping\n\n"
#   JSON has them as they are, and readers that split lines as Unicode does would cut an event in two
_LINE_ENDS = {"\u0085".encode(): rb"\u0085", "\u2028".encode(): rb"\u2028", "\u2029".encode(): rb"\u2029"}
_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-store"}


class EventSink:
    """The body of a streaming response, until it is closed.

    Whenever nothing else was sent for `ping_s` it sends a comment, by a task that `spawn` starts. A client that takes
    nothing for `write_timeout_s` is given up.
    """

    def __init__(
        self,
        send: Send,
        config: ServerConfig,
        give_up: Callable[[], None],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._send = send
        self._config = config
        self._give_up = give_up
        self._spawn = spawn
        self._loop = asyncio.get_running_loop()
        self._lock = asyncio.Lock()
        self._held: list[Any] = []
        self._is_writing = False
        self._since_s = self._loop.time()  # when the write under way began, or the last one ended
        self._patience_s = min(config.ping_s, config.write_timeout_s)
        self._next_look = self._loop.call_later(self._patience_s, self._look)

    def close(self) -> None:
        """Look after the client no longer."""
        self._next_look.cancel()

    async def start(self, headers: Mapping[str, str]) -> None:
        """Send the status and the headers."""
        raw = [(name.encode(), value.encode()) for name, value in {**_HEADERS, **headers}.items()]
        await self._write({"type": "http.response.start", "status": 200, "headers": raw})

    def hold(self, event: Any) -> None:
        """Send an event together with the next one, or with the end."""
        self._held.append(event)

    async def put(self, event: Any) -> None:
        """Send an event."""
        await self._write({"type": "http.response.body", "body": self._with_held(event), "more_body": True})

    async def end(self, event: Any = None) -> None:
        """Send a last event, if any, and the mark of the end."""
        if event is not None:
            self._held.append(event)
        await self._write({"type": "http.response.body", "body": self._with_held() + _DONE, "more_body": False})

    def _with_held(self, *events: Any) -> bytes:
        if not self._held:
            return b"".join(map(_event, events))
        held, self._held = self._held, []
        return b"".join(map(_event, (*held, *events)))

    def _look(self) -> None:
        idle_s = self._loop.time() - self._since_s
        if self._is_writing and idle_s >= self._config.write_timeout_s:
            self._give_up()
        elif not self._is_writing and idle_s >= self._config.ping_s:
            self._spawn(self._write({"type": "http.response.body", "body": _PING, "more_body": True}))
        delay_s = self._patience_s if self._is_writing else max(self._patience_s - idle_s, 0.01)
        self._next_look = self._loop.call_later(delay_s, self._look)

    async def _write(self, message: dict[str, Any]) -> None:
        async with self._lock:
            self._is_writing, self._since_s = True, self._loop.time()
            await self._send(message)
            self._is_writing, self._since_s = False, self._loop.time()


def last_event(content: Any) -> bytes:
    """Write the last event of a stream, and the mark of the end."""
    return _event(content) + _DONE


def _event(content: Any) -> bytes:
    data = msgspec.json.encode(content)
    if not data.isascii():
        for line_end, escaped in _LINE_ENDS.items():
            data = data.replace(line_end, escaped)
    return b"data: " + data + b"\n\n"

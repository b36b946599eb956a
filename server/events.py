"""Server-sent events, written one after another whoever writes."""

from collections.abc import Callable, Mapping
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
from starlette.types import Send

from server.config import ServerConfig

_DONE = b"data: [DONE]\n\n"
_PING = b": ping\n\n"
_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-store"}


class EventSink:
    """The body of a streaming response. A client that takes nothing for `write_timeout_s` is given up."""

    def __init__(self, send: Send, config: ServerConfig, give_up: Callable[[], None]) -> None:
        self._send = send
        self._config = config
        self._give_up = give_up
        self._lock = anyio.Lock()
        self._last_write_s = anyio.current_time()

    async def start(self, headers: Mapping[str, str]) -> None:
        """Send the status and the headers."""
        raw = [(name.encode(), value.encode()) for name, value in {**_HEADERS, **headers}.items()]
        await self._write({"type": "http.response.start", "status": 200, "headers": raw})

    async def put(self, event: Any) -> None:
        """Send one event."""
        await self._body(b"data: " + msgspec.json.encode(event) + b"\n\n", more=True)

    async def end(self, event: Any = None) -> None:
        """Send a last event, if any, and the mark of the end."""
        last = b"" if event is None else b"data: " + msgspec.json.encode(event) + b"\n\n"
        await self._body(last + _DONE, more=False)

    async def ping(self) -> None:
        """Send a comment whenever nothing else was sent for `ping_s`, for ever."""
        while True:
            wait_s = self._last_write_s + self._config.ping_s - anyio.current_time()
            if wait_s > 0:
                await anyio.sleep(wait_s)
            else:
                await self._body(_PING, more=True)

    async def _body(self, data: bytes, *, more: bool) -> None:
        await self._write({"type": "http.response.body", "body": data, "more_body": more})

    async def _write(self, message: dict[str, Any]) -> None:
        async with self._lock:
            with anyio.move_on_after(self._config.write_timeout_s) as limit:
                await self._send(message)
            self._last_write_s = anyio.current_time()
        if limit.cancelled_caught:
            self._give_up()
            await anyio.lowlevel.checkpoint()

"""Connections: whatever is asked on one ends with it, and nobody holds one for nothing."""

import asyncio
import logging
import resource
import sys
from collections import Counter
from collections.abc import Callable, MutableMapping
from typing import Any

import httptools
import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from server.config import ServerConfig
from server.errors import ApiError, new_request_id

_MAX_AHEAD = 64  # requests that wait on a connection behind the one that is answered
_LINGER_S = 2.0  # what is left of a refused body is read for so long, lest the refusal be lost on its way
_SPARE_FILES = 64

_log = logging.getLogger("outrider.server")


class SeldomLog:
    """Warns once a second at most, and says how often it has held its tongue."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._last_s = float("-inf")
        self._num_untold = 0

    def warning(self, message: str) -> None:
        """Log a line, or count it."""
        if self._now() - self._last_s < 1:
            self._num_untold += 1
            return
        untold, self._num_untold, self._last_s = self._num_untold, 0, self._now()
        _log.warning("%s%s", message, f" ({untold} more like this)" if untold else "")


class Connections:
    """All that are open: how many there may be, in all and from one address."""

    def __init__(self, config: ServerConfig, now: Callable[[], float]) -> None:
        self.config = config
        self.open: set[Connection] = set()
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = min(config.max_connections, max(1, files - _SPARE_FILES))
        self._by_address: Counter[str] = Counter()
        self._refused = SeldomLog(now)
        self._failed = SeldomLog(now)

    def connect(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any], _loop: Any = None
    ) -> "Connection":
        """Make the protocol of a new connection, as uvicorn asks for it."""
        return Connection(self, config, server_state, app_state, _loop)

    def admit(self, connection: "Connection") -> bool:
        """Count a connection in; False where there are too many, and it is to be refused."""
        if len(self.open) >= self._most:
            self._refused.warning(f"{self._most} connections are open: one more is refused")
            return False
        most = self.config.max_connections_per_address
        if most is not None and self._by_address[connection.address] >= most:
            self._refused.warning(f"{most} connections of {connection.address} are open: one more is refused")
            return False
        self.open.add(connection)
        self._by_address[connection.address] += 1
        return True

    def leave(self, connection: "Connection") -> None:
        """Count a connection out."""
        if connection in self.open:
            self.open.remove(connection)
            self._by_address[connection.address] -= 1
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]

    def end_uploads(self) -> int:
        """Close those whose request has not come whole; how many there were."""
        uploads = [connection for connection in self.open if connection.is_uploading]
        for connection in uploads:
            connection.abort()
        return len(uploads)

    def end_all(self) -> None:
        """Close all of them, whatever is left unsaid."""
        for connection in list(self.open):
            connection.abort()

    def note_loop_error(self, loop: asyncio.AbstractEventLoop, context: MutableMapping[str, Any]) -> None:
        """Handle what the loop complains of: where no more files may be opened, it does so for every attempt."""
        if "accept()" in context.get("message", ""):
            self._failed.warning(f"no connection can be accepted: {context.get('exception')}")
        else:
            loop.default_exception_handler(dict(context))


class Connection(HttpToolsProtocol):
    """One client's connection.

    It is read at all times, so that its end is seen at once, and that ends all that was asked on it. A client may
    send requests ahead; how much of that is kept is bounded, and so is the time for a head and for a body to come.

    It stands on inner parts of uvicorn's protocol (`cycle`, `pipeline`, `flow`, `_start_asgi_task`), which is why the
    project asks for one minor version of it.
    """

    def __init__(
        self, all_: Connections, config: Config, server_state: ServerState, app_state: dict[str, Any], loop: Any
    ) -> None:
        super().__init__(config, server_state, app_state, loop)
        self.address = ""
        self._all = all_
        self._running: RequestResponseCycle | None = None  # the one that is answered; `cycle` is the one being read
        self._is_in_head = True
        self._num_head_bytes = 0
        self._num_raw_bytes = 0  # since anything was last made of them
        self._num_bytes_ahead = 0
        self._refusal: ApiError | None = None
        self._patience: asyncio.TimerHandle | None = None

    # from the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, or refuse where there are too many."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        if self._all.admit(self):
            self._wait(self._all.config.header_timeout_s, self._give_up_head)
        else:
            self._refuse(ApiError(503, "too many connections", code="overloaded", headers={"retry-after": "1"}))

    def connection_lost(self, exc: Exception | None) -> None:
        """End whatever was asked here."""
        self._all.leave(self)
        self._wait(None)
        self._end_requests()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on."""
        self._unset_keepalive_if_required()
        if self._is_in_head and self._patience is None:
            self._wait(self._all.config.header_timeout_s, self._give_up_head)
        self._num_raw_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # nothing here can be upgraded to: the request is answered as it is
            pass
        except httptools.HttpParserError as error:
            self._refuse(self._refusal or ApiError(400, f"this is no HTTP request: {error}", code="invalid_http"))
            return
        if self._num_raw_bytes > self._all.config.max_header_bytes:
            self._refuse(self._too_large())
        elif self.is_uploading and not self.cycle.response_complete:
            self._wait(self._all.config.body_timeout_s, self._give_up_body)

    # from the parser

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._is_in_head = True
        self._num_head_bytes = self._num_raw_bytes = 0

    def on_url(self, url: bytes) -> None:
        """Take a part of the URL."""
        super().on_url(url)
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or a trailer."""
        super().on_header(name, value)
        self._count_head(len(name) + len(value) + len(": \r\n"))

    def on_headers_complete(self) -> None:
        """Start the request, or keep it until those before it are answered."""
        self._is_in_head = False
        self._num_raw_bytes = 0
        self._wait(None)
        super().on_headers_complete()
        if self.pipeline:
            self._keep_reading()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._num_raw_bytes = 0
        super().on_body(body)
        if self.pipeline:
            self._num_bytes_ahead += len(body)
            self._keep_reading()

    def on_message_complete(self) -> None:
        """Note that a request has come whole."""
        self._num_raw_bytes = 0
        self._is_in_head = True
        self._wait(None)
        self.cycle.more_body = False
        if not self.cycle.response_complete:
            super().on_message_complete()
        elif not self.transport.is_closing():  # the rest of one that was refused
            delay_s = self.timeout_keep_alive
            self.timeout_keep_alive_task = self.loop.call_later(delay_s, self.timeout_keep_alive_handler)

    # from the exchange

    def on_response_complete(self) -> None:
        """Go on to the next request."""
        is_unread = self.is_uploading and not self.pipeline
        super().on_response_complete()
        if is_unread:
            self._wait(_LINGER_S, self.abort)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGIApp) -> None:  # type: ignore[override]
        self._running = cycle
        self._num_bytes_ahead = sum(len(waiting.body) for waiting, _ in self.pipeline)
        if cycle.scope["http_version"] == "1.0":
            app = _until_closed(app, cycle)
        super()._start_asgi_task(cycle, app)  # type: ignore[arg-type]

    # from the server

    def shutdown(self) -> None:
        """Answer what is under way, and nothing more."""
        self.pipeline.clear()
        if self._running is not None and self._is_answering:
            self._running.keep_alive = False
        else:
            self.transport.close()

    @property
    def is_uploading(self) -> bool:
        """Whether the head of a request is here, and its body not whole."""
        return self.cycle is not None and bool(self.cycle.more_body)

    def abort(self) -> None:
        """Close at once."""
        self.transport.abort()

    # bounds

    @property
    def _is_answering(self) -> bool:
        return self._running is not None and not self._running.response_complete

    def _count_head(self, num_bytes: int) -> None:
        self._num_head_bytes += num_bytes
        if self._num_head_bytes > self._all.config.max_header_bytes:
            self._refusal = self._too_large()
            raise self._refusal

    def _too_large(self) -> ApiError:
        most = self._all.config.max_header_bytes
        return ApiError(431, f"the headers are larger than {most} bytes", code="headers_too_large")

    def _keep_reading(self) -> None:
        """Go on reading what is sent ahead, lest the end of the connection be missed; there is an end to it."""
        if len(self.pipeline) > _MAX_AHEAD or self._num_bytes_ahead > self._all.config.max_body_bytes:
            self.abort()
        else:
            self.flow.resume_reading()

    def _wait(self, delay_s: float | None, give_up: Callable[[], None] | None = None) -> None:
        """Be patient for so long; with None, for ever."""
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if delay_s is not None and give_up is not None:
            self._patience = self.loop.call_later(delay_s, give_up)

    def _give_up_head(self) -> None:
        patience_s = self._all.config.header_timeout_s
        if self._is_answering:  # nobody waits for a request that was begun ahead
            self._wait(patience_s, self._give_up_head)
        else:
            self._refuse(ApiError(408, f"the head of a request did not come within {patience_s} s", code="timeout"))

    def _give_up_body(self) -> None:
        patience_s = self._all.config.body_timeout_s
        if self.flow.read_paused or self.cycle is not self._running:  # it is not the client who is slow
            self._wait(patience_s, self._give_up_body)
        else:
            self._refuse(ApiError(408, f"nothing more of the body came within {patience_s} s", code="timeout"))

    def _refuse(self, error: ApiError) -> None:
        """Say why, where nothing else is being said, and close."""
        self._wait(None)
        if self._running is not None and self._running.response_started and self._is_answering:
            self.abort()
            return
        self._end_requests()
        body = msgspec.json.encode(error.body)
        headers = {
            "content-type": "application/json",
            "content-length": str(len(body)),
            "connection": "close",
            "x-request-id": new_request_id(),
            **error.headers,
        }
        lines = b"".join(f"{name}: {value}\r\n".encode() for name, value in headers.items())
        self.transport.write(STATUS_LINE[error.status] + lines + b"\r\n" + body)
        self.transport.close()

    def _end_requests(self) -> None:
        """Let whoever works for this connection know that it is gone."""
        self.pipeline.clear()
        if self._running is not None and self._is_answering:
            self._running.disconnected = True
            self._running.message_event.set()


def _until_closed(app: ASGIApp, cycle: RequestResponseCycle) -> ASGIApp:
    """Let an answer of unknown length end with its connection: HTTP/1.0 knows no chunks."""

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        is_open_ended = False

        async def plain(message: Message) -> None:
            nonlocal is_open_ended
            if message["type"] == "http.response.start":
                is_open_ended = all(name.lower() != b"content-length" for name, _ in message.get("headers", ()))
                if is_open_ended:
                    cycle.chunked_encoding, cycle.expected_content_length = False, sys.maxsize
            elif is_open_ended and not message.get("more_body", False):
                await send({**message, "more_body": True})
                cycle.expected_content_length = 0
                message = {"type": "http.response.body", "body": b""}
            await send(message)

        await app(scope, receive, plain)

    return answered

"""What every request passes first: whom it speaks to is checked; it gets a name, and is counted by its outcome."""

import ipaddress
from collections.abc import Collection

from prometheus_client import Counter
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.config import ServerConfig
from server.errors import ApiError, new_request_id

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class Door:
    """An application behind the door.

    On a loopback address the Host header must name this machine: a page of another site whose name has been made to
    lead here (DNS rebinding) sends that name, and could read all that is answered.
    """

    def __init__(self, app: ASGIApp, config: ServerConfig, paths: Collection[str], requests: Counter) -> None:
        self._app = app
        self._paths = paths
        self._requests = requests
        self._is_local = _is_loopback(config.host)
        self._allowed = {name.lower() for name in config.allowed_hosts}
        if self._is_local:
            self._allowed.add(config.host.lower())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 499

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = list(message.get("headers", ()))
                if all(name.lower() != b"x-request-id" for name, _ in headers):
                    message = {**message, "headers": [*headers, (b"x-request-id", new_request_id().encode())]}
            await send(message)

        try:
            refusal = self._refusal(scope)
            await (self._app if refusal is None else refusal.response())(scope, receive, named)
        finally:
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._requests.labels(method, self._handler(scope["path"]), f"{status // 100}xx").inc()

    def _refusal(self, scope: Scope) -> ApiError | None:
        sent = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(sent) > 1:  # whoever passed it on may have gone by another of them (RFC 9112, 3.2)
            return ApiError(400, f"{len(sent)} Host headers: one at the most", code="invalid_http")
        if not self._allowed:
            return None
        name = _without_port(sent[0]).lower() if sent else "localhost"  # none is sent by no page
        if name in self._allowed or (self._is_local and _is_loopback(name)):
            return None
        return ApiError(403, f"the host is {name!r}: one of server.allowed_hosts", code="host_not_allowed")

    def _handler(self, path: str) -> str:
        """Name what was asked for; whatever clients make up is one."""
        if path in self._paths:
            return path
        return "/v1/models/{id}" if path.startswith("/v1/models/") else "none"


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")

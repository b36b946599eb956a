"""The entrance: takes requests from Ray Serve's proxies, sends each to a replica, and says so where that one dies."""

import logging
from collections.abc import Iterable
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from models.extras import need
from server.config import ServerConfig
from server.errors import ApiError
from server.events import last_event
from server.replicas import roster
from server.replicas.affinity import prefix_keys
from server.replicas.asked import REPLICA_HEADER, Asked, Head

_log = logging.getLogger("outrider.server")

_RETRY = {"retry-after": "1"}


class Entrance:
    """The application over a handle of the replicas. It reads bodies, and of them only what is needed to route."""

    def __init__(self, replicas: Any, config: ServerConfig) -> None:
        self._answer = replicas.options(method_name="answer", stream=True)
        self._max_body_bytes = config.max_body_bytes
        self._lost: type[Exception] = need("ray.exceptions", "ray").RayError
        self._refused: type[Exception] = need("ray.serve.exceptions", "ray").RayServeException

    def __serve_build_asgi_app__(self) -> Starlette:
        """Give Ray Serve the application."""
        return Starlette(routes=[Route("/metrics", self.metrics, methods=["GET"]), Mount("/", self.forward)])

    async def metrics(self, request: Request) -> Response:
        """`GET /metrics`: every replica's, with its name as the label `replica`."""
        asked = _asked(request, b"")
        texts: dict[str, str] = {}
        for replica in [None, *roster.names]:
            if replica in texts:
                continue
            try:
                head, *parts = [part async for part in self._answer.remote(asked._replace(replica=replica))]
            except self._lost as error:
                _log.warning("no metrics of replica %s: %s", replica, _first_line(error))
                continue
            if head.status != 200:
                return Response(b"".join(parts), head.status)
            texts[dict(head.headers)[REPLICA_HEADER].decode()] = b"".join(parts).decode()
        registry = CollectorRegistry()
        registry.register(_Together(texts))
        return Response(generate_latest(registry), headers={"content-type": CONTENT_TYPE_LATEST})

    async def forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with what a replica answers."""
        request = Request(scope, receive)
        try:
            body = await self._read(request)
        except ClientDisconnect:
            return
        exchange = _Exchange(send)
        answer = self._answer.remote(_asked(request, body))
        try:
            async for part in answer:
                await exchange.say(part)
            await exchange.end()
        except (self._lost, self._refused) as error:
            _log.error("a replica is lost to a request: %s", _first_line(error))
            await exchange.fail(
                scope, receive, ApiError(503, "the replica has died", code="replica_died", headers=_RETRY)
            )
        finally:
            answer.cancel()  # whoever has left, has left there too; nothing where it has ended

    async def _read(self, request: Request) -> bytes:
        """Read a body; of one that is too large, as much as lets the replica see it."""
        data = bytearray()
        async for part in request.stream():
            data += part
            if len(data) > self._max_body_bytes:
                break
        return bytes(data[: self._max_body_bytes + 1])


class _Exchange:
    """What a client has been told so far."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._head: Head | None = None

    async def say(self, part: Head | bytes) -> None:
        """Say the next part."""
        if isinstance(part, bytes):
            await self._send({"type": "http.response.body", "body": part, "more_body": True})
        else:
            self._head = Head(*part)
            await self._send({"type": "http.response.start", "status": part.status, "headers": part.headers})

    async def end(self) -> None:
        """Say that this was all."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def fail(self, scope: Scope, receive: Receive, error: ApiError) -> None:
        """Say that no more will come: with a status, or as the last event; a body that was begun breaks off."""
        if self._head is None:
            await error.response()(scope, receive, self._send)
        elif any(value.startswith(b"text/event-stream") for _, value in self._head.headers):
            await self._send({"type": "http.response.body", "body": last_event(error.body), "more_body": False})
        else:
            raise error


class _Together(Collector):
    """The metrics of all replicas as one text."""

    def __init__(self, texts: dict[str, str]) -> None:
        self._texts = texts

    def collect(self) -> Iterable[Metric]:
        """Give each metric once, with the samples of all."""
        found: dict[str, Metric] = {}
        for replica, text in self._texts.items():
            for family in text_string_to_metric_families(text):
                together = found.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    together.samples.append(sample._replace(labels={**sample.labels, "replica": replica}))
        return found.values()


def _asked(request: Request, body: bytes) -> Asked:
    scope = request.scope
    salt = request.headers.get("authorization", "").encode()
    keys = prefix_keys(body, salt) if body else []
    headers = [(bytes(name), bytes(value)) for name, value in scope["headers"]]
    client = None if request.client is None else (request.client.host, request.client.port)
    return Asked(request.method, scope["path"], scope["query_string"], headers, client, body, keys)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]

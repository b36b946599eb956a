"""One replica: an engine, the server's whole application over it, and requests that come as messages."""

import asyncio
import logging
from collections.abc import AsyncGenerator, MutableMapping
from typing import Any

from kvpool import KvPoolError
from models.extras import need
from server.app import build_app
from server.config import RuntimeConfig
from server.replicas.asked import REPLICA_HEADER, Asked, Head
from server.serve import make_engine
from server.service import Service

_log = logging.getLogger("outrider.server")

_OVER = "over"  # the application has returned, or raised

Message = MutableMapping[str, Any]


class Replica:
    """What Ray Serve keeps as many of as it is told, and replaces when one fails its health check."""

    async def __init__(self, config: RuntimeConfig, log_level: str) -> None:  # type: ignore[misc]  # Ray Serve awaits it
        logging.basicConfig(level=log_level, format="%(asctime)s %(levelname)s %(message)s", force=True)
        self.name = str(need("ray.serve", "ray").get_replica_context().replica_id.unique_id)
        self._engine, served = make_engine(config)
        await self._engine.__aenter__()
        self._service = Service(self._engine, served, config.server)
        self._app = build_app(self._service)
        self._tasks: set[asyncio.Task[None]] = set()
        self._keep(self._service.sample())

    async def answer(self, asked: Asked) -> AsyncGenerator[Head | bytes, None]:
        """Answer one request: a Head, then the body in parts, each whatever was ready.

        When the caller goes, its client has gone: the application hears of it as on any connection that closes.
        """
        said: asyncio.Queue[Message] = asyncio.Queue()
        has_left = asyncio.Event()
        task = self._keep(self._run(asked, said, has_left))
        try:
            is_over = False
            while not is_over:
                message = await said.get()
                if message["type"] == "http.response.start":
                    headers = [*message.get("headers", ()), (REPLICA_HEADER, self.name.encode())]
                    yield Head(message["status"], headers)
                    continue
                parts = [message]
                while not said.empty():
                    parts.append(said.get_nowait())
                is_over = any(part["type"] == _OVER or not part.get("more_body", False) for part in parts)
                if body := b"".join(part.get("body", b"") for part in parts):
                    yield body
            await task  # raises what the application raised
        finally:
            has_left.set()
            task.cancel()

    async def _run(self, asked: Asked, said: "asyncio.Queue[Message]", has_left: asyncio.Event) -> None:
        is_read = False

        async def receive() -> Message:
            nonlocal is_read
            if not is_read:
                is_read = True
                return {"type": "http.request", "body": asked.body, "more_body": False}
            await has_left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            said.put_nowait(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": asked.method,
            "scheme": "http",
            "path": asked.path,
            "raw_path": asked.path.encode(),
            "query_string": asked.query,
            "root_path": "",
            "headers": asked.headers,
            "client": asked.client,
            "server": None,
        }
        try:
            await self._app(scope, receive, send)
        finally:
            said.put_nowait({"type": _OVER})

    def check_health(self) -> None:
        """Raise where the engine has given up; Ray Serve then makes another replica of this one."""
        if self._engine.failure is not None:
            raise RuntimeError(f"the engine has failed: {self._engine.failure}")

    async def __del__(self) -> None:
        """End in good order, as Ray Serve asks for it once what is open has ended or the time for it is up."""
        num_cut = self._service.close()
        for task in self._tasks:
            task.cancel()
        await self._engine.__aexit__(None, None, None)
        try:
            self._engine.check()
        except KvPoolError as error:
            _log.error("the blocks do not add up: %s", error)
        _log.info("stopped; %d requests were cut short; %d blocks are held", num_cut, self._engine.stats().blocks.held)

    def _keep(self, work: Any) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

"""The server behind middleware; run as a process of its own."""

import logging
import sys
from functools import partial

import anyio
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import Response

from server.config import load_config, parse_override
from server.serve import serve


class SlowSend:
    """Awaits before every message, the headers included, as one that logs or compresses may."""

    def __init__(self, app):
        self._app = app

    async def __call__(self, scope, receive, send):
        async def later(message):
            await anyio.sleep(0.01)
            await send(message)

        await self._app(scope, receive, later if scope["type"] == "http" else send)


class CutShort:
    """Gives every POST a fifth of a second, none of which gets to the client."""

    def __init__(self, app):
        self._app = app

    async def __call__(self, scope, receive, send):
        if scope.get("method") != "POST":
            await self._app(scope, receive, send)
            return

        async def never(message):
            await anyio.sleep_forever()

        with anyio.move_on_after(0.2):
            await self._app(scope, receive, never)
        await Response(status_code=504)(scope, receive, send)


class PassOn(BaseHTTPMiddleware):
    """Starlette's own base, which wraps both `receive` and `send`."""

    async def dispatch(self, request, call_next):
        return await call_next(request)


if __name__ == "__main__":
    kind, *options = sys.argv[1:]
    logging.basicConfig(level=logging.INFO)
    overrides = {"server.port": 0, "server.shutdown_s": 0} | dict(map(parse_override, options))
    middleware = [Middleware({"slow_send": SlowSend, "base_http": PassOn, "cut_short": CutShort}[kind])]
    sys.exit(anyio.run(partial(serve, load_config(None, overrides), middleware=middleware)))

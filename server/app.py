"""The ASGI application: what there is to ask for, and how a refusal looks."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from server.door import Door
from server.errors import ApiError
from server.generation import LEFT
from server.service import Service


def build_app(service: Service, middleware: Sequence[Middleware] = ()) -> ASGIApp:
    """Put a service behind its routes, within `middleware`, behind the door."""
    routes = [
        Route("/v1/completions", service.completions, methods=["POST"]),
        Route("/v1/chat/completions", service.chat_completions, methods=["POST"]),
        Route("/", service.page, methods=["GET"]),
        Route("/health", service.health, methods=["GET"]),
        Route("/live", service.live, methods=["GET"]),
        Route("/metrics", service.metrics, methods=["GET"]),
        Route("/openapi.json", service.openapi, methods=["GET"]),
        Route("/tokenize", service.tokenize, methods=["POST"]),
        Route("/detokenize", service.detokenize, methods=["POST"]),
        Route("/v1/models", service.models, methods=["GET"]),
        Route("/v1/models/{id:path}", service.model, methods=["GET"]),
    ]

    @asynccontextmanager
    async def sampling(_: Starlette) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(service.sample)
            yield
            tasks.cancel_scope.cancel()

    app = Starlette(
        routes=routes,
        middleware=middleware,
        exception_handlers={ApiError: _refuse, HTTPException: _refuse_http, ClientDisconnect: _gone, Exception: _fail},
        lifespan=sampling,
    )
    app.router.redirect_slashes = False
    origins = service.config.allowed_origins
    within: ASGIApp = app
    if origins:
        within = CORSMiddleware(
            app,
            allow_origins=origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["x-request-id", "retry-after"],
            allow_private_network=True,
        )
    paths = frozenset(route.path for route in routes)
    return Door(within, service.config, paths, service.measures.requests)


async def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


async def _refuse_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}"
    return ApiError(error.status_code, message, headers=error.headers).response()


async def _gone(_: Request, __: Exception) -> Response:
    return Response(status_code=LEFT)


async def _fail(_: Request, __: Exception) -> Response:
    return ApiError(500, "internal error; the server's log has more").response()

"""Running the server: the model, the engine, a socket, and an end in good order."""

import asyncio
import contextlib
import logging
import math
import signal
import socket
import time
from collections.abc import Iterator, Sequence

import anyio
import uvicorn
from starlette.middleware import Middleware

from actors import Engine
from kvpool import KvPoolError
from server.app import build_app
from server.config import ConfigError, RuntimeConfig, ServerConfig
from server.connections import Connections
from server.load import raise_file_limit
from server.model import Served, load_model
from server.passes import passes_of
from server.service import Service

EXIT_CLEAN = 0
EXIT_CUT_SHORT = 3
EXIT_BLOCKS_LOST = 4

_KEEPALIVE_S = 30
_UNREAD_BYTES = 64 * 1024  # what the kernel keeps of a stream whose client does not read
_LAST_WORDS_S = 2.0
_BACKLOG = 4096
_ACCEPTED_AT_ONCE = 100  # and tried so often where no file may be opened

_log = logging.getLogger("outrider.server")


async def serve(config: RuntimeConfig, *, middleware: Sequence[Middleware] = ()) -> int:
    """Serve until told to stop (SIGTERM, SIGINT; a second one hurries), and give the exit status.

    EXIT_CLEAN: whatever was open came to its end. EXIT_CUT_SHORT: some of it was cancelled at the deadline. In both
    every block is back; EXIT_BLOCKS_LOST where not. Raises ConfigError for a model or an address that cannot be had.
    """
    raise_file_limit()
    listener = _listen(config.server)
    with contextlib.closing(listener):
        engine, served = make_engine(config)
        return await _serve(config, engine, served, listener, middleware)


def make_engine(config: RuntimeConfig) -> tuple[Engine, Served]:
    """Load the model and make the engine for it. Raises ConfigError for a model that cannot be had."""
    _log.info("loading %s", config.model.source)
    speculates = config.engine.speculative.draft != "none"
    measures_passes = config.engine.adaptive and speculates
    served = load_model(config.model, config.engine.speculative, measures_passes=measures_passes)
    run_pass = passes_of(config.model)
    engine = Engine(
        served.model, config.engine, proposer=served.proposer, run_pass=run_pass, pass_cost=served.pass_cost
    )
    return engine, served


async def _serve(
    config: RuntimeConfig, engine: Engine, served: Served, listener: socket.socket, middleware: Sequence[Middleware]
) -> int:
    async with engine:
        service = Service(engine, served, config.server)
        connections = Connections(config.server, time.monotonic)
        asyncio.get_running_loop().set_exception_handler(connections.note_loop_error)
        server = _Server(
            uvicorn.Config(
                build_app(service, middleware),
                http=connections.connect,  # type: ignore[arg-type]  # anything that makes a protocol will do
                ws="none",
                log_config=None,
                access_log=False,
                lifespan="on",
                timeout_graceful_shutdown=math.ceil(config.server.shutdown_s + 2 * _LAST_WORDS_S),
                backlog=_ACCEPTED_AT_ONCE,
            )
        )
        async with anyio.create_task_group() as tasks:
            ending = _Ending(server, service, connections, config.server.shutdown_s)
            tasks.start_soon(ending.wait)
            await server.serve(sockets=[listener])
            tasks.cancel_scope.cancel()
    held = engine.stats().blocks.held
    try:
        engine.check()
    except KvPoolError as error:
        _log.error("the blocks do not add up: %s", error)
        return EXIT_BLOCKS_LOST
    if held:
        _log.error("%d blocks are still held", held)
        return EXIT_BLOCKS_LOST
    _log.info("stopped; %d requests were cut short; every block is back", ending.num_cut)
    return EXIT_CUT_SHORT if ending.num_cut else EXIT_CLEAN


class _Server(uvicorn.Server):
    """Leaves signals to `_Ending`, so that the exit status can say how it went, and says when it listens."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_BACKLOG)
            host, port = listener.getsockname()[:2]
            _log.info("serving on http://%s:%d", f"[{host}]" if ":" in host else host, port)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class _Ending:
    """Waits to be told to stop; then what is open may finish until the deadline."""

    def __init__(self, server: uvicorn.Server, service: Service, connections: Connections, shutdown_s: float) -> None:
        self.num_cut = 0
        self._server = server
        self._service = service
        self._connections = connections
        self._shutdown_s = shutdown_s

    async def wait(self) -> None:
        """Stop listening at the first signal; cancel what is left at the deadline or the second one."""
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            await anext(signals)
            _log.info("stopping: %d s for what is open", self._shutdown_s)
            self._server.should_exit = True
            with anyio.move_on_after(self._shutdown_s):
                await anext(signals)
        self.num_cut = self._service.close() + self._connections.end_uploads()
        await anyio.sleep(_LAST_WORDS_S)  # for who reads what became of it
        self._connections.end_all()


def _listen(config: ServerConfig) -> socket.socket:
    """Take the address; who connects is refused until the model is there. Clients' sockets inherit the options."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ConfigError(f"server.host is {config.host!r}: {error}") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        #   a slow reader's backlog waits in its own sequence, not in the kernel
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNREAD_BYTES)
        #   a peer may vanish without a word, and be waited for by nobody but the engine
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * config.write_timeout_s))
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise ConfigError(f"server.host is {config.host!r}, server.port {config.port}: {error}") from None
    return listener

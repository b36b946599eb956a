"""Running replicas: deployed, waited for, and taken down again in good order."""

import logging
import math
import signal
from typing import Any, NamedTuple

import anyio

from models.extras import need
from server.config import ConfigError, RuntimeConfig, ServerConfig
from server.replicas.entrance import Entrance
from server.replicas.replica import Replica
from server.replicas.router import PrefixRouter

_APP = "outrider"
_MANY = 1_000_000
_HEALTH_PERIOD_S = 2.0
_QUIET = {"log_level": "WARNING", "enable_access_log": False}  # replicas say themselves what became of a request
_PROXYS_OWN = (
    "max_connections",
    "max_connections_per_address",
    "max_header_bytes",
    "header_timeout_s",
    "body_timeout_s",
    "write_timeout_s",
)

_log = logging.getLogger("outrider.server")


class Replicas(NamedTuple):
    """How many there are: as many as asked for, or as many as there is work for between two bounds."""

    fewest: int
    most: int


def check_replicated(config: ServerConfig) -> None:
    """Raise ConfigError for what has no effect where Ray Serve's proxies keep the connections."""
    usual = ServerConfig()
    changed = [name for name in _PROXYS_OWN if getattr(config, name) != getattr(usual, name)]
    if config.port == 0:
        raise ConfigError("server.port is 0: with --ray a port that is known, every machine listens on it")
    if changed:
        said = "\n".join(
            f"server.{name} is {getattr(config, name)}: with --ray no other than {getattr(usual, name)}, "
            "connections are Ray Serve's to bound"
            for name in changed
        )
        raise ConfigError(said)


async def serve_replicas(config: RuntimeConfig, replicas: Replicas, log_level: str, *, owns_ray: bool) -> int:
    """Deploy on the cluster that this process is connected to, until told to stop (SIGTERM, SIGINT); the exit status.

    What is open at the end may finish for `server.shutdown_s`. Ray Serve itself stays where the cluster is not this
    process's own.
    """
    serve = need("ray.serve", "ray")
    serve.start(http_options={"host": config.server.host, "port": config.server.port}, logging_config=_QUIET)
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        await anyio.to_thread.run_sync(_deploy, serve, config, replicas, log_level)
        _log.info("serving on http://%s:%d", config.server.host, config.server.port)
        await anext(signals)
        _log.info("stopping: %d s for what is open", config.server.shutdown_s)
        await anyio.to_thread.run_sync(serve.shutdown if owns_ray else lambda: serve.delete(_APP))
    return 0


def _deploy(serve: Any, config: RuntimeConfig, replicas: Replicas, log_level: str) -> None:
    engine = config.engine
    at_once = _MANY if engine.max_waiting is None else engine.max_running + engine.max_waiting
    settings: dict[str, Any] = {
        "max_ongoing_requests": at_once + engine.max_running,  # what is too much is the engine's to refuse
        "health_check_period_s": _HEALTH_PERIOD_S,
        "graceful_shutdown_timeout_s": config.server.shutdown_s,
        "graceful_shutdown_wait_loop_s": 0.2,
        "request_router_config": need("ray.serve.config", "ray").RequestRouterConfig(request_router_class=PrefixRouter),
    }
    if replicas.fewest == replicas.most:
        settings["num_replicas"] = replicas.fewest
    else:
        settings["autoscaling_config"] = {
            "min_replicas": replicas.fewest,
            "max_replicas": replicas.most,
            "target_ongoing_requests": engine.max_running,
        }
    engines = serve.deployment(name="replica", **settings)(Replica).bind(config, log_level)
    entrance = serve.deployment(
        name="entrance",
        max_ongoing_requests=_MANY,
        ray_actor_options={"num_cpus": 0},
        health_check_period_s=_HEALTH_PERIOD_S,
        graceful_shutdown_timeout_s=math.ceil(config.server.shutdown_s),
        graceful_shutdown_wait_loop_s=0.2,
    )(serve.ingress()(Entrance))
    serve.run(entrance.bind(engines, config.server), name=_APP, route_prefix="/", logging_config=_QUIET)

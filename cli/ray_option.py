"""`--ray [ADDRESS]`: connect to a Ray cluster, or start one on this machine for as long as the command runs."""

import logging
import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from cli.endings import Unusable
from models.extras import need

F = TypeVar("F", bound=Callable[..., Any])

LOCAL = "local"
_OBJECT_STORE_BYTES = 100 * 2**20  # little is ever kept in it


def ray_option(what: str) -> Callable[[F], F]:
    """Add the option to a command; `what` is what it does there."""
    return click.option(
        "--ray",
        "ray_address",
        metavar="[ADDRESS]",
        is_flag=False,
        flag_value=LOCAL,
        help=f"{what} ADDRESS is a cluster's, as in 10.0.0.1:6379, or auto; without one Ray is started here.",
    )


def connect(address: str, min_cpus: int = 1) -> Any:
    """Connect this process to a cluster and give Ray. Raises Unusable where Ray or the cluster is not there."""
    try:
        ray = need("ray", "ray")
    except ImportError as error:
        raise Unusable(str(error)) from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # a machine's accelerators are nobody's here
    settings: dict[str, Any] = {"address": address, "logging_level": logging.WARNING}
    if address == LOCAL:
        num_cpus = max(min_cpus, len(os.sched_getaffinity(0)))
        settings |= {
            "num_cpus": num_cpus,
            "object_store_memory": _OBJECT_STORE_BYTES,
            "include_dashboard": False,
        }
    try:
        ray.init(**settings)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise Unusable(f"--ray {address}: {error}") from None
    return ray

"""The options of `outrider sim` that make a fleet."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from cli.options import NOT_NEGATIVE, OutageType, SimOption
from sims.fleet.config import MOST_REPLICAS, POLICIES

Command = TypeVar("Command", bound=Callable[..., Any])

_OUTAGE = OutageType()


def fleet(command: Command) -> Command:
    """Add replicas, and how requests find theirs."""
    options = (
        _option(
            "--replicas",
            type=click.IntRange(1, MOST_REPLICAS),
            default=1,
            help="Engines behind a router; 1 is one engine and no router.",
        ),
        _option(
            "--router", type=click.Choice(POLICIES), default="round-robin", help="Which replica a request goes to."
        ),
        _option(
            "--lag-ms", type=NOT_NEGATIVE, default=50.0, help="How old at most is what the router knows of queues."
        ),
        _option(
            "--retry-ms",
            type=NOT_NEGATIVE,
            default=100.0,
            help="From a replica's crash until what it was at is sent elsewhere.",
        ),
        _option(
            "--crash",
            "crashes",
            type=_OUTAGE,
            multiple=True,
            help="A replica that crashes, REPLICA@SECOND, and for how many seconds it is away: 2@30+10.",
        ),
        _option(
            "--drain",
            "drains",
            type=_OUTAGE,
            multiple=True,
            help="The same for maintenance: it first ends what it has.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def needs_of_fleet(o: dict[str, Any]) -> dict[str, tuple[bool, str]]:
    """Say of each of these options whether it has an effect here, and what it needs to."""
    is_fleet, needed = o["replicas"] > 1, "--replicas above 1"
    looks = is_fleet and o["router"] != "round-robin"
    return {
        "router": (is_fleet, needed),
        "crashes": (is_fleet, needed),
        "drains": (is_fleet, needed),
        "lag_ms": (looks, f"{needed} and a --router other than round-robin, which looks at no queue"),
        "retry_ms": (is_fleet and bool(o["crashes"] or o["max_waiting"] is not None), f"{needed} and a --crash"),
        "timeline_file": (not is_fleet, "one engine, without --replicas"),
    }


def _option(*names: str, **settings: Any) -> Callable[[Command], Command]:
    return click.option(*names, cls=SimOption, show_default=True, **settings)

"""From the options of `outrider sim` to the simulation they describe, and back from what a report says of one."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from cli.draft_options import options_for, read_speculative
from cli.options import LengthsType, SimOption
from sims.arrivals import Closed, Open, Recorded
from sims.config import SimConfig
from sims.fleet.config import Fleet

_RECORDED = "outrider.recorded"


def read_config(ctx: click.Context, o: dict[str, Any]) -> SimConfig:
    """Make the simulation of a command's options. Raises click.UsageError for values that do not go together."""
    is_recorded = o["trace"] is not None or o["replay"] is not None
    values = o | {
        "temperatures": temperatures(o),
        "cancel_rate": o["cancel_rate"] if o["cancel_rate"] is not None else 0.0 if is_recorded else 0.3,
        "baseline": o["draft"] != "none" and o["clock"] == "virtual" and o["baseline"] is not False,
    }
    tree: dict[str, Any] = msgspec.to_builtins(ctx.meta.get(_RECORDED, SimConfig()))
    for option, path in _placed(ctx.command):
        *parents, last = path
        node = tree
        for parent in parents:
            node = node[parent]
        value = msgspec.to_builtins(values[str(option.name)])
        node[last] = value if option.unit == 1 or value is None else value * option.unit
    tree["arrivals"] = msgspec.to_builtins(_arrivals(o))
    tree["fleet"] = None if o["replicas"] == 1 else _fleet(o)
    tree["engine"]["speculative"] |= msgspec.to_builtins(read_speculative(o))
    try:
        return msgspec.convert(tree, SimConfig)
    except msgspec.ValidationError as error:
        raise click.UsageError(by_option(ctx.command, str(error.__cause__ or error)), ctx) from None


def by_option(command: click.Command, message: str) -> str:
    """Say a message about fields, `k is 40: ...`, with the names of the options that set them."""
    names = {path[-1]: option.opts[0] for option, path in _placed(command)}
    names |= {str(option.name): option.opts[0] for option in command.params if getattr(option, "at", "") is None}
    names["rule"] = names["verify"]

    def name(found: re.Match[str]) -> str:
        return names.get(found[0].rpartition(".")[2], found[0])

    subject, colon, allowed = message.partition(": ")
    several = r"\b[a-z]+(?:_[a-z]+)+\b"  # a field's name and no English word
    return re.sub(rf"^[\w.]+|{several}|\w+(?= are )", name, subject) + colon + re.sub(several, name, allowed)


def take_config(ctx: click.Context, param: click.Parameter, path: str | None) -> None:
    """Let the values of a recorded simulation be what options have that are not given."""
    if path is None:
        return
    try:
        found = msgspec.json.decode(Path(path).read_bytes())
        config = msgspec.convert(found["config"] if "digest" in found else found, SimConfig)
    except (OSError, TypeError, msgspec.MsgspecError) as error:
        raise click.BadParameter(
            f"{path} is neither a report of `outrider sim --json` nor the `config` of one: {error}", ctx, param
        ) from None
    ctx.meta[_RECORDED] = config
    ctx.default_map = _options_for(ctx.command, config)


def arrivals_name(o: dict[str, Any]) -> str:
    """Name how requests come."""
    return o["arrivals"] or ("trace" if o["trace"] is not None else "closed")


def temperatures(o: dict[str, Any]) -> tuple[float, ...]:
    """Give the temperatures that requests draw from."""
    return o["temperatures"] or ((0.0,) if o["replay"] is not None else (0.0, 0.8))


def _arrivals(o: dict[str, Any]) -> Closed | Open | Recorded:
    match arrivals_name(o):
        case "closed":
            return Closed(o["concurrency"])
        case "poisson":
            return Open(o["rate"])
        case "gamma":
            return Open(o["rate"], o["burstiness"])
        case _:
            return Recorded(o["speedup"])


def _fleet(o: dict[str, Any]) -> dict[str, Any]:
    """Give the fields of a `Fleet`."""
    fields = {name: msgspec.to_builtins(o[name]) for name in ("replicas", "router", "crashes", "drains")}
    return fields | {"lag_s": o["lag_ms"] / 1e3, "retry_s": o["retry_ms"] / 1e3}


def _fleet_options(fleet: Fleet) -> dict[str, Any]:
    """Give the values of the options that ask for a fleet."""
    values = {name: getattr(fleet, name) for name in ("replicas", "router", "crashes", "drains")}
    return values | {"lag_ms": fleet.lag_s * 1e3, "retry_ms": fleet.retry_s * 1e3}


def _placed(command: click.Command) -> Iterator[tuple[SimOption, list[str]]]:
    for option in command.params:
        if isinstance(option, SimOption) and option.at is not None:
            yield option, option.at.split(".")


def _options_for(command: click.Command, config: SimConfig) -> dict[str, Any]:
    """Give the values of the options that ask for a simulation."""
    tree, values = msgspec.to_builtins(config), {}
    for option, path in _placed(command):
        node = tree
        for field in path:
            node = node[field]
        if isinstance(option.type, LengthsType):
            node = getattr(config, path[-1])
        values[str(option.name)] = node if option.unit == 1 or node is None else node / option.unit
    values |= options_for(config.engine.speculative)
    if config.fleet is not None:
        values |= _fleet_options(config.fleet)
    match config.arrivals:
        case Closed(concurrency):
            return values | {"arrivals": "closed", "concurrency": concurrency}
        case Open(rate, burstiness):
            return values | {"arrivals": "gamma", "rate": rate, "burstiness": burstiness}
        case Recorded(speedup):
            return values | {"arrivals": "trace", "speedup": speedup}

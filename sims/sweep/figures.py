"""The numbers of a report by name, as in `latency_ms.ttft.p99`."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import inspect

_LEFT_OUT = {"config", "series", "histogram", "wall_s"}
"""What was asked, what is no single number, and what is of the machine that it ran on."""
_ANY = "*"


def figures_of(report: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Give every number that is not in a list; what was not measured is not there."""
    found: dict[str, float] = {}
    for key, value in report.items():
        if key in _LEFT_OUT:
            continue
        if isinstance(value, Mapping):
            found |= figures_of(value, f"{prefix}{key}.")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found[prefix + key] = value
    return found


def names_of(report: type[msgspec.Struct]) -> list[str]:
    """Name the figures that reports of a type can have; where any name may stand, `*` does."""
    return list(_names(inspect.type_info(report), ""))


def is_one_of(name: str, names: list[str]) -> bool:
    """Tell whether a figure can be there."""
    return name in names or f"{name.rpartition('.')[0]}.{_ANY}" in names


def _names(kind: inspect.Type, prefix: str) -> Iterator[str]:
    match kind:
        case inspect.StructType(fields=fields):
            for field in fields:
                if field.name not in _LEFT_OUT:
                    yield from _names(field.type, f"{prefix}{field.name}.")
        case inspect.UnionType(types=types):
            for each in types:
                yield from _names(each, prefix)
        case inspect.DictType(value_type=value):
            yield from _names(value, f"{prefix}{_ANY}.")
        case inspect.IntType() | inspect.FloatType():
            yield prefix.removesuffix(".")
        case _:
            pass

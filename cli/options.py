"""What the options of all commands share: types that refuse clearly, and options that must have an effect."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from plans.errors import PlanError
from sims.errors import SimError
from sims.fleet.config import Outage
from sims.lengths import Lengths

_LONGEST_RANGE = 10_000


class LengthsType(click.ParamType[Lengths]):
    """A distribution of token counts."""

    name = "LENGTHS"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Lengths:
        """Read a distribution; a usage error says what is allowed."""
        if isinstance(value, Lengths):
            return value
        try:
            return Lengths.parse(str(value))
        except SimError as error:
            self.fail(str(error), param, ctx)


class OutageType(click.ParamType[Outage]):
    """A replica's absence."""

    name = "R@S+S"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Outage:
        """Read one; a usage error says what is allowed."""
        if isinstance(value, Outage | dict):
            return msgspec.convert(value, Outage)
        try:
            return Outage.parse(str(value))
        except SimError as error:
            self.fail(str(error), param, ctx)


class Number(click.FloatRange):
    """A finite number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it; a usage error says what is allowed."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


class Share(Number):
    """A share in [0, 1]: nothing here is said in per cent."""

    def __init__(self) -> None:
        super().__init__(0, 1)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it; a usage error says how a percentage would be said."""
        try:
            per_cent = float(value)
        except ValueError:
            per_cent = 0.0
        if 1 < per_cent <= 100:
            self.fail(f"{value} is not in the range 0<=x<=1: {per_cent:g} % is {per_cent / 100:g}", param, ctx)
        return super().convert(value, param, ctx)


class SimOption(click.Option):
    """An option that stands for the place `at` of a `SimConfig`, as in `engine.num_blocks`.

    Its value times `unit` is what the simulation takes. An option without a place is read by hand.
    """

    def __init__(self, *args: Any, at: str | None = None, unit: float = 1, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.at = at
        self.unit = unit


class Numbers(click.ParamType[list[int]]):
    """Integers, as in 1,2,4 or 1-16; `check` gives them as they are taken, or raises PlanError for one that is not."""

    name = "N,N,..."

    def __init__(self, check: Callable[[list[int]], list[int]]) -> None:
        self._check = check

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        """Read and check them; a usage error says what is allowed."""
        if not isinstance(value, str):
            return list(value)
        numbers: list[int] = []
        try:
            for part in value.split(","):
                first, is_range, last = part.partition("-")
                low, high = int(first), int(last if is_range else first)
                if not low <= high <= low + _LONGEST_RANGE:
                    raise ValueError
                numbers += range(low, high + 1)
            return self._check(numbers)
        except PlanError as error:
            self.fail(str(error), param, ctx)
        except ValueError:
            self.fail(f"{value!r} is no list of integers, as in 1,2,4 or 1-16", param, ctx)


SHARE = Share()
NOT_NEGATIVE = Number(min=0)
POSITIVE = Number(min=0, min_open=True)
SEED = click.IntRange(0, 2**63 - 1)


def was_given(ctx: click.Context, name: str) -> bool:
    """Tell whether the user set an option, rather than its default."""
    return ctx.get_parameter_source(name) not in (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP, None)


def refuse_without_effect(ctx: click.Context, needs: Mapping[str, tuple[bool, str]]) -> None:
    """Refuse any option the user gave that would change nothing.

    `needs` tells of an option's parameter name whether it has an effect here, and what it would take.
    """
    names = {param.name: param.opts[0] for param in ctx.command.params}
    for name, (has_effect, needed) in needs.items():
        if not has_effect and was_given(ctx, name):
            raise click.UsageError(f"{names[name]} has no effect here: it needs {needed}", ctx)

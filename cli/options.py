"""What the options of all commands share: types that refuse clearly, and options that must have an effect."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from sims.errors import SimError
from sims.lengths import Lengths


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


class OutFile(click.Path):
    """A file to be written at the end: that it can be is checked at the start."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True, allow_dash=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check the path; a usage error names the folder that is missing."""
        path = str(super().convert(value, param, ctx))
        folder = Path(path).parent
        if not folder.is_dir():
            self.fail(f"folder {str(folder)!r} does not exist", param, ctx)
        return path


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

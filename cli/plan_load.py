"""Options of `outrider plan` for what becomes of its choice under load."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cli.options import POSITIVE, refuse_without_effect
from plans.errors import PlanError
from plans.load import Load
from sims.errors import SimError
from sims.service import Targets
from sims.traces import read_trace

F = TypeVar("F", bound=Callable[..., Any])


def load_options(command: F) -> F:
    """Add the options to the command."""
    options = (
        click.option(
            "--rate",
            "rates",
            type=POSITIVE,
            multiple=True,
            help="Serve requests of the log that come at so many a second, plainly and as recommended, through the "
            "engine in virtual time. May be repeated.",
        ),
        click.option(
            "--trace",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Let them come at the times of a trace, in place of a rate.",
        ),
        click.option(
            "--load-requests", type=click.IntRange(2), default=300, show_default=True, help="So many of the log."
        ),
        click.option(
            "--slo-ttft", type=POSITIVE, default=500.0, show_default=True, help="Of goodput: ms to the first token,"
        ),
        click.option("--slo-tpot", type=POSITIVE, default=50.0, show_default=True, help="and per token after it."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def read_load(ctx: click.Context) -> Load | None:
    """Read how requests are to come; None where nobody asked. Raises click.UsageError and PlanError."""
    o = ctx.params
    if o["rates"] and o["trace"] is not None:
        raise click.UsageError("--trace takes the place of --rate", ctx)
    is_asked = bool(o["rates"]) or o["trace"] is not None
    needed = (is_asked, "--rate or --trace")
    refuse_without_effect(ctx, dict.fromkeys(("load_requests", "slo_ttft", "slo_tpot"), needed))
    if not is_asked:
        return None
    times_s = None
    if o["trace"] is not None:
        try:
            trace = read_trace(o["trace"])
        except SimError as error:
            raise PlanError(str(error)) from None
        if not trace.has_times:
            raise PlanError(f"trace {o['trace']}: its requests have no times")
        times_s = [row.at_s for row in trace.rows[: o["load_requests"]]]
    return Load(sorted(set(o["rates"])), times_s, o["load_requests"], o["seed"], Targets(o["slo_ttft"], o["slo_tpot"]))

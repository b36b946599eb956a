"""`outrider sim`: simulated clients over the engine, and a report of what became of them."""

import contextlib
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from cli import sim_options
from cli.options import OutFile, refuse_without_effect
from cli.progress import Progress
from cli.text_report import print_report
from scheduler import RequestError
from sims.clock import Deadlock
from sims.errors import SimError
from sims.page import page
from sims.simulate import simulate
from sims.timeline import Timeline
from spec import SpecError

_OUT = OutFile()


@click.command(short_help="Run simulated clients over the engine.")
@sim_options.traffic
@sim_options.leaving
@sim_options.faults
@sim_options.engine
@sim_options.clock
@click.option("--json", "json_file", type=_OUT, help="Write the report as JSON; - is standard output.")
@click.option("--report", "html_file", type=_OUT, help="Write the report as one HTML page with plots.")
@click.option("--timeline", "timeline_file", type=_OUT, help="Write Chrome trace events, to open in Perfetto.")
@click.pass_context
def sim(
    ctx: click.Context, /, json_file: str | None, html_file: str | None, timeline_file: str | None, **options: Any
) -> None:
    """Run simulated clients over the engine and report what became of them.

    By default 2,000 made-up requests, 256 open at a time, 30 % of whose clients leave, on a pool that is too small
    for them. In virtual time the same options give the same report, byte for byte.

    Exit status 1, with the request and the seed named, if a block leaked, the conservation law was broken, a request
    failed or an output is not the one-sequence loop's.
    """
    refuse_without_effect(ctx, sim_options.needs(options))
    try:
        config = sim_options.read_config(options)
        with contextlib.ExitStack() as stack:
            timeline = None
            if timeline_file is not None:
                timeline = Timeline(stack.enter_context(Path(timeline_file).open("wb")))
                stack.callback(timeline.close)
            progress = stack.enter_context(Progress())
            report = simulate(config, watch=progress.watch if progress.is_live else None, timeline=timeline)
    except (SimError, RequestError, SpecError) as error:
        raise click.UsageError(str(error), ctx) from None
    except Deadlock as error:
        click.echo(f"seed {config.seed}: deadlock: {error}", err=True)
        sys.exit(1)
    if json_file == "-":
        click.echo(msgspec.json.encode(report))
    else:
        print_report(report)
    if json_file is not None and json_file != "-":
        Path(json_file).write_bytes(msgspec.json.encode(report))
    if html_file is not None:
        Path(html_file).write_text(page(report), encoding="utf-8")
    if report.problems:
        for problem in report.problems[:20]:
            click.echo(f"seed {report.config.seed}: {problem}", err=True)
        sys.exit(1)

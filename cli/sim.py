"""`outrider sim`: simulated clients over the engine, and a report of what became of them."""

from typing import Any

import click
import msgspec

from actors import EngineStats
from cli import draft_options, fleet_options, sim_options
from cli.endings import BROKEN, INTERRUPTED, Broken
from cli.options import refuse_without_effect
from cli.outputs import OutFile, Output
from cli.progress import EngineNumbers, Progress
from cli.sim_config import by_option, read_config
from cli.text_report import print_report
from scheduler import RequestError
from sims.clock import Deadlock
from sims.config import SimConfig
from sims.errors import SimError
from sims.page import page
from sims.report import Report
from sims.simulate import Phase, simulate
from sims.timeline import Timeline
from spec import SpecError

_OUT = OutFile()
_PHASES: dict[Phase, str] = {
    "requests": "requests",
    "comparison": "outputs compared",
    "baseline": "requests without drafts",
}


@click.command(short_help="Run simulated clients over the engine.")
@sim_options.traffic
@sim_options.leaving
@sim_options.faults
@draft_options.drafts
@sim_options.engine
@fleet_options.fleet
@sim_options.clock
@click.option("--json", "json_file", type=_OUT, help="Write the report as JSON; - is standard output.")
@click.option("--report", "html_file", type=_OUT, help="Write the report as one HTML page with plots.")
@click.option("--timeline", "timeline_file", type=_OUT, help="Write Chrome trace events, to open in Perfetto.")
@click.pass_context
def sim(
    ctx: click.Context,
    /,
    json_file: Output | None,
    html_file: Output | None,
    timeline_file: Output | None,
    **options: Any,
) -> None:
    """Run simulated clients over the engine and report what became of them.

    By default 2,000 made-up requests, 256 open at a time, 30 % of whose clients leave, on a pool that is too small
    for them. In virtual time the same options give the same report, byte for byte. Then the same requests run
    without drafts, which tells what drafts gain.

    Exit status 1, with the request and the seed named, if a block leaked, the conservation law was broken, a request
    failed, an output is not the one-sequence loop's, or no request completed. Ctrl-C breaks the run off: the report is
    of what was until then, and the status 130.
    """
    refuse_without_effect(ctx, sim_options.needs(options))
    config = read_config(ctx, options)
    try:
        report = _simulate(config, timeline_file)
    except (SimError, RequestError, SpecError) as error:
        raise click.UsageError(by_option(ctx.command, str(error)), ctx) from None
    except Deadlock as error:
        raise Broken(f"seed {config.seed}: deadlock: {error}") from None
    if json_file is None or not json_file.is_stdout:
        print_report(report)
    if json_file is not None:
        json_file.write(msgspec.json.encode(report) + b"\n")
    if html_file is not None:
        html_file.write(page(report).encode())
    for problem in report.problems[:20]:
        click.echo(f"seed {report.config.seed}: {problem}", err=True)
    if report.problems:
        ctx.exit(BROKEN)
    if report.is_broken_off:
        ctx.exit(INTERRUPTED)


def _simulate(config: SimConfig, timeline_file: Output | None) -> Report:
    numbers = EngineNumbers()
    with Progress() as progress:

        def watch(phase: Phase, num_done: int, num_all: int, stats: EngineStats | None) -> None:
            progress.show(_PHASES[phase], num_done, num_all, lambda: "" if stats is None else numbers(stats))

        timeline = None if timeline_file is None else Timeline(timeline_file)
        try:
            return simulate(config, watch=watch, timeline=timeline)
        finally:
            if timeline is not None:
                timeline.close()

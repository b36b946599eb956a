"""`outrider explore`: small simulated worlds by the thousand, every law of the engine checked all the time."""

import itertools
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import click

from cli.options import refuse_without_effect
from cli.outputs import OutFile, Output, ResumeFile
from sims.errors import SimError
from sims.explore.campaign import Campaign, load, save
from sims.explore.diagram import diagram
from sims.explore.exhaustive import explore as explore_all
from sims.explore.run import run
from sims.explore.scenario import Scenario, from_json
from sims.explore.summary import failure, pairs, summary
from sims.explore.tiny import TINY
from sims.explore.twice import run_twice
from sims.timeline import Timeline

_SAVE_EVERY_S = 10.0


@click.command()
@click.option("--seeds", type=click.IntRange(min=1), default=500, show_default=True, help="How many seeds to explore.")
@click.option("--start", type=click.IntRange(min=0), show_default="0, or the next one", help="The first seed.")
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), help="Explore for so long, not so many seeds.")
@click.option("--resume", type=ResumeFile(), help="Keep the summary in this file, and go on where it stands.")
@click.option("--twice", is_flag=True, help="Run each seed twice; a message that differs is a failure.")
@click.option("--no-shrink", is_flag=True, help="Show failing seeds as they were drawn.")
@click.option("--pairs", "shows_pairs", is_flag=True, help="Show how often each state met each message.")
@click.option("--scenario", "scenario_text", metavar="JSON|FILE", help="Run this scenario only, and draw the run.")
@click.option(
    "--timeline", "timeline_file", type=OutFile(), help="Write that run as Chrome trace events, for Perfetto."
)
@click.option(
    "--exhaustive",
    type=click.Choice(["all", *TINY]),
    multiple=True,
    help="Explore every order of a tiny scenario instead; can be given more than once.",
)
@click.pass_context
def explore(
    ctx: click.Context,
    seeds: int,
    start: int | None,
    minutes: float | None,
    resume: str | None,
    twice: bool,
    no_shrink: bool,
    shows_pairs: bool,
    scenario_text: str | None,
    timeline_file: Output | None,
    exhaustive: tuple[str, ...],
) -> None:
    """Explore interleavings and faults of the engine in small scenarios drawn from seeds.

    Exit status 1 if a law was broken; each failing seed is made smaller and drawn as a sequence diagram.
    """
    is_campaign = scenario_text is None and not exhaustive
    needs = dict.fromkeys(("seeds", "start", "minutes", "resume", "no_shrink", "shows_pairs"), is_campaign)
    needs |= {"timeline_file": scenario_text is not None, "twice": not exhaustive, "exhaustive": scenario_text is None}
    refuse_without_effect(ctx, {name: (has_effect, "a campaign or a scenario") for name, has_effect in needs.items()})
    try:
        if scenario_text is not None:
            is_sound = _show(_read_scenario(scenario_text), timeline_file, twice=twice)
        elif exhaustive:
            is_sound = _explore_all(TINY if "all" in exhaustive else exhaustive)
        else:
            campaign = Campaign() if resume is None else load(Path(resume))
            first = campaign.next_seed if start is None else start
            numbers = itertools.count(first) if minutes is not None else range(first, first + seeds)
            is_sound = _explore_seeds(campaign, numbers, minutes, resume, twice=twice, shrinks=not no_shrink)
            if shows_pairs:
                _print(pairs(campaign.coverage))
    except SimError as error:
        raise click.UsageError(str(error), ctx) from None
    if not is_sound:
        sys.exit(1)


def _explore_seeds(
    campaign: Campaign, seeds: Iterable[int], minutes: float | None, resume: str | None, *, twice: bool, shrinks: bool
) -> bool:
    last_s = time.monotonic()
    until_s = None if minutes is None else last_s + 60 * minutes

    def look(campaign: Campaign) -> None:
        nonlocal last_s
        if time.monotonic() - last_s < _SAVE_EVERY_S:
            return
        last_s = time.monotonic()
        if resume is not None:
            save(campaign, Path(resume))
        if sys.stderr.isatty():
            click.echo(
                f"seed {campaign.next_seed}: {campaign.num_runs} runs, {len(campaign.failures)} failed", err=True
            )

    try:
        campaign.go_on(seeds, twice=twice, shrinks=shrinks, until_s=until_s, after_each=look)
    except KeyboardInterrupt:
        click.echo("broken off", err=True)
    finally:
        if resume is not None:
            save(campaign, Path(resume))
    _print(summary(campaign))
    for found in campaign.failures:
        click.echo()
        _print(failure(found))
        click.echo(diagram(from_json(found.scenario)))
    return not campaign.failures


def _explore_all(names: Iterable[str]) -> bool:
    is_sound = True
    for name in names:
        started_s = time.monotonic()
        explored = explore_all(TINY[name])
        seconds = time.monotonic() - started_s
        click.echo(
            f"{name}: {explored.num_states} states with {explored.num_choices} choices, "
            f"{explored.num_orders} orders, in {explored.num_runs} runs and {seconds:.1f} s; "
            f"cancels: {', '.join(sorted(explored.cancels)) or 'none'}; "
            f"faults: {', '.join(sorted(explored.faults)) or 'none'}"
        )
        if explored.violation is not None:
            is_sound = False
            click.echo(diagram(TINY[name], explored.choices))
    return is_sound


def _show(scenario: Scenario, timeline_file: Output | None, *, twice: bool) -> bool:
    click.echo(diagram(scenario))
    if timeline_file is not None:
        timeline = Timeline(timeline_file)
        run(scenario, timeline)
        timeline.close()
    violation = (run_twice(scenario) if twice else run(scenario)).violation
    return violation is None


def _read_scenario(text: str) -> Scenario:
    if text.lstrip().startswith("{"):
        return from_json(text)
    try:
        return from_json(Path(text).read_bytes())
    except OSError as error:
        raise SimError(f"scenario: {error}") from None


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)

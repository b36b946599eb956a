"""`outrider explore`: small simulated worlds by the thousand, every law of the engine checked all the time."""

import itertools
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import click

from cli.endings import BROKEN, INTERRUPTED
from cli.options import POSITIVE, refuse_without_effect
from cli.outputs import OutFile, Output, ResumeFile
from cli.progress import Progress
from cli.ray_option import connect, ray_option
from sims.errors import SimError
from sims.explore.campaign import Campaign, load, save
from sims.explore.diagram import diagram
from sims.explore.draw import draw
from sims.explore.exhaustive import explore as explore_all
from sims.explore.run import run
from sims.explore.scenario import Scenario, from_json
from sims.explore.summary import failure, pairs, summary
from sims.explore.tiny import TINY
from sims.explore.twice import run_twice
from sims.sweep.executor import Executor
from sims.sweep.ray_pool import RayPool
from sims.timeline import Timeline

_SAVE_EVERY_S = 10.0
_OF_A_CAMPAIGN = ("seeds", "start", "minutes", "resume", "no_shrink", "shows_pairs", "ray_address")
_NEEDED = dict.fromkeys(
    _OF_A_CAMPAIGN,
    "a campaign, without --seed, --scenario and --exhaustive",
) | {
    "timeline_file": "one run: --seed or --scenario",
    "twice": "seeds or a scenario, without --exhaustive",
    "exhaustive": "to go alone, without --seed and --scenario",
    "seed": "to go alone, without --scenario",
}


@click.command()
@click.option("--seeds", type=click.IntRange(min=1), default=500, show_default=True, help="How many seeds to explore.")
@click.option("--start", type=click.IntRange(min=0), show_default="0, or the next one", help="The first seed.")
@click.option("--minutes", type=POSITIVE, help="Explore for so long, not so many seeds.")
@click.option("--seed", type=click.IntRange(min=0), help="Run this seed only, and draw the run.")
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
@ray_option("Run the seeds on a Ray cluster; what is found is made smaller here.")
@click.pass_context
def explore(
    ctx: click.Context,
    seeds: int,
    start: int | None,
    seed: int | None,
    minutes: float | None,
    resume: str | None,
    twice: bool,
    no_shrink: bool,
    shows_pairs: bool,
    scenario_text: str | None,
    timeline_file: Output | None,
    exhaustive: tuple[str, ...],
    ray_address: str | None,
) -> None:
    """Explore interleavings and faults of the engine in small scenarios drawn from seeds.

    Exit status 1 if a law was broken. Each kind of failure is shown once: its first seed, made smaller and drawn as a
    sequence diagram, with the traceback of what died, and the other seeds. Ctrl-C ends with the summary of what was.
    """
    is_one = scenario_text is not None or seed is not None
    is_campaign = not is_one and not exhaustive
    needs = dict.fromkeys(_OF_A_CAMPAIGN, is_campaign)
    needs |= {
        "timeline_file": is_one and not exhaustive,
        "twice": not exhaustive,
        "exhaustive": not is_one,
        "seed": scenario_text is None,
    }
    refuse_without_effect(ctx, {name: (has_effect, _NEEDED[name]) for name, has_effect in needs.items()})
    try:
        if exhaustive:
            is_sound = _explore_all(TINY if "all" in exhaustive else exhaustive)
        elif is_one:
            scenario = draw(seed) if seed is not None else _read_scenario(str(scenario_text))
            is_sound = _show(scenario, timeline_file, twice=twice)
        else:
            campaign = Campaign() if resume is None else load(Path(resume))
            first = campaign.next_seed if start is None else start
            numbers = itertools.count(first) if minutes is not None else range(first, first + seeds)
            executor = None
            if ray_address is not None:
                connect(ray_address)
                executor = RayPool()
            is_whole = _explore_seeds(campaign, numbers, minutes, resume, executor, twice=twice, shrinks=not no_shrink)
            if shows_pairs:
                _print(pairs(campaign.coverage))
            if not is_whole:
                ctx.exit(INTERRUPTED)
            is_sound = not campaign.failures
    except SimError as error:
        raise click.UsageError(str(error), ctx) from None
    if not is_sound:
        ctx.exit(BROKEN)


def _explore_seeds(
    campaign: Campaign,
    seeds: Iterable[int],
    minutes: float | None,
    resume: str | None,
    executor: Executor | None,
    *,
    twice: bool,
    shrinks: bool,
) -> bool:
    """Explore, save and tell; whether it came to its end."""
    started_s = last_s = time.monotonic()
    until_s = None if minutes is None else started_s + 60 * minutes
    num_before, is_whole = campaign.num_runs, True
    num_all = len(seeds) if isinstance(seeds, range) else None
    with Progress() as progress:

        def look(campaign: Campaign) -> None:
            nonlocal last_s
            num_runs, failed = campaign.num_runs - num_before, campaign.num_failed
            if minutes is None:
                progress.show("seeds", num_runs, num_all, lambda: f"{failed} failed")
            else:
                minutes_gone = (time.monotonic() - started_s) / 60
                progress.show("minutes", minutes_gone, minutes, lambda: f"{num_runs:,} seeds, {failed} failed")
            if resume is not None and time.monotonic() - last_s >= _SAVE_EVERY_S:
                save(campaign, Path(resume))
                last_s = time.monotonic()

        try:
            campaign.go_on(seeds, twice=twice, shrinks=shrinks, until_s=until_s, after_each=look, executor=executor)
        except KeyboardInterrupt:
            is_whole = False
        finally:
            if resume is not None:
                save(campaign, Path(resume))
    _print(summary(campaign))
    for found in campaign.failures:
        click.echo()
        _print(failure(found))
        click.echo(diagram(from_json(found.scenario)))
    if not is_whole:
        click.echo(f"broken off before seed {campaign.next_seed}", err=True)
    return is_whole


def _explore_all(names: Iterable[str]) -> bool:
    is_sound = True
    with Progress() as progress:
        for name in names:
            started_s = time.monotonic()
            what = f"runs of {name}"
            explored = explore_all(TINY[name], partial(_show_states, progress, what))
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
                click.echo(explored.violation.traceback, nl=False)
    return is_sound


def _show_states(progress: Progress, what: str, num_runs: int, num_states: int) -> None:
    progress.show(what, num_runs, None, lambda: f"{num_states:,} states")


def _show(scenario: Scenario, timeline_file: Output | None, *, twice: bool) -> bool:
    click.echo(diagram(scenario))
    if timeline_file is not None:
        timeline = Timeline(timeline_file)
        run(scenario, timeline)
        timeline.close()
    violation = (run_twice(scenario) if twice else run(scenario)).violation
    if violation is not None:
        click.echo(violation.traceback, nl=False)
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

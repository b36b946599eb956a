"""What a cell of a sweep is: a run of `sim`, `plan` or `explore`, checked by the options of that command."""

import hashlib
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from cli import sim_options
from cli.explore import explore
from cli.plan import plan, read_plan
from cli.sim import sim
from cli.sim_config import by_option, read_config
from outrider import __version__
from plans.answers import Plan
from plans.plan import Asked, make_plan
from sims.clock import Deadlock
from sims.errors import SimError
from sims.explore.campaign import Campaign
from sims.report import Report
from sims.simulate import simulate
from sims.sweep.figures import figures_of, is_one_of, names_of
from sims.sweep.grid import Cell, Grid, identity
from sims.sweep.store import Came, Trouble

_Needs = dict[str, tuple[bool, str]]
_Run = Callable[[], Came]


class BrokenRun(Exception):  # a run that came to its end, and something must not be
    """What a run found that must never be."""


class _SimFigures(Report, frozen=True, kw_only=True):
    """What there is to see of a simulation."""

    cached_share: float
    """Of the prompts' tokens, those found cached."""


class _PlanFigures(msgspec.Struct, frozen=True):
    """What there is to see of a plan, at the batch that it recommends for."""

    requests: int
    tokens: int
    mean_context: float
    plain_ms: float
    speed: float
    size: int
    tokens_per_round: float
    adaptive_speed: float | None
    costs_from: int | None
    speed_of: dict[str, float]
    """By method, each with its best size."""
    speed_at: dict[str, float]
    """By batch, each with what is best there."""


class _ExploreFigures(msgspec.Struct, frozen=True):
    """What there is to see of a campaign."""

    num_runs: int
    num_messages: int
    num_callbacks: int
    num_pairs: int
    """Pairs of a sequence's state and a message that were seen."""


class Kind(NamedTuple):
    """A command whose runs can be cells."""

    command: click.Command
    has_seeds: bool
    seed: Callable[[int], list[str]]
    """The words that say a seed."""
    refused: Mapping[str, str]
    """Options that no cell can have, and why."""
    figures: type[msgspec.Struct]
    shown: tuple[str, ...]
    """Where the file does not say which."""
    needs: Callable[[dict[str, Any]], _Needs]
    """Say of options whether they have an effect, as `refuse_without_effect` takes it."""
    check: Callable[[click.Context], _Run]
    """Read what is to be run. Raises click.ClickException, ValueError or ImportError."""


def _check_sim(ctx: click.Context) -> _Run:
    config = read_config(ctx, ctx.params)
    if config.clock != "virtual":
        raise click.UsageError("clock: 'wall' gives other figures each time; of a cell it is virtual", ctx)

    def run() -> Came:
        try:
            report = simulate(config)
        except Deadlock as error:
            raise BrokenRun(f"deadlock: {error}") from None
        except ValueError as error:
            raise ValueError(by_option(ctx.command, str(error))) from error
        if report.problems:
            raise BrokenRun("\n".join(report.problems[:20]))
        told = msgspec.to_builtins(report)
        del told["wall_s"], told["config"]  # of this machine; and in a config, paths are
        tokens = report.tokens
        return Came(figures_of(told) | {"cached_share": tokens.cached / (tokens.prompt or 1)}, told)

    return run


def _check_plan(ctx: click.Context) -> _Run:
    log, asked = read_plan(ctx)

    def run() -> Came:
        answer = make_plan(log, asked)
        return Came(figures_of(msgspec.to_builtins(_figures_of_plan(answer, asked))), msgspec.to_builtins(answer))

    return run


def _figures_of_plan(answer: Plan, asked: Asked) -> _PlanFigures:
    at = answer.batches.index(asked.batch)
    best = answer.best[at]
    size = next(each for each in answer.sizes if (each.method, each.size) == (best.method, best.size))
    speed_of: dict[str, float] = {}
    for each in answer.sizes:
        speed_of[each.method] = max(speed_of.get(each.method, 0.0), each.speed[at].value)
    return _PlanFigures(
        answer.log.num_requests,
        answer.log.num_tokens,
        answer.log.mean_context,
        best.plain_ms,
        best.speed.value,
        best.size,
        size.tokens_per_round.value,
        None if best.adaptive is None else best.adaptive.value,
        size.costs_from,
        speed_of,
        {str(each.batch): each.speed.value for each in answer.best},
    )


def _check_explore(ctx: click.Context) -> _Run:
    o = ctx.params

    def run() -> Came:
        campaign, start = Campaign(), o["start"] or 0
        campaign.go_on(range(start, start + o["seeds"]), twice=o["twice"], shrinks=not o["no_shrink"])
        if campaign.failures:
            lines = [f"seed {found.seed} broke a law. {found.law}: {found.what}" for found in campaign.failures]
            raise BrokenRun("\n".join(lines))
        told = msgspec.to_builtins(campaign)
        del told["seconds"]
        figures = _ExploreFigures(
            campaign.num_runs, campaign.num_messages, campaign.num_callbacks, len(campaign.coverage.pairs)
        )
        return Came(figures_of(msgspec.to_builtins(figures)), told)

    return run


_IN_FOLDER = "results are in the sweep's folder"
_IS_A_CAMPAIGN = "a cell of explore is a campaign: seeds from a first one on"
KINDS = {
    "sim": Kind(
        sim,
        True,
        lambda seed: ["--seed", str(seed)],
        dict.fromkeys(("json", "report", "timeline"), _IN_FOLDER) | {"seed": "say `seeds` at the top of the file"},
        _SimFigures,
        ("throughput.tokens_per_s", "latency_ms.ttft.p50", "latency_ms.ttft.p99", "latency_ms.tpot.p50"),
        sim_options.needs,
        _check_sim,
    ),
    "plan": Kind(
        plan,
        False,
        lambda _: [],
        dict.fromkeys(("json", "html", "explain"), _IN_FOLDER),
        _PlanFigures,
        ("speed", "size", "tokens_per_round", "adaptive_speed", "costs_from"),
        lambda _: {},
        _check_plan,
    ),
    "explore": Kind(
        explore,
        True,
        lambda seed: ["--start", str(seed)],
        dict.fromkeys(("seed", "scenario", "exhaustive", "timeline"), _IS_A_CAMPAIGN)
        | {"start": "say `seeds` at the top of the file", "minutes": "what was explored would be the machine's choice"}
        | {"resume": _IN_FOLDER, "pairs": _IN_FOLDER, "ray": "the sweep itself has --ray"},
        _ExploreFigures,
        ("num_runs", "num_messages", "num_pairs"),
        lambda _: {},
        _check_explore,
    ),
}


def cells_of(grid: Grid) -> list[Cell]:
    """Give the cells of a grid, every one of them checked as its command checks it; equal ones are one.

    Where an option has no effect in a cell, as `k` has none without drafts, the cell goes without it. SimError names
    the field, the value and what is allowed.
    """
    kind = KINDS.get(grid.command)
    if kind is None:
        raise SimError(f"command: {grid.command!r} is none of {', '.join(KINDS)}")
    if not kind.has_seeds and grid.seeds is not None:
        raise SimError(f"seeds: {grid.command} draws nothing: it has none")
    names = names_of(kind.figures)
    for figure in grid.figures:
        if not is_one_of(figure, names):
            raise SimError(f"figures: {figure!r} is none of {', '.join(names)}")
    reader = _Reader(kind, grid)
    return list({cell.id: cell for cell in reader.cells()}.values())


class _Reader:
    """Reads the cells of a grid."""

    def __init__(self, kind: Kind, grid: Grid) -> None:
        self._kind = kind
        self._grid = grid
        self._params: dict[str, click.Parameter] = {}
        for param in kind.command.params:
            name = param.opts[0].removeprefix("--") if isinstance(param, click.Option) else str(param.name)
            self._params[name] = param
        self._contents: dict[str, str] = {}
        for name in [*grid.options, *grid.axes]:
            if (why := kind.refused.get(name)) is not None:
                raise SimError(f"{self._where(name)}: not an option of a sweep: {why}")
            if name not in self._params:
                known = ", ".join(name for name in self._params if name not in kind.refused)
                raise SimError(f"{self._where(name)}: {grid.command} has no such option; there are {known}")

    def cells(self) -> Iterator[Cell]:
        """Read them."""
        idle: dict[str, str] = {}
        has_effect: set[str] = set()
        for values in self._grid.combinations():
            options, ctx, needed = self._settled(self._grid.options | values)
            has_effect |= options.keys()
            idle |= needed
            words = self._words(options)
            files = {name: self._content(each) for name in options for each in self._files(name, options[name])}
            for seed in self._seeds(ctx):
                line = (self._grid.command, *words[0], *([] if seed is None else self._kind.seed(seed)), *words[1])
                known = identity(__version__, self._grid.command, options, seed, files)
                of_axes = {name: options.get(name) for name in self._grid.axes}
                yield Cell(known, line, of_axes, options, seed)
        for name in [*self._grid.options, *self._grid.axes]:
            if name not in has_effect:
                raise SimError(f"{self._where(name)}: has no effect in any cell: it needs {idle[name]}")

    def _settled(self, options: dict[str, Any]) -> tuple[dict[str, Any], click.Context, dict[str, str]]:
        """Leave out what has no effect, and check the rest; give also what it would take for an effect."""
        all_needed: dict[str, str] = {}
        while True:
            first, last = self._words(options)
            ctx = self._checked(options, partial(self._kind.command.make_context, self._grid.command, [*first, *last]))
            needs = self._kind.needs(ctx.params)
            needed = {}
            for name in options:
                has_effect, what = needs.get(str(self._params[name].name), (True, ""))
                if not has_effect:
                    needed[name] = what
            if not needed:
                self._checked(options, partial(self._kind.check, ctx))
                return options, ctx, all_needed
            all_needed |= needed
            options = {name: value for name, value in options.items() if name not in needed}

    def _checked(self, options: dict[str, Any], check: Callable[[], Any]) -> Any:
        """Check options by something that raises what commands raise."""
        try:
            return check()
        except click.MissingParameter as error:
            name = next(name for name, param in self._params.items() if param is error.param)
            raise SimError(f"options: {name} is missing: {self._grid.command} needs it") from None
        except click.BadParameter as error:
            name = next((name for name, param in self._params.items() if param is error.param), "")
            raise SimError(f"{self._where(name)} = {options.get(name)!r}: {error.message}") from None
        except click.ClickException as error:
            raise SimError(f"{self._named(options)}{error.message}") from None
        except (ValueError, ImportError) as error:
            raise SimError(f"{self._named(options)}{error}") from None

    def _named(self, options: dict[str, Any]) -> str:
        """Say which cell, where there are several."""
        values = ", ".join(f"{name}={options[name]}" for name in self._grid.axes if name in options)
        return f"cell {values}: " if values else ""

    def _where(self, name: str) -> str:
        return f"axes.{name}" if name in self._grid.axes else f"options.{name}"

    def _seeds(self, ctx: click.Context) -> list[int] | list[None]:
        if not self._kind.has_seeds:
            return [None]
        seeds = self._grid.seeds
        if isinstance(seeds, list):
            return [self._seed(seed) for seed in seeds]
        step = ctx.params["seeds"] if self._grid.command == "explore" else 1  # one campaign after the other
        return [i * step for i in range(seeds or 1)]

    def _seed(self, seed: int) -> int:
        if not 0 <= seed < 2**63:
            raise SimError(f"seeds: {seed} is not in the range 0<=x<2^63")
        return seed

    def _words(self, options: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        """Give the words for the options and, to come last, those for the arguments."""
        first, last = list[str](), list[str]()
        for name, value in options.items():
            param = self._params[name]
            if isinstance(param, click.Argument):
                last += self._texts(name, value)
            elif isinstance(param, click.Option) and param.is_flag:
                if not isinstance(value, bool):
                    raise SimError(f"{self._where(name)} = {value!r}: true or false")
                first += param.opts[:1] if value else param.secondary_opts[:1]
            else:
                first += [word for text in self._texts(name, value) for word in (param.opts[0], text)]
        return first, ["--", *last] if any(word.startswith("-") for word in last) else last

    def _texts(self, name: str, value: Any) -> list[str]:
        """Give an option's value, or its values, as text; files by paths that are right everywhere on this machine."""
        param = self._params[name]
        takes_several = param.nargs == -1 or (isinstance(param, click.Option) and param.multiple)
        if isinstance(value, list) and not takes_several:
            raise SimError(f"{self._where(name)} = {value!r}: one value; it can be given only once")
        values = value if isinstance(value, list) else [value]
        for each in values:
            if isinstance(each, bool) or not isinstance(each, (str, int, float)):
                raise SimError(f"{self._where(name)} = {value!r}: a text or a number, or for a flag true or false")
        return [str(Path(each).absolute()) if self._is_file(param, each) else str(each) for each in values]

    def _files(self, name: str, value: Any) -> list[str]:
        values = value if isinstance(value, list) else [value]
        return [each for each in values if self._is_file(self._params[name], each)]

    def _is_file(self, param: click.Parameter, value: Any) -> bool:
        if not isinstance(value, str) or "\0" in value:
            return False
        return bool(isinstance(param.type, click.Path) or Path(value).suffix) and Path(value).is_file()

    def _content(self, path: str) -> str:
        if path not in self._contents:
            with Path(path).open("rb") as file:
                self._contents[path] = hashlib.file_digest(file, "sha256").hexdigest()
        return self._contents[path]


def run_cell(cell: Cell) -> bytes | Trouble:
    """Run a cell, wherever this is called; what it came to as `Came` writes it, or why it came to nothing."""
    name, *words = cell.words
    kind = KINDS[name]
    try:
        with kind.command.make_context(name, words) as ctx:
            return kind.check(ctx)().encoded()
    except BrokenRun as error:
        return Trouble(str(error))
    except click.ClickException as error:
        return Trouble(error.message)
    except Exception as error:  # whatever it is: the other cells go on
        return Trouble(f"{type(error).__name__}: {error}", traceback.format_exc())

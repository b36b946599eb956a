"""A plan as text."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from plans.answers import Estimate, LoadAnswers, Plan, SizeAnswer
from plans.methods import BEST

_STYLES = {"gains": "bold green", "costs": "bold red", "unclear": "bold yellow"}
_WIDTH = 160
_LEFT = ("method", "category", "", "best", "adaptive")


def print_plan(plan: Plan, *, is_explained: bool) -> None:
    """Print the plan, in colour on a terminal; wider than one if need be, for what is cut off cannot be read."""
    console = Console(highlight=False, width=_WIDTH)
    log, to = plan.log, plan.recommendation
    unused = ", ".join(f"{count:,} {reason}" for reason, count in log.unused.items())
    _say(
        console,
        f"{log.num_requests:,} requests, {log.num_tokens:,} tokens of answers in a mean context of "
        f"{log.mean_context:,.0f}" + (f"; unused: {unused}" if unused else ""),
    )
    if log.sample is not None:
        _say(console, log.sample.told())
    for warning in log.warnings:
        _say(console, warning, "yellow")
    for line in plan.cost if is_explained else plan.cost[:1]:
        _say(console, line)
    _say(console, f"\nrecommended: {to.reason}", "bold green" if to.method is not None else "bold yellow")
    if to.method is not None and to.costs_from is not None:
        _say(console, f"of a fixed size it costs from batch {to.costs_from} on")
    _print_best(plan, console)
    _print_methods(plan, console)
    if plan.categories:
        _print_categories(plan, console)
    if plan.load is not None:
        _print_load(plan.load, console)
    for engine, text in to.configuration.items():
        _say(console, f"\n{engine}", "bold")
        _say(console, text.rstrip())


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style), soft_wrap=True)


def _table(title: str, names: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), title=f"\n{title}", title_justify="left")
    for name in names:
        table.add_column(name, justify="left" if name in _LEFT else "right", no_wrap=True)
    return table


def _print_best(plan: Plan, console: Console) -> None:
    table = _table("the best at each batch", ("batch", "plain ms", "best", "speed", "", "adaptive", "", "", ""))
    for at in plan.best:
        cut = ("", "", "") if at.adaptive is None else (str(at.adaptive_method), *_split(at.adaptive))
        verdict = Text(at.verdict, _STYLES[at.verdict])
        table.add_row(str(at.batch), f"{at.plain_ms:.3g}", f"{at.method} {at.size}", *_split(at.speed), *cut, verdict)
    console.print(table)


def _print_methods(plan: Plan, console: Console) -> None:
    batch = plan.recommendation.batch
    table = _table(
        f"speed by batch, each method with its best size at batch {batch}",
        ("method", "size", "tokens a round", "accepted", *(str(batch) for batch in plan.batches), "costs from"),
    )
    at = plan.batches.index(batch)
    for name in plan.methods:
        _add_row(table, max((a for a in plan.sizes if a.method == name), key=lambda a: a.speed[at].value), name)
    for limit in plan.limits:
        if limit.method == BEST or len(plan.limits) == 1:
            _add_row(table, limit, "limit")
    console.print(table)


def _add_row(table: Table, answer: SizeAnswer, name: str) -> None:
    table.add_row(
        name,
        str(answer.size or ""),
        f"{answer.tokens_per_round.value:.2f}",
        f"{answer.accept_rate:.0%}",
        *(f"{speed.value:.2f}" for speed in answer.speed),
        "" if not answer.size else str(answer.costs_from or "none"),
    )


def _print_categories(plan: Plan, console: Console) -> None:
    title = f"by category, with the best of a fixed size at batch {plan.recommendation.batch}"
    table = _table(title, ("category", "requests", "tokens", "tokens a round", "speed", "", ""))
    for of in plan.categories:
        table.add_row(
            Text(of.category),
            f"{of.num_requests:,}",
            f"{of.num_tokens:,}",
            f"{of.tokens_per_round.value:.2f}",
            *_split(of.speed),
            Text(of.verdict, _STYLES[of.verdict]),
        )
    console.print(table)


def _print_load(load: LoadAnswers, console: Console) -> None:
    what = "the recommended" if load.is_recommended else "the best of text"
    names = ("a second", "", "batch", "TTFT p50", "p99", "TPOT p50", "p99", "ITL p99", "tokens/s", "good", "speed")
    table = _table(f"under load: plain and {what}, {load.choice}", names)
    for answer in load.answers:
        rate = "trace" if answer.rate is None else f"{answer.rate:g}"
        for name, service, speed in (("plain", answer.plain, ""), ("drafted", answer.drafted, f"{answer.speed:.2f}")):
            times = (service.ttft_ms.p50, service.ttft_ms.p99, service.tpot_ms.p50, service.tpot_ms.p99)
            table.add_row(
                rate if name == "plain" else "",
                name,
                f"{service.mean_batch:.1f}",
                *("" if ms is None else f"{ms:,.1f}" for ms in (*times, service.itl_ms.p99)),
                f"{service.tokens_per_s:,.0f}",
                f"{service.good_share:.0%}",
                speed,
            )
    console.print(table)
    good = f"within {load.slo_ttft_ms:g} ms to the first token and {load.slo_tpot_ms:g} ms a token after it"
    _say(console, f"times in ms; good: {good}; speed: the mean time to a whole answer, plain over drafted")


def _split(of: Estimate) -> tuple[str, str]:
    return f"{of.value:.2f}", "" if of.low is None else f"{of.low:.2f} to {of.high:.2f}"

"""A simulation's report as text."""

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sims.describe import describe_config, describe_gain, name_of_phase, verdict
from sims.fleet.describe import REPLICA_COLUMNS, rows_of_replicas
from sims.report import FleetReport, Latency, Report

_BARS = " ▁▂▃▄▅▆▇█"
_MOST_POINTS = 48
_STYLES = {"good": "bold green", "partial": "bold yellow", "bad": "bold red"}


def print_report(report: Report) -> None:
    """Print the report, in colour on a terminal."""
    console = Console(highlight=False)
    console.print(Group(*_sections(report)))


def _sections(report: Report) -> list[RenderableType]:
    requests, tokens, spec, blocks, audit = report.requests, report.tokens, report.spec, report.blocks, report.audit
    back = report.cancel.blocks_back_ms
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column()
    cancelled = ", ".join(f"{count:,} {name_of_phase(phase)}" for phase, count in report.cancel.by_phase.items())
    rows: list[tuple[str, str]] = [
        (
            "requests",
            f"{requests.submitted:,} submitted: {requests.completed:,} completed, {requests.cancelled:,} cancelled, "
            f"{requests.failed:,} failed, {requests.refused:,} refused"
            + (f"; {requests.never_submitted:,} never submitted" if requests.never_submitted else ""),
        ),
        (
            "tokens",
            f"{tokens.prompt:,} of prompts ({_share(tokens.cached, tokens.prompt)} found cached), "
            f"{tokens.emitted:,} emitted, {tokens.fed:,} fed to the target, {tokens.wasted:,} wasted",
        ),
        (
            "throughput",
            f"{report.throughput.tokens_per_s:,.0f} tokens/s, {report.throughput.requests_per_s:,.1f} requests/s "
            f"over {report.virtual_s:,.2f} s of {report.config.clock} time",
        ),
        (
            "speculation",
            f"{spec.accepted:,} of {spec.drafted:,} drafted tokens accepted ({spec.accept_rate:.1%}), "
            f"{spec.tokens_per_round:.2f} tokens a round of {spec.nodes_per_round:.2f} nodes, at most {spec.most_nodes}"
            if spec.drafted
            else "no drafts",
        ),
        *([("  gain", describe_gain(report))] if report.baseline is not None else []),
        (
            "blocks",
            f"{blocks.total:,} of {blocks.block_tokens} tokens, at most {blocks.peak_held:,} held; "
            f"at the end {blocks.free:,} free + {blocks.evictable:,} evictable + {blocks.held:,} held",
        ),
        ("  held", f"{_sparkline(report.series.time_s, report.series.held, blocks.total)}  over time"),
        ("preemptions", f"{report.preemptions:,}" + (f", {report.restarts} restarts" if report.restarts else "")),
        *([("faults", ", ".join(f"{n} {kind}" for kind, n in report.faults.items()))] if report.faults else []),
        ("cancels", cancelled or "none"),
    ]
    if back.count:
        rows.append(("  blocks back", f"after {_ms(back.p50)} ms (p50), {_ms(back.p99)} (p99), {_ms(back.max)} (max)"))
    if (fleet := report.fleet) is not None:
        rows.append(
            (
                "fleet",
                f"balance {fleet.balance:.2f} (most tokens fed over the mean); {fleet.retries:,} sent again, "
                f"{fleet.repeated:,} tokens computed again for that; {fleet.left_between:,} left between two replicas",
            )
        )
    if report.source is not None:
        source = report.source
        unused = ", ".join(f"{count:,} {reason}" for reason, count in source.unused.items())
        rows.insert(
            0, ("source", f"{source.name}: {source.used:,} of {source.rows:,} rows used; unused: {unused or 'none'}")
        )
    if requests.first_refusal is not None:
        rows.insert(-1, ("  refused", requests.first_refusal))
    rows.append(
        (
            "checks",
            f"{audit.checks:,} of the conservation law, {audit.violations:,} violated; "
            f"{audit.outputs_compared:,} outputs compared, {audit.outputs_different:,} different",
        )
    )
    rows.append(
        ("run", f"{report.steps:,} steps, {report.messages:,} messages in {report.wall_s:.1f} s; log {report.digest}")
    )
    for name, value in rows:
        facts.add_row(name, value)
    kind, sentence = verdict(report)
    return [
        Text(describe_config(report.config), style="bold cyan"),
        Padding(facts, (1, 0, 1, 0)),
        _latencies(report),
        *([] if report.fleet is None else [Padding(_replicas(report.fleet), (1, 0, 0, 0))]),
        Padding(Text(sentence, style=_STYLES[kind]), (1, 0, 0, 0)),
    ]


def _latencies(report: Report) -> Table:
    table = Table(
        box=None,
        padding=(0, 2, 0, 0),
        header_style="dim",
        caption=f"percentiles: {report.latency_ms.percentiles}",
        caption_style="dim",
        caption_justify="left",
    )
    table.add_column("latency, ms")
    for name in ("p50", "p90", "p99", "max"):
        table.add_column(name, justify="right")
    late = report.latency_ms.late
    for name, latency in (
        *((("arrivals late by", late),) if late.max else ()),
        ("time to first token (TTFT)", report.latency_ms.ttft),
        ("time per output token (TPOT)", report.latency_ms.tpot),
        ("between arrivals (ITL)", report.latency_ms.itl),
        ("end to end", report.latency_ms.e2e),
    ):
        table.add_row(Text(name, style="bold"), *_percentiles(latency))
    return table


def _replicas(fleet: FleetReport) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for i, name in enumerate(REPLICA_COLUMNS):
        table.add_column(name, justify="right" if i else "left")
    for row in rows_of_replicas(fleet):
        table.add_row(*row)
    return table


def _percentiles(latency: Latency) -> list[str]:
    return [_ms(value) for value in (latency.p50, latency.p90, latency.p99, latency.max)]


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "none"


def _sparkline(times_s: list[float], values: list[float], top: float) -> str:
    """Draw the peak of each of equal spans of time, or what was there before where a span has no sample."""
    first_s, span_s = times_s[0], (times_s[-1] - times_s[0]) or 1.0
    peaks: list[float] = [0.0] * _MOST_POINTS
    last, before = 0, 0.0
    for time_s, value in zip(times_s, values, strict=True):
        at = min(int((time_s - first_s) / span_s * _MOST_POINTS), _MOST_POINTS - 1)
        for skipped in range(last + 1, at):
            peaks[skipped] = before
        peaks[at] = max(peaks[at], value)
        last, before = at, value
    return "".join(_BARS[round(peak / top * (len(_BARS) - 1))] for peak in peaks)

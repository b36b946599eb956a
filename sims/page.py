"""A simulation's report as one page that needs nothing else, in light and dark."""

from collections.abc import Callable, Iterable
from functools import partial
from html import escape
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from sims import plots
from sims.describe import describe_config, describe_gain, name_of_phase, verdict
from sims.fleet.describe import REPLICA_COLUMNS, rows_of_replicas
from sims.plots import Layer, format_ms
from sims.report import Latency, Report, Series

_NUM_BINS = 60

_Array = NDArray[np.float64]


def page(report: Report) -> str:
    """Write the page: a function of the report alone."""
    sections = (
        *(() if report.fleet is None else (_fleet,)),
        _blocks,
        _requests,
        _pace,
        _latency,
        _speculation,
        _cancels,
        _numbers,
    )
    body = "\n".join([_head(report), *(write(report) for write in sections)])
    return document(f"Outrider simulation, seed {report.config.seed}", body)


def document(title: str, body: str, more_style: str = "") -> str:
    """Write a page that needs nothing else."""
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8") + more_style
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style></head>\n"
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


def _head(report: Report) -> str:
    kind, sentence = verdict(report)
    problems = "".join(f"<li>{escape(problem)}</li>" for problem in report.problems[:50])
    tiles = [
        (f"{report.requests.completed:,}", f"of {report.requests.total:,} requests completed"),
        (f"{report.requests.cancelled:,}", "left by their clients"),
        (f"{report.throughput.tokens_per_s:,.0f}", "tokens emitted a second"),
        (_ms(report.latency_ms.ttft.p50), "to the first token (p50)"),
        (f"{report.spec.tokens_per_round:.2f}", "tokens a round"),
        (f"{report.blocks.leaked:,}", "blocks leaked"),
    ]
    return (
        f'<h1>Outrider simulation</h1><p class="note">{escape(describe_config(report.config))}</p>'
        f'<div class="verdict {kind}">{escape(sentence)}'
        f"{f'<ul>{problems}</ul>' if len(report.problems) > 1 else ''}</div>"
        '<div class="tiles">'
        + "".join(f'<div class="tile"><b>{value}</b><span>{label}</span></div>' for value, label in tiles)
        + "</div>"
    )


def _fleet(report: Report) -> str:
    fleet = report.fleet
    assert fleet is not None
    labels = [str(i) for i in range(len(fleet.replicas))]
    fed = plots.bars("Tokens fed by replica", labels, [replica.tokens.fed for replica in fleet.replicas])
    cached = [replica.tokens.cached / (replica.tokens.prompt or 1) for replica in fleet.replicas]
    notes = [f"{replica.tokens.cached:,} of {replica.tokens.prompt:,} tokens" for replica in fleet.replicas]
    found = plots.columns("Share of prompts found cached, by replica", labels, cached, notes)
    return section(
        "Replicas",
        "Each replica is an engine with a pool of its own. The router knows which prompts it has sent where, and how "
        "long the queues were a moment ago. When a replica crashes, what it was at is sent to another, computed from "
        "the beginning, and what the client has already is not passed on again.",
        f'<div class="pair"><div><h3>Tokens fed</h3>{fed}</div><div><h3>Prompts found cached</h3>{found}</div></div>'
        f'<div class="scroll">{table(REPLICA_COLUMNS, rows_of_replicas(fleet))}</div>',
        f"Balance: the replica that fed most fed {fleet.balance:.2f} times the mean. Sent again: {fleet.retries:,} "
        f"requests, for which {fleet.repeated:,} tokens were computed again. Clients that left while their request "
        f"was between two replicas: {fleet.left_between:,}. Latencies are in ms.",
    )


def _blocks(report: Report) -> str:
    series, blocks = report.series, report.blocks
    layers = [
        Layer("held by a sequence", "one", series.held),
        Layer("evictable: no owner, content still known", "two", series.evictable),
        Layer("free", "three", series.free),
    ]
    return section(
        "Blocks by state",
        f"The model's memory of what it has read is kept in {blocks.total:,} blocks of {blocks.block_tokens} tokens. A "
        "sequence holds the blocks of its own text. When it ends they come back: those whose content may serve "
        "another prompt stay evictable, the others are free. The three always add up to the whole pool. When "
        "the last request has ended nothing may be held.",
        legend(layers) + both(partial(plots.areas, "Blocks by state over time", series.time_s, layers)),
        f"At most {blocks.peak_held:,} were held. At the end: {blocks.free:,} free, {blocks.evictable:,} evictable, "
        f"{blocks.held:,} held. Preemptions, where a sequence had to give its blocks to another and start over: "
        f"{report.preemptions:,}.",
    )


def _requests(report: Report) -> str:
    series = report.series
    layers = [Layer("running", "one", series.running), Layer("waiting", "two", series.waiting)]
    return section(
        "Running and waiting",
        "A running request takes part in the forward passes. A waiting one has been submitted and holds nothing "
        "yet: there is no place, or there are no blocks for it.",
        legend(layers) + both(partial(plots.lines, "Requests running and waiting over time", series.time_s, layers)),
    )


def _pace(report: Report) -> str:
    times_s, emitted, passes, drafted, accepted = _by_bin(report.series)
    seconds = np.diff(times_s)
    kinds = [("Throughput, tokens emitted a second", np.diff(emitted), seconds, 1.0, "")]
    kinds += [("Tokens emitted a pass", np.diff(emitted), np.diff(passes), 1.0, "")]
    if report.spec.drafted:
        kinds += [("Share of drafted tokens accepted", np.diff(accepted), np.diff(drafted), 100.0, " %")]
    middle_s = ((times_s[1:] + times_s[:-1]) / 2).tolist()
    plotted = ""
    for title, part, whole, scale, unit in kinds:
        shares = np.divide(scale * part, whole, out=np.zeros_like(part), where=whole > 0).tolist()
        drawn = partial(plots.lines, title, middle_s, [Layer(title, "one", shares)], height=150, unit=unit)
        plotted += f"<h3>{title}</h3>{both(drawn)}"
    return section(
        "Throughput, tokens a pass, acceptance",
        "How fast all sequences together got on, how much one forward pass gave, and how many of the tokens that were "
        "guessed were right, each over time and on average over a sixtieth of it.",
        plotted,
    )


def _by_bin(series: Series) -> tuple[_Array, ...]:
    """Give the edges of equal spans of time, and what had been counted by each."""
    edges = np.linspace(series.time_s[0], series.time_s[-1], _NUM_BINS + 1)
    counted = (series.emitted, series.passes, series.drafted, series.accepted)
    return edges, *(np.interp(edges, series.time_s, values) for values in counted)


def _latency(report: Report) -> str:
    latency = report.latency_ms
    kinds = [
        (
            "TTFT: time to first token",
            latency.ttft,
            "Waiting, from when the request was due or came, then reading the prompt.",
        ),
        (
            "ITL: between arrivals",
            latency.itl,
            "From one arrival of tokens to the next. What one round gives arrives together.",
        ),
        (
            "TPOT: time per output token",
            latency.tpot,
            "Of a completed request, after its first token: how fast the text flows.",
        ),
        ("End to end", latency.e2e, "Of a completed request, from when it was due or came to its last token."),
    ]
    plotted = "".join(
        f'<div><h3>{name}</h3>{plots.histogram(name, measured)}<p class="note">{note}</p></div>'
        for name, measured, note in kinds
    )
    rows = [(name.partition(":")[0], *(_ms(v) for v in _quantiles(measured))) for name, measured, _ in kinds]
    return section(
        "Latency",
        "How many measurements fell where, on an axis on which each step multiplies. Half of them lie left of p50, "
        "nine in ten left of p90, all but one in a hundred left of p99. Only clients that read at once are counted.",
        f'<div class="pair">{plotted}</div>' + table(("", "p50", "p90", "p99", "max", "mean"), rows),
    )


def _speculation(report: Report) -> str:
    spec = report.spec
    if not spec.drafted:
        return section("Speculation", "No tokens were drafted: every round emitted one token.", "")
    pairs = list(zip(spec.accepted_by_position, spec.drafted_by_position, strict=True))
    shares = [accepted / drafted if drafted else 0.0 for accepted, drafted in pairs]
    notes = [f"{accepted:,} of {drafted:,} accepted" for accepted, drafted in pairs]
    labels = [str(i) for i in range(1, len(shares) + 1)]
    plotted = plots.columns("Share of drafted tokens accepted, by position", labels, shares, notes)
    lost = report.tokens.wasted
    gain = f'<p class="note">Drafts gave {escape(describe_gain(report))}.</p>' if report.baseline is not None else ""
    facts = [
        ("tokens drafted", f"{spec.drafted:,}"),
        ("accepted", f"{spec.accepted:,} ({spec.accept_rate:.1%})"),
        ("rounds", f"{spec.rounds:,}"),
        ("tokens a round", f"{spec.tokens_per_round:.2f}"),
        ("tokens drafted a round", f"{spec.nodes_per_round:.2f}, at most {spec.most_nodes}"),
        ("tokens fed to the target", f"{report.tokens.fed:,}"),
        ("fed in vain, their client gone", f"{lost:,}"),
    ]
    return section(
        "Speculation",
        "In a round the drafter guesses the next few tokens and the target checks them all in one pass. A guess counts "
        "only if all before it on its path were right, so the share falls from the first layer to the last. Every "
        "round also gives one token of the target's own.",
        f'<div class="pair"><div><h3>Accepted, by position in the draft</h3>{plotted}</div>'
        f"<div>{table(('', ''), facts)}{gain}</div></div>",
    )


def _cancels(report: Report) -> str:
    by_phase, back = report.cancel.by_phase, report.cancel.blocks_back_ms
    if not by_phase:
        return section("Clients that left", "None did.", "")
    plotted = plots.bars("Cancels by phase", [name_of_phase(phase) for phase in by_phase], list(by_phase.values()))
    facts = [("p50", _ms(back.p50)), ("p99", _ms(back.p99)), ("longest", _ms(back.max))]
    doing = f"<h3>What the sequence was doing</h3>{plotted}"
    waits = f"<h3>Until its blocks were back, of {back.count:,} that held any</h3>{table(('', ''), facts)}"
    return section(
        "Clients that left",
        "A client may leave at any moment. Its sequence then ends, and its blocks come back as soon as no pass under "
        "way can still read or write them: so long is the wait that is told here.",
        f'<div class="pair"><div>{doing}</div><div>{waits}</div></div>',
    )


def _numbers(report: Report) -> str:
    requests, tokens, audit = report.requests, report.tokens, report.audit
    cached = f" ({tokens.cached / tokens.prompt:.1%} of the prompts)" if tokens.prompt else ""
    facts = [
        ("requests never submitted", f"{requests.never_submitted:,}"),
        ("requests refused", f"{requests.refused:,}"),
        ("requests failed", f"{requests.failed:,}"),
        ("prompt tokens", f"{tokens.prompt:,}"),
        ("found in the prefix cache", f"{tokens.cached:,}{cached}"),
        ("tokens emitted", f"{tokens.emitted:,}"),
        ("checks of the conservation law", f"{audit.checks:,}, {audit.violations:,} violated"),
        ("outputs compared", f"{audit.outputs_compared:,}, {audit.outputs_different:,} different"),
        ("steps, messages", f"{report.steps:,}, {report.messages:,}"),
        ("time simulated, time taken", f"{report.virtual_s:,.2f} s, {report.wall_s:,.1f} s"),
    ]
    if report.source is not None:
        unused = "; ".join(f"{count:,} {reason}" for reason, count in report.source.unused.items())
        facts += [
            (f"rows of {report.source.name}", f"{report.source.used:,} of {report.source.rows:,} used"),
            ("rows not used", unused or "none"),
        ]
    config = msgspec.json.encode(report.config).decode()
    return section(
        "The run",
        "The digest is of every message between the actors. The same configuration in virtual time gives the "
        "same digest, and the same report.",
        table(("", ""), facts) + f'<p class="note">digest <code>{report.digest}</code></p>'
        f"<details><summary>configuration</summary><code>{escape(config)}</code></details>",
    )


def section(title: str, about: str, content: str, after: str = "") -> str:
    """Write a part of a page: what it is about, then what there is."""
    note = f'<p class="note">{after}</p>' if after else ""
    return f'<section><h2>{title}</h2><p class="about">{about}</p>{content}{note}</section>'


def legend(layers: Iterable[Layer]) -> str:
    """Name the colours of a plot."""
    return (
        '<div class="legend">'
        + "".join(f'<span><i class="{colour}"></i>{label}</span>' for label, colour, _ in layers)
        + "</div>"
    )


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Write a table; one without a head is of facts."""
    first = "<tr>" + "".join(f"<th>{cell}</th>" for cell in head) + "</tr>" if any(head) else ""
    cells = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table{'' if first else ' class=facts'}>{first}{cells}</table>"


def both(draw: Callable[..., str]) -> str:
    """Draw for a wide page and for a narrow one; the style sheet shows one of them."""
    wide, narrow = (draw(width=width) for width in plots.WIDTHS)
    return f'<div class="wide">{wide}</div><div class="narrow">{narrow}</div>'


def _quantiles(latency: Latency) -> tuple[float | None, ...]:
    return latency.p50, latency.p90, latency.p99, latency.max, latency.mean


def _ms(value: float | None) -> str:
    return "none" if value is None else format_ms(value)

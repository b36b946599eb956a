"""`outrider load`: many clients against a running server."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import click
import msgspec
import numpy as np

from cli.endings import BROKEN, INTERRUPTED, Unusable
from cli.options import POSITIVE, SHARE, refuse_without_effect
from cli.outputs import OutFile, Output
from cli.progress import Progress
from server.load import Load, LoadConfig, LoadReport, Quantiles, run_load
from sims.arrivals import Open
from sims.errors import SimError
from sims.traces import read_trace

_COUNT = click.IntRange(1)
_REQUESTS = 100


@click.command(short_help="Put a running server under load, some clients leaving.")
@click.option("--url", default="http://127.0.0.1:8000", show_default=True, help="The server.")
@click.option(
    "--clients", "num_clients", type=_COUNT, default=100, show_default=True, help="At once, in a closed loop."
)
@click.option("--requests", type=_COUNT, help="In all.", show_default="one a client; 100 at a rate; all of a trace's")
@click.option("--rate", type=POSITIVE, help="An open loop: requests a second, whatever becomes of them.")
@click.option(
    "--arrivals",
    type=click.Choice(["poisson", "constant", "trace"]),
    help="When requests are sent in an open loop: at random, evenly, or at a trace's times.",
    show_default="poisson, or trace with --trace",
)
@click.option("--trace", type=click.Path(exists=True, dir_okay=False), help="Whose times requests are sent at.")
@click.option("--format", "layout", metavar="NAME", help="What the trace is.", show_default="guessed")
@click.option("--speedup", type=POSITIVE, default=1.0, show_default=True, help="How much faster than the trace.")
@click.option(
    "--cancel-rate", "--leave", "leave", type=SHARE, default=0.3, show_default=True, help="Share of clients that leave."
)
@click.option("--prompt-chars", type=_COUNT, default=200, show_default=True)
@click.option("--max-tokens", type=_COUNT, default=64, show_default=True)
@click.option("--timeout", "timeout_s", type=POSITIVE, default=300.0, show_default=True, help="Seconds.")
@click.option("--api-key", envvar="OUTRIDER_API_KEY")
@click.option("--seed", type=int, default=0, show_default=True, help="Who leaves, and where; when requests are sent.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--record", type=OutFile(), help="Write what was asked and answered as JSON lines, for sim --replay.")
@click.pass_context
def load(ctx: click.Context, /, as_json: bool, record: Output | None, **options: Any) -> None:
    """Put a running server under load: clients that stream over real sockets, some of whom leave at random points.

    In a closed loop each client makes its next request when the one before has ended, so that a slow server is asked
    less. With --rate or --trace, an open loop: requests are sent at their times, and every latency counts from then.

    Exit status 1 if a request failed that should not have, if none finished, or if the server's /metrics do not show
    every block back afterwards. A request refused for overload is counted apart. Ctrl-C breaks the load off: the report
    is of what was until then, and the status 130.
    """
    refuse_without_effect(ctx, _needs(options))
    config = _config(ctx, options)
    with Progress() as progress:
        try:
            done = anyio.run(run_load, config, lambda num: progress.show("requests", num, config.num_requests))
        except OSError as error:
            raise Unusable(f"{options['url']}: {error}") from None
    if record is not None:
        record.write(b"".join(_recorded(done)))
    if as_json:
        click.echo(msgspec.json.encode(done.report))
    else:
        _print(done.report, how=_arrivals(options) or "closed")
    if not done.report.is_whole:
        ctx.exit(BROKEN)
    if done.report.is_broken_off:
        ctx.exit(INTERRUPTED)


def _needs(o: dict[str, Any]) -> dict[str, tuple[bool, str]]:
    """Say of each option that may change nothing whether it does here, and what it needs to."""
    arrivals = _arrivals(o)
    return {
        "num_clients": (arrivals is None, "a closed loop, without --rate and --trace"),
        "rate": (arrivals in ("poisson", "constant"), "--arrivals poisson or constant, without --trace"),
        "trace": (arrivals == "trace", "--arrivals trace"),
        "layout": (arrivals == "trace", "--trace"),
        "speedup": (arrivals == "trace", "--trace"),
    }


def _arrivals(o: dict[str, Any]) -> str | None:
    """Name how requests come in an open loop; None is a closed one."""
    return o["arrivals"] or ("trace" if o["trace"] is not None else "poisson" if o["rate"] is not None else None)


def _config(ctx: click.Context, o: dict[str, Any]) -> LoadConfig:
    address = urlsplit(o["url"])
    if address.scheme != "http" or address.hostname is None:
        raise click.UsageError(f"--url is {o['url']!r}: http://HOST:PORT", ctx)
    times_s = _times_s(ctx, o)
    return LoadConfig(
        host=address.hostname,
        port=address.port or 80,
        num_clients=o["num_clients"],
        num_requests=(o["requests"] or o["num_clients"]) if times_s is None else len(times_s),
        times_s=times_s,
        leave_share=o["leave"],
        prompt_chars=o["prompt_chars"],
        max_tokens=o["max_tokens"],
        seed=o["seed"],
        timeout_s=o["timeout_s"],
        api_key=o["api_key"],
    )


def _times_s(ctx: click.Context, o: dict[str, Any]) -> list[float] | None:
    """Give the seconds at which requests are sent; None is a closed loop."""
    arrivals = _arrivals(o)
    if arrivals is None:
        return None
    if arrivals == "trace":
        if o["trace"] is None:
            raise click.UsageError("--arrivals trace needs --trace", ctx)
        try:
            trace = read_trace(Path(o["trace"]), o["layout"])
        except SimError as error:
            raise click.UsageError(str(error), ctx) from None
        if not trace.has_times:
            raise click.UsageError(f"--trace {o['trace']} does not say when requests came", ctx)
        return [row.at_s / o["speedup"] for row in trace.rows[: o["requests"]]]
    if o["rate"] is None:
        raise click.UsageError(f"--arrivals {arrivals} needs --rate", ctx)
    process = Open(o["rate"], burstiness=1.0 if arrivals == "poisson" else 0.0)
    times_s = process.times_s(np.random.default_rng(abs(o["seed"])))
    return list(itertools.islice(times_s, o["requests"] or _REQUESTS))


def _recorded(done: Load) -> Iterator[bytes]:
    """Give a row for each request that finished."""
    for outcome in done.outcomes:
        if outcome.ending == "finished":
            row = {
                "prompt": outcome.plan.prompt,
                "completion": outcome.text,
                "num_tokens": outcome.num_tokens,
                "late_s": outcome.late_s,
                "ttft_s": outcome.ttft_s,
                "e2e_s": outcome.e2e_s,
            }
            yield msgspec.json.encode(row) + b"\n"


def _print(report: LoadReport, how: str) -> None:
    made = sum(report.endings.values())
    broken_off = f", broken off; {report.num_requests} were asked for" if report.is_broken_off else ""
    click.echo(
        f"{made} requests in {report.elapsed_s:.1f} s ({made / report.elapsed_s:.1f}/s, {how}){broken_off}: ", nl=False
    )
    click.echo(", ".join(f"{count} {ending.replace('_', ' ')}" for ending, count in report.endings.items() if count))
    click.echo(f"tokens of those that finished: {report.num_tokens}, {report.num_tokens / report.elapsed_s:.0f}/s")
    rows = (
        ("sent late by", report.late_s),
        ("time to first token", report.ttft_s),
        ("between deliveries", report.gap_s),
        ("end to end", report.e2e_s),
    )
    for name, quantiles in rows:
        click.echo(f"{name}: {_said(quantiles)}")
    click.echo(f"times count from when a request should have been sent; percentiles: {report.percentiles}")
    for problem, count in report.problems.items():
        click.echo(f"problem, {count} times: {problem}")
    if not report.endings["finished"] + report.endings["left"]:
        click.echo("no request was served: this shows nothing")
    blocks = ", ".join(f"{count:.0f} {state}" for state, count in report.blocks.items())
    click.echo(f"the server afterwards: blocks {blocks}; {report.num_open:.0f} sequences open; ", nl=False)
    click.echo(f"{report.num_violations:.0f} violations; {report.num_cancels:.0f} cancelled; ", nl=False)
    click.echo(f"accept rate {report.accept_rate:.2f}")


def _said(quantiles: Quantiles) -> str:
    if quantiles.p50 is None:
        return "none measured"
    named = msgspec.structs.asdict(quantiles)
    count = named.pop("count")
    return ", ".join(f"{name} {1000 * value:.1f} ms" for name, value in named.items()) + f" (of {count})"

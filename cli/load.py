"""`outrider load`: many clients against a running server."""

import sys
from urllib.parse import urlsplit

import anyio
import click
import msgspec

from server.load import LoadConfig, LoadReport, run_load


@click.command(short_help="Put a running server under load, some clients leaving.")
@click.option("--url", default="http://127.0.0.1:8000", show_default=True, help="The server.")
@click.option("--clients", "num_clients", type=click.IntRange(1), default=100, show_default=True, help="At once.")
@click.option("--requests", "num_requests", type=click.IntRange(1), help="In all. Default: one a client.")
@click.option("--leave", type=click.FloatRange(0, 100), default=30.0, show_default=True, help="Percent that leave.")
@click.option("--prompt-chars", type=click.IntRange(1), default=200, show_default=True)
@click.option("--max-tokens", type=click.IntRange(1), default=64, show_default=True)
@click.option("--timeout", "timeout_s", type=click.FloatRange(0.1), default=300.0, show_default=True, help="Seconds.")
@click.option("--api-key", envvar="OUTRIDER_API_KEY")
@click.option("--seed", type=int, default=0, show_default=True, help="Who leaves, and where.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def load(
    url: str,
    num_clients: int,
    num_requests: int | None,
    leave: float,
    prompt_chars: int,
    max_tokens: int,
    timeout_s: float,
    api_key: str | None,
    seed: int,
    as_json: bool,
) -> None:
    """Put a running server under load: clients that stream over real sockets, some of whom leave at random points.

    Exit status 1 if a request failed that should not have, or if the server's /metrics do not show every block back
    afterwards. A request refused for overload is counted apart.
    """
    address = urlsplit(url)
    if address.scheme != "http" or address.hostname is None:
        raise click.UsageError(f"--url is {url!r}: http://HOST:PORT")
    config = LoadConfig(
        host=address.hostname,
        port=address.port or 80,
        num_clients=num_clients,
        num_requests=num_requests or num_clients,
        leave_share=leave / 100,
        prompt_chars=prompt_chars,
        max_tokens=max_tokens,
        seed=seed,
        timeout_s=timeout_s,
        api_key=api_key,
    )
    try:
        report = anyio.run(run_load, config)
    except OSError as error:
        raise click.ClickException(f"{url}: {error}") from None
    if as_json:
        click.echo(msgspec.json.encode(report))
    else:
        _print(report)
    sys.exit(0 if report.is_whole else 1)


def _print(report: LoadReport) -> None:
    click.echo(f"{sum(report.endings.values())} requests in {report.elapsed_s:.1f} s: ", nl=False)
    click.echo(", ".join(f"{count} {ending}" for ending, count in report.endings.items()))
    click.echo(f"tokens of those that finished: {report.num_tokens}, {report.num_tokens / report.elapsed_s:.0f}/s")
    for name, quantiles in (("time to first token", report.ttft_s), ("between deliveries", report.gap_s)):
        click.echo(f"{name}: " + ", ".join(f"{q} {1000 * value:.1f} ms" for q, value in quantiles.items()))
    for problem, count in report.problems.items():
        click.echo(f"problem, {count} times: {problem}")
    blocks = ", ".join(f"{count:.0f} {state}" for state, count in report.blocks.items())
    click.echo(f"the server afterwards: blocks {blocks}; {report.num_open:.0f} sequences open; ", nl=False)
    click.echo(f"{report.num_violations:.0f} violations; {report.num_cancels:.0f} cancelled; ", nl=False)
    click.echo(f"accept rate {report.accept_rate:.2f}")

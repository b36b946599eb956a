"""A fleet's replicas as rows of a table."""

from collections.abc import Iterator

from sims.report import FleetReport

REPLICA_COLUMNS = (
    *("replica", "sent", "lost", "completed", "fed", "over mean", "cached", "accepted", "TTFT p50", "TTFT p99"),
    *("TPOT p50", "peak blocks", "held", "away"),
)


def rows_of_replicas(fleet: FleetReport) -> Iterator[tuple[str, ...]]:
    """Give a row for each replica, of `REPLICA_COLUMNS`; times in ms, but for the seconds that it was away."""
    mean = sum(replica.tokens.fed for replica in fleet.replicas) / len(fleet.replicas)
    for index, replica in enumerate(fleet.replicas):
        tokens, latency = replica.tokens, replica.latency_ms
        yield (
            str(index),
            f"{replica.sent:,}",
            f"{replica.lost:,}",
            f"{replica.completed:,}",
            f"{tokens.fed:,}",
            f"{tokens.fed / mean:.2f}" if mean else "-",
            f"{tokens.cached / tokens.prompt:.1%}" if tokens.prompt else "-",
            f"{replica.spec.accept_rate:.1%}" if replica.spec.drafted else "-",
            *(_ms(ms) for ms in (latency.ttft.p50, latency.ttft.p99, latency.tpot.p50)),
            f"{replica.blocks.peak_held:,}",
            f"{replica.blocks.held:,}",
            f"{replica.down_s:,.1f} s" if replica.down_s else "-",
        )


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"

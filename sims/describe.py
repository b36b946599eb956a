"""A simulation in a sentence."""

from typing import Literal, NamedTuple

from sims.config import SimConfig
from sims.report import Report
from spec import Draft


def describe_config(config: SimConfig) -> str:
    """Say what was simulated."""
    speculative = config.engine.speculative
    most = "as many nodes as pay" if speculative.is_auto else f"up to {speculative.k}"
    drafts = "no drafts" if speculative.draft is Draft.NONE else f"{speculative.draft} drafts of {most}"
    leaving = config.leaving
    parts = [
        f"seed {config.seed}",
        f"{config.clock} clock" + (", order drawn" if config.shuffle else ""),
        f"arrivals: {config.arrivals}",
        drafts,
        f"{leaving.cancel_rate:.0%} of clients leave",
    ]
    if (fleet := config.fleet) is not None:
        parts.insert(1, f"{fleet.replicas} replicas, {fleet.router} router")
        parts += [f"crash {outage}" for outage in fleet.crashes] + [f"drain {outage}" for outage in fleet.drains]
    if leaving.slow_rate:
        parts.append(f"{leaving.slow_rate:.0%} read slowly")
    if leaving.vanish_at_s:
        parts.append("all vanish at " + ", ".join(f"{at_s:g} s" for at_s in leaving.vanish_at_s))
    return " · ".join(parts)


def describe_gain(report: Report) -> str:
    """Say what drafts gained over none, and what that rests on."""
    plain, cost = report.baseline, report.config.cost
    assert plain is not None
    with_ms, without_ms = report.latency_ms.tpot.p50, plain.tpot_p50_ms
    tpot = "" if with_ms is None or without_ms is None else f"; TPOT p50 {with_ms:,.1f} ms against {without_ms:,.1f}"
    return (
        f"{plain.speedup:.2f} times the tokens/s of the same requests without drafts ({plain.tokens_per_s:,.0f})"
        f"{tpot}; if a pass takes {cost.overhead_ms:g} ms and {cost.per_token_us:g} µs a token"
    )


class Verdict(NamedTuple):
    """`good`: all that was to be shown was. `partial`: no law was broken, and not all was shown. `bad`: one was."""

    kind: Literal["good", "partial", "bad"]
    sentence: str


def verdict(report: Report) -> Verdict:
    """Say whether all was well, and in a sentence what was shown and what was not."""
    if report.problems:
        more = f" (and {len(report.problems) - 1:,} more)" if len(report.problems) > 1 else ""
        return Verdict("bad", f"FAILED, seed {report.config.seed}: {report.problems[0]}{more}")
    requests, compared = report.requests, report.audit.outputs_compared
    missing = [
        f"{count:,} {name}"
        for count, name in (
            (requests.refused, "were refused"),
            (requests.failed, "failed under the planted faults"),
            (requests.never_submitted, "were never submitted"),
        )
        if count
    ]
    shown = f"Every block is back, {report.audit.checks:,} checks found nothing wrong"
    shown += f", {compared:,} outputs equal the one-sequence loop's." if compared else "; no outputs were compared."
    if report.is_broken_off:
        shown = f"Broken off by Ctrl-C after {requests.submitted:,} of {requests.total:,} requests. {shown}"
    if not requests.completed:
        missing.insert(0, "none completed")
    if missing:
        shown += f" But of {requests.total:,} requests {', '.join(missing)}."
    is_whole = not missing and not report.is_broken_off and (compared > 0 or not report.config.compare)
    return Verdict("good" if is_whole else "partial", shown)


def name_of_phase(phase: str) -> str:
    """Say in words what a sequence was doing when its client left."""
    state, _, in_pass = phase.partition("_")
    return f"{state}, in a pass" if in_pass else state

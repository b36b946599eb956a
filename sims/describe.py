"""A simulation in a sentence."""

from sims.config import SimConfig
from sims.report import Report
from spec import Draft


def describe_config(config: SimConfig) -> str:
    """Say what was simulated."""
    speculative = config.engine.speculative
    drafts = "no drafts" if speculative.draft is Draft.NONE else f"{speculative.draft} drafts of up to {speculative.k}"
    leaving = config.leaving
    parts = [
        f"seed {config.seed}",
        f"{config.clock} clock" + (", order drawn" if config.shuffle else ""),
        f"arrivals: {config.arrivals}",
        drafts,
        f"{leaving.cancel_rate:.0%} of clients leave",
    ]
    if leaving.slow_rate:
        parts.append(f"{leaving.slow_rate:.0%} read slowly")
    if leaving.vanish_at_s:
        parts.append("all vanish at " + ", ".join(f"{at_s:g} s" for at_s in leaving.vanish_at_s))
    return " · ".join(parts)


def verdict(report: Report) -> tuple[bool, str]:
    """Say whether all was well, and in a sentence why."""
    if report.problems:
        more = f" (and {len(report.problems) - 1} more)" if len(report.problems) > 1 else ""
        return False, f"FAILED, seed {report.config.seed}: {report.problems[0]}{more}"
    compared = report.audit.outputs_compared
    outputs = f"{compared:,} outputs equal the one-sequence loop's" if compared else "no outputs were compared"
    return True, f"Every block is back, {report.audit.checks:,} checks found nothing wrong, {outputs}."


def name_of_phase(phase: str) -> str:
    """Say in words what a sequence was doing when its client left."""
    state, _, in_pass = phase.partition("_")
    return f"{state}, in a pass" if in_pass else state

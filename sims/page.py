"""A simulation's report as one page."""

from sims.report import Report


def page(report: Report) -> str:
    """Write the page."""
    return str(report)

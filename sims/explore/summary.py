"""What a campaign has to say, as lines of text."""

from collections.abc import Iterator

from sims.explore.campaign import Campaign, Failure
from sims.explore.coverage import MESSAGES, STATES, Coverage, by_frequency, impossible, num_possible

_NAME_WIDTH = 12


def summary(campaign: Campaign) -> Iterator[str]:
    """Tell how much was explored, what was covered and what was not."""
    coverage = campaign.coverage
    yield (
        f"{campaign.num_runs} runs, {campaign.runs_per_s:.1f} a second; {campaign.num_messages} messages, the laws "
        f"checked before each of {campaign.num_callbacks} callbacks; "
        f"{campaign.num_failed} seeds broke a law"
        + (f", in {len(campaign.failures)} ways" if campaign.failures else "")
    )
    yield f"ends: {_counts(coverage.ends)}"
    yield f"faults: {_counts(coverage.faults)}"
    yield f"tasks of the engine cancelled, by what the scheduler waited for: {_counts(coverage.strikes)}"
    yield f"cancels, by state and by what the scheduler waited for: {_counts(coverage.cancels)}"
    missing = list(coverage.missing())
    yield f"pairs of state and message: {num_possible() - len(missing)} of {num_possible()} that are possible were seen"
    for state, message in missing:
        yield f"  never seen: {message} about one that is {state}"
    for state, message in coverage.surprising():
        yield f"  seen, though {impossible(state, message)}: {message} about one that is {state}"


def pairs(coverage: Coverage) -> Iterator[str]:
    """Give the table of pairs: how often each was seen, - for the impossible, and why."""
    yield " " * _NAME_WIDTH + "".join(state.rjust(_NAME_WIDTH) for state in STATES)
    reasons: dict[str, None] = {}
    for message in MESSAGES:
        cells = []
        for state in STATES:
            reason = impossible(state, message)
            if reason:
                reasons[reason] = None
            count = coverage.pairs.get(f"{state} {message}", 0)
            cells.append("-" if reason and not count else str(count))
        yield message.ljust(_NAME_WIDTH) + "".join(cell.rjust(_NAME_WIDTH) for cell in cells)
    yield "-: impossible, because"
    yield from (f"  {reason}" for reason in reasons)


def failure(found: Failure) -> Iterator[str]:
    """Tell of a kind of failure, with the commands that repeat it."""
    yield f"seed {found.seed} broke a law. {found.law}: {found.what}"
    if found.num_seeds > 1:
        others = ", ".join(map(str, found.others)) + (", ..." if found.num_seeds > 1 + len(found.others) else "")
        yield f"  so did {found.num_seeds - 1} more: {others}"
    yield from (f"  {line}" for line in found.traceback.splitlines())
    yield f"  as drawn: outrider explore --seed {found.seed}"
    yield f"  smallest: outrider explore --scenario '{found.scenario}'"


def _counts(table: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in by_frequency(table)) or "none"

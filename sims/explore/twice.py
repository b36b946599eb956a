"""The same scenario twice: a run is a function of its scenario, message by message."""

from actors.messages import Message, encode
from sims.explore.diagram import describe
from sims.explore.invariants import SAME_RUN, Violation
from sims.explore.run import Outcome, run
from sims.explore.scenario import Scenario


def run_twice(scenario: Scenario) -> Outcome:
    """Run a scenario, and again; where all went well, a message that differs is a violation that names the first."""
    first, second = _Log(), _Log()
    outcome = run(scenario, first)
    run(scenario, second)
    difference = first.difference(second)
    if outcome.violation is None and difference is not None:
        return outcome._replace(violation=Violation(SAME_RUN, difference))
    return outcome


class _Log:
    """Every message of a run, as it was when it was handed over."""

    def __init__(self) -> None:
        self._lines: list[tuple[float, str, str, bytes, str]] = []

    def __call__(self, time_s: float, sender: str, receiver: str, message: Message) -> None:
        self._lines.append((time_s, sender, receiver, encode(message), describe(message)))

    def difference(self, other: "_Log") -> str | None:
        """Say where another log parts from this one."""
        for i, (mine, theirs) in enumerate(zip(self._lines, other._lines, strict=False)):
            if mine != theirs:
                return f"message {i} was {_told(mine)}, and the second time {_told(theirs)}"
        if len(self._lines) != len(other._lines):
            return f"{len(self._lines)} messages, and the second time {len(other._lines)}"
        return None


def _told(line: tuple[float, str, str, bytes, str]) -> str:
    time_s, sender, receiver, _, description = line
    return f"{sender} to {receiver} at {time_s:.6f} s: {description}"

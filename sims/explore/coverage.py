"""What a campaign has seen, and what it could not see."""

from collections import Counter
from collections.abc import Iterator

import msgspec

from scheduler import State

UNSEEN = "unseen"
"""Submitted, and not yet taken in by the scheduler."""

STATES = (UNSEEN, *map(str, State))
MESSAGES = (
    "Submit",
    "Cancel",
    "Resume",
    "Stop",
    "Admit",
    "Admitted",
    "Reserve",
    "Reserved",
    "Propose",
    "Proposed",
    "Step",
    "StepDone",
    "Settle",
    "Settled",
    "ForgetAll",
)
_OF_A_PASS = ("Reserve", "Reserved", "Propose", "Proposed", "Step", "StepDone")
ENDED = (State.FINISHED, State.CANCELLED, State.FAILED)


def impossible(state: str, message: str) -> str | None:
    """Tell why a message can never be handed over about a sequence in a state; None where it can."""
    match message:
        case "Submit":
            return None if state == UNSEEN else "it is the first message about a sequence"
        case "Stop":
            return None
        case "ForgetAll" if state in ENDED:
            return "it is about those that have not ended"
        case "Resume" if state in (UNSEEN, State.WAITING, State.PREFILL):
            return "only a sequence that has emitted can be paused, and it is not admitted again before it is resumed"
        case "Resume" if state in (State.FINISHED, State.FAILED):  # one that a stop cancels may still be read
            return "a paused sequence is not fed, and a stream that has ended resumes nothing"
        case _ if state == UNSEEN and message != "Cancel":
            return "the scheduler speaks only of what it has taken in"
        case "Admit" if state not in (State.WAITING, State.PREEMPTED):
            return "only those who wait are admitted"
        case "Admitted" if state not in (State.WAITING, State.PREEMPTED):
            return "the state changes after the answer; a cancel is heard later"
        case _ if message in _OF_A_PASS and state not in (State.PREFILL, State.DECODE):
            return "only admitted sequences are fed; a cancel is heard after the pass"
        case "Settle" if state == State.WAITING:
            return "it holds nothing to settle"
        case "ForgetAll" if state in (State.PREFILL, State.DECODE):
            return "those that ran are preempted first"
    return None


class Coverage(msgspec.Struct):
    """Counts over runs. Pairs are keyed `state message`, cancels `state stage`, strikes `task stage`."""

    pairs: dict[str, int] = {}
    cancels: dict[str, int] = {}
    faults: dict[str, int] = {}
    strikes: dict[str, int] = {}
    ends: dict[str, int] = {}

    def add(self, other: "Coverage") -> None:
        """Take in another's counts."""
        for name in self.__struct_fields__:
            mine = getattr(self, name)
            for key, count in getattr(other, name).items():
                mine[key] = mine.get(key, 0) + count

    def count(self, table: dict[str, int], *key: str, by: int = 1) -> None:
        """Count one more in one of the tables."""
        name = " ".join(key)
        table[name] = table.get(name, 0) + by

    def missing(self) -> Iterator[tuple[str, str]]:
        """Give the possible pairs that were never seen."""
        for message in MESSAGES:
            for state in STATES:
                if not impossible(state, message) and f"{state} {message}" not in self.pairs:
                    yield state, message

    def surprising(self) -> Iterator[tuple[str, str]]:
        """Give the pairs that were seen although they are said to be impossible."""
        for pair in self.pairs:
            state, message = pair.split()
            if impossible(state, message):
                yield state, message


def num_possible() -> int:
    """Count the pairs that can be seen."""
    return sum(impossible(state, message) is None for state in STATES for message in MESSAGES)


def by_frequency(table: dict[str, int]) -> list[tuple[str, int]]:
    """Sort a table, the most frequent first."""
    return Counter(table).most_common()

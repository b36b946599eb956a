"""Every order of a tiny scenario: depth first over the choices among ready callbacks, states seen before left alone."""

from collections.abc import Callable
from typing import NamedTuple

from sims.explore.fingerprint import fingerprint
from sims.explore.invariants import Violation
from sims.explore.loop import ExploringLoop
from sims.explore.run import run_on
from sims.explore.scenario import Scenario
from sims.explore.watch import Watch

_END = b""


class Explored(NamedTuple):
    """What there was to see. `num_orders` counts the ways through the states from start to end."""

    num_states: int
    num_choices: int
    num_orders: int
    num_runs: int
    cancels: frozenset[str]
    """The states in which cancels found the sequence, each with what the scheduler was waiting for."""
    faults: frozenset[str]
    """The kinds of fault that struck."""
    violation: Violation | None
    choices: list[int]
    """The choices that lead to the violation."""


class _Seen(Exception):  # not an error: the way a run is left early
    """The run has come to a state that has been seen."""


class _Branch(NamedTuple):
    """A new state: how many choices led to it, and how many there are."""

    state: bytes
    at: int
    num_ready: int


class _Given(NamedTuple):
    """Choices to make, the last of them for the first time and in a state that is known."""

    choices: list[int]
    state: bytes


class _Walk:
    """One run: it follows the choices it is given, and takes the first of all that come after."""

    def __init__(self, states: dict[bytes, list[bytes | None]], given: "_Given") -> None:
        self.choices: list[int] = []
        self.fresh: list[_Branch] = []
        self._states = states
        self._given = given
        self._last: tuple[bytes, int] | None = None

    def start(self, scenario: Scenario) -> Violation | None:
        """Run to the end, or to a state that has been seen."""
        self.watch = Watch(scenario)
        self._loop = ExploringLoop(self._choose)
        try:
            violation = run_on(self._loop, scenario, self.watch)
        except _Seen:
            return None
        self._arrive(_END)
        return violation

    def _choose(self, num_ready: int) -> int:
        if self.watch.is_at_rest:
            return 0
        at = len(self.choices)
        if at < len(self._given.choices):  # on the way back to where the new choice is made
            return self._go(self._given.state, self._given.choices[at])
        state = fingerprint(self._loop, self.watch)
        self._arrive(state)
        if state in self._states:
            raise _Seen
        self._states[state] = [None] * num_ready
        self.fresh.append(_Branch(state, at, num_ready))
        return self._go(state, 0)

    def _go(self, state: bytes, choice: int) -> int:
        self.choices.append(choice)
        self._last = state, choice
        return choice

    def _arrive(self, state: bytes) -> None:
        if self._last is not None:
            before, choice = self._last
            self._states[before][choice] = state


def explore(scenario: Scenario, watch: Callable[[int, int], None] | None = None) -> Explored:
    """Explore a scenario to completion, or to the first violation; `watch` is told of runs and states now and then.

    A scenario without time is one where anything can come before anything: passes that take none, clients that
    come at 0 and leave after 0 s.
    """
    states: dict[bytes, list[bytes | None]] = {}
    to_try = [_Given([], _END)]
    num_runs = 0
    cancels: set[str] = set()
    faults: set[str] = set()

    def explored(num_orders: int, violation: Violation | None, choices: list[int]) -> Explored:
        num_choices = sum(map(len, states.values()))
        seen = frozenset(cancels), frozenset(faults)
        return Explored(len(states), num_choices, num_orders, num_runs, *seen, violation, choices)

    while to_try:
        walk = _Walk(states, to_try.pop())
        violation = walk.start(scenario)
        num_runs += 1
        cancels.update(walk.watch.coverage.cancels)
        faults.update(walk.watch.agenda.struck)
        if violation is not None:
            return explored(0, violation, walk.choices)
        for state, at, num_ready in walk.fresh:
            to_try.extend(_Given([*walk.choices[:at], other], state) for other in range(1, num_ready))
        if watch is not None and num_runs % 100 == 0:
            watch(num_runs, len(states))
    return explored(_num_orders(states), None, [])


def _num_orders(states: dict[bytes, list[bytes | None]]) -> int:
    """Count the paths to the end from the first state."""
    counts = {_END: 1}
    if not states:
        return 1
    stack = [next(iter(states))]
    while stack:
        state = stack[-1]
        open_children = [child for child in states[state] if child is not None and child not in counts]
        if open_children:
            stack.extend(open_children)
            continue
        stack.pop()
        counts[state] = sum(counts[child] for child in states[state] if child is not None)
    return counts[next(iter(states))]

"""Which drafted tokens each round is worth: expected tokens against the measured cost of rows.

A drafted row costs what one more row costs the pass, and gains the chance that it is reached and accepted. The
chances are estimated from rounds that are over, never from the drafted tokens themselves.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Self

import msgspec
import numpy as np

from scheduler.errors import refuse
from scheduler.proposal import Proposal

_LEAST_GAIN = 1.05  # what drafts must promise: the estimates are rough, and rows cost more than their arithmetic
_NUM_GRADES = 16  # of what proposers say
_SHORTEST_MEMORY, _LONGEST_MEMORY = 3, 24  # trials an estimate rests on: few at first, so that it moves fast


class PassCost(msgspec.Struct, frozen=True):
    """Seconds a pass takes by the number of ids it feeds: linear between measured points and past the last.

    Raises RequestError unless there are two points or more, by rising number of rows, with positive times.
    """

    num_rows: tuple[int, ...]
    seconds: tuple[float, ...]
    layer_s: float = 0.0
    """Seconds of a layer of the drafts that a model makes for one sequence,"""
    layer_row_s: float = 0.0
    """and more for each further sequence that it makes them for."""

    def __post_init__(self) -> None:
        if len(self.num_rows) != len(self.seconds) or len(self.num_rows) < 2:
            raise refuse("seconds", self.seconds, f"one for each of num_rows {self.num_rows}, at least two")
        if any(a >= b for a, b in zip(self.num_rows, self.num_rows[1:], strict=False)) or min(self.seconds) <= 0:
            raise refuse("num_rows, seconds", (self.num_rows, self.seconds), "rising numbers and positive times")
        for name in ("layer_s", "layer_row_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise refuse(name, getattr(self, name), "seconds >= 0")

    @classmethod
    def linear(cls, overhead_s: float, per_row_s: float, layer_s: float = 0.0, layer_row_s: float = 0.0) -> Self:
        """Give the cost of `overhead_s + per_row_s * rows`."""
        return cls((1, 2), (overhead_s + per_row_s, overhead_s + 2 * per_row_s), layer_s, layer_row_s)

    def of(self, most_rows: int) -> list[float]:
        """Give the cost of a pass of 0, 1, ..., `most_rows` rows."""
        return _costs(self, 1 << most_rows.bit_length())[: most_rows + 1]


@lru_cache(maxsize=64)
def _costs(cost: PassCost, num: int) -> list[float]:
    """Give the cost of passes of fewer rows than `num`: it is asked for in every step."""
    rows = np.arange(num)
    inside = np.interp(rows, cost.num_rows, cost.seconds)
    slope = (cost.seconds[-1] - cost.seconds[-2]) / (cost.num_rows[-1] - cost.num_rows[-2])
    beyond = np.maximum(rows - cost.num_rows[-1], 0) * max(slope, 0.0)
    costs: list[float] = (inside + beyond).tolist()
    return costs


class Acceptance:
    """How often drafts have come true: the first token of one, and a later one whose forerunners did.

    Kept apart by grade: the strength of the match that text was copied from, for a long n-gram is worth more than a
    short one, or what the proposer said of the node, which may say too much or too little. What is not known yet of a
    sequence is taken from what is known of all (`of_all`), and at the very start from a guess that does not bet on
    short matches and takes a proposer at its word.
    """

    __slots__ = ("_first", "_later", "_of_all")

    def __init__(self, of_all: "Acceptance | None" = None) -> None:
        self._of_all = of_all
        self._first: dict[int, _Rate] = {}
        self._later: dict[int, _Rate] = {}

    def first(self, grade: int) -> float:
        """Estimate the chance that a node of the first layer is accepted."""
        if grade in self._first:
            return self._first[grade].value
        if self._of_all is not None:
            return self._of_all.first(grade)
        return _said(grade) if grade < 0 else 1 - 0.85**grade

    def later(self, grade: int) -> float:
        """Estimate the chance of a node whose parent was accepted."""
        if grade in self._later:
            return self._later[grade].value
        if self._of_all is not None:
            return self._of_all.later(grade)
        return _said(grade) if grade < 0 else 1 - 0.6**grade

    def chances(self, proposal: Proposal, strength: int) -> list[float]:
        """Estimate, for each node of a draft, the chance that its round emits it; never more than its parent's."""
        parents = proposal.parents
        if parents is None and proposal.values is None:
            first, later = self.first(strength), self.later(strength)
            return [first * later**i for i in range(len(proposal.tokens))]
        chances: list[float] = []
        grades = _grades(proposal, strength)
        for node, grade in enumerate(grades):
            parent = node - 1 if parents is None else parents[node]
            chances.append(self.first(grade) if parent < 0 else chances[parent] * self.later(grade))
        return chances

    def learn(self, proposal: Proposal, strength: int, emitted: Sequence[int]) -> None:
        """Compare what was proposed, fed or not, with what was emitted, as far as both go."""
        grades = _grades(proposal, strength)
        children = proposal.children()
        parent = -1
        for token in emitted:
            rates, guess = (self._first, self.first) if parent < 0 else (self._later, self.later)
            accepted = None
            for node in children.get(parent, ()):
                grade = grades[node]
                if grade not in rates:
                    rates[grade] = _Rate(guess(grade))
                is_emitted = proposal.tokens[node] == token
                rates[grade].learn(is_emitted)
                if is_emitted:
                    accepted = node
            if accepted is None:
                break
            parent = accepted
        if self._of_all is not None:
            self._of_all.learn(proposal, strength, emitted)


def _grades(proposal: Proposal, strength: int) -> list[int]:
    """Grade each node: by the strength of its match, or below 0 by what the proposer said of it, its parent given."""
    values, parents = proposal.values, proposal.parents
    if values is None:
        return [strength] * len(proposal.tokens)
    grades = []
    for node, value in enumerate(values):
        parent = node - 1 if parents is None else parents[node]
        before = values[parent] if parent >= 0 else 1.0
        grades.append(-1 - min(_NUM_GRADES - 1, int(_NUM_GRADES * value / before)))
    return grades


def _said(grade: int) -> float:
    """Give the chance that a grade below 0 stands for."""
    return (-1 - grade + 0.5) / _NUM_GRADES


class Lead:
    """Tokens that a model's draft promises over text's, by whether text had a draft in the round before.

    Of one sequence, or of all: what is not known yet of the one is taken from what is known of all, and at the very
    start from a guess for each layer of its draft, soon given up.
    """

    __slots__ = ("_most_layers", "_of_all", "_rates")

    def __init__(self, most_layers: int, of_all: "Lead | None" = None) -> None:
        self._most_layers = most_layers
        self._of_all = of_all
        self._rates: dict[bool, _Rate] = {}

    def value(self, had_text: bool) -> float:
        """Estimate it."""
        if had_text in self._rates:
            return self._rates[had_text].value
        if self._of_all is not None:
            return self._of_all.value(had_text)
        return (0.2 if had_text else 0.4) * self._most_layers

    def learn(self, had_text: bool, num_tokens: float) -> None:
        """Take in by how much a draft of the model's was better than text's; by none where it was not."""
        if had_text not in self._rates:
            self._rates[had_text] = _Rate(self.value(had_text), 1 if self._of_all is None else _SHORTEST_MEMORY)
        self._rates[had_text].learn(num_tokens)
        if self._of_all is not None:
            self._of_all.learn(had_text, num_tokens)


class _Rate:
    """A running mean of trials, a share where each succeeds or not, forgetting the old."""

    __slots__ = ("_num_trials", "value")

    def __init__(self, guess: float, num_trials: int = _SHORTEST_MEMORY) -> None:
        self.value = guess
        self._num_trials = num_trials

    def learn(self, outcome: float) -> None:
        self._num_trials = min(self._num_trials + 1, _LONGEST_MEMORY)
        self.value += (outcome - self.value) / self._num_trials


class Prices:
    """What time costs in tokens, where a pass of so many plain rounds is `num_rounds` tokens in its seconds."""

    __slots__ = ("layer", "layer_row", "row")

    def __init__(self, cost: PassCost, num_rounds: int) -> None:
        pass_s, longer_s = cost.of(num_rounds + 1)[-2:]
        tokens_a_second = num_rounds / pass_s
        self.row = (longer_s - pass_s) * tokens_a_second
        """Of a further row."""
        self.layer_row = cost.layer_row_s * tokens_a_second
        """Of a layer that a model drafts for a further sequence,"""
        self.layer = max(0.0, cost.layer_s - cost.layer_row_s) * tokens_a_second
        """and what it costs for however many besides."""

    def gain(self, chances: Sequence[float]) -> float:
        """Tokens that a draft of such chances gains, of its best part."""
        return sum(chance - self.row for chance in chances if chance > self.row)


def share_rows(
    cost: PassCost | None, num_rows: int, num_sure: int, chances: Sequence[Sequence[float]], most: int
) -> list[list[int]]:
    """Say which nodes each draft may feed, to get the most expected tokens per second from the pass.

    It feeds `num_rows` rows and emits `num_sure` tokens in any case, and has room for `most` rows more. `chances[i][j]`
    is the chance that node `j` of draft `i` is emitted by its round, no more than its parent's, which has a lower
    number. Rows go where they gain most, a node's never without its parent's; none, where they promise little. Without
    a `cost`, all that there is room for.
    """
    gains = sorted((-chance, i, node) for i, draft in enumerate(chances) for node, chance in enumerate(draft))
    del gains[max(most, 0) :]
    best = len(gains) if cost is None else _most_worthwhile(cost.of(num_rows + len(gains)), num_sure, gains)
    shares: list[list[int]] = [[] for _ in chances]
    for _, i, node in gains[:best]:
        shares[i].append(node)
    for nodes in shares:
        nodes.sort()
    return shares


def _most_worthwhile(costs: Sequence[float], num_sure: int, gains: Sequence[tuple[float, int, int]]) -> int:
    """Say how many of the drafted tokens, by falling gain, make a pass of so many seconds per rows the fastest."""
    num_rows = len(costs) - 1 - len(gains)
    expected = float(num_sure)
    best, best_speed = 0, expected / costs[num_rows]
    for n, (negative, _, _) in enumerate(gains, 1):
        expected -= negative
        speed = expected / costs[num_rows + n]
        if speed > best_speed:
            best, best_speed = n, speed
    return best if best_speed >= _LEAST_GAIN * num_sure / costs[num_rows] else 0

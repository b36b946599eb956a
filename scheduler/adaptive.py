"""How many drafted tokens each round is worth: expected tokens against the measured cost of rows.

A drafted row costs what one more row costs the pass, and gains the chance that it is reached and accepted. The
chances are estimated from rounds that are over, never from the drafted tokens themselves.
"""

from collections.abc import Sequence
from typing import Self

import msgspec
import numpy as np

from scheduler.errors import refuse

_LEAST_GAIN = 1.05  # what drafts must promise: the estimates are rough, and rows cost more than their arithmetic
_SHORTEST_MEMORY, _LONGEST_MEMORY = 3, 24  # trials an estimate rests on: few at first, so that it moves fast


class PassCost(msgspec.Struct, frozen=True):
    """Seconds a pass takes by the number of ids it feeds: linear between measured points and past the last.

    Raises RequestError unless there are two points or more, by rising number of rows, with positive times.
    """

    num_rows: tuple[int, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.num_rows) != len(self.seconds) or len(self.num_rows) < 2:
            raise refuse("seconds", self.seconds, f"one for each of num_rows {self.num_rows}, at least two")
        if any(a >= b for a, b in zip(self.num_rows, self.num_rows[1:], strict=False)) or min(self.seconds) <= 0:
            raise refuse("num_rows, seconds", (self.num_rows, self.seconds), "rising numbers and positive times")

    @classmethod
    def linear(cls, overhead_s: float, per_row_s: float) -> Self:
        """Give the cost of `overhead_s + per_row_s * rows`."""
        return cls((1, 2), (overhead_s + per_row_s, overhead_s + 2 * per_row_s))

    def of(self, most_rows: int) -> list[float]:
        """Give the cost of a pass of 0, 1, ..., `most_rows` rows."""
        rows = np.arange(most_rows + 1)
        inside = np.interp(rows, self.num_rows, self.seconds)
        slope = (self.seconds[-1] - self.seconds[-2]) / (self.num_rows[-1] - self.num_rows[-2])
        beyond = np.maximum(rows - self.num_rows[-1], 0) * max(slope, 0.0)
        costs: list[float] = (inside + beyond).tolist()
        return costs


class Acceptance:
    """How often drafts have come true: the first token of one, and a later one whose forerunners did.

    Kept apart by the strength of the match a draft came from: a long n-gram is worth more than a short one. What is
    not known yet of a sequence is taken from what is known of all (`of_all`), and at the very start from a guess that
    does not bet on short matches.
    """

    __slots__ = ("_first", "_later", "_of_all")

    def __init__(self, of_all: "Acceptance | None" = None) -> None:
        self._of_all = of_all
        self._first: dict[int, _Rate] = {}
        self._later: dict[int, _Rate] = {}

    def first(self, strength: int) -> float:
        """Estimate the chance that a draft's first token is accepted."""
        if strength in self._first:
            return self._first[strength].value
        return 1 - 0.85**strength if self._of_all is None else self._of_all.first(strength)

    def later(self, strength: int) -> float:
        """Estimate the chance of a later token whose forerunners were accepted."""
        if strength in self._later:
            return self._later[strength].value
        return 1 - 0.6**strength if self._of_all is None else self._of_all.later(strength)

    def chances(self, strength: int, num_drafted: int) -> list[float]:
        """Estimate, for each token of a draft, the chance that its round emits it."""
        first, later = self.first(strength), self.later(strength)
        return [first * later**i for i in range(num_drafted)]

    def learn(self, strength: int, draft: Sequence[int], emitted: Sequence[int]) -> None:
        """Compare what was proposed, fed or not, with what was emitted, as far as both go."""
        for i, (drafted, token) in enumerate(zip(draft, emitted, strict=False)):
            rates, guess = (self._first, self.first) if i == 0 else (self._later, self.later)
            if strength not in rates:
                rates[strength] = _Rate(guess(strength))
            rates[strength].learn(drafted == token)
            if drafted != token:
                break
        if self._of_all is not None:
            self._of_all.learn(strength, draft, emitted)


class _Rate:
    """A running share of trials that succeeded, forgetting the old."""

    __slots__ = ("_num_trials", "value")

    def __init__(self, guess: float) -> None:
        self.value = guess
        self._num_trials = _SHORTEST_MEMORY

    def learn(self, is_success: bool) -> None:
        self._num_trials = min(self._num_trials + 1, _LONGEST_MEMORY)
        self.value += (is_success - self.value) / self._num_trials


def share_rows(
    cost: PassCost | None, num_rows: int, num_sure: int, chances: Sequence[Sequence[float]], most: int
) -> list[int]:
    """Say how many drafted tokens each draft may feed, to get the most expected tokens per second from the pass.

    It feeds `num_rows` rows and emits `num_sure` tokens in any case, and has room for `most` rows more. `chances[i][j]`
    is the chance that token `j` of draft `i` is emitted by its round, not rising in `j`. Rows go where they gain most;
    none, where they promise little. Without a `cost`, all that there is room for.
    """
    gains = sorted((-chance, i) for i, draft in enumerate(chances) for chance in draft)[: max(most, 0)]
    best = len(gains) if cost is None else _most_worthwhile(cost.of(num_rows + len(gains)), num_sure, gains)
    shares = [0] * len(chances)
    for _, i in gains[:best]:
        shares[i] += 1
    return shares


def _most_worthwhile(costs: Sequence[float], num_sure: int, gains: Sequence[tuple[float, int]]) -> int:
    """Say how many of the drafted tokens, by falling gain, make a pass of so many seconds per rows the fastest."""
    num_rows = len(costs) - 1 - len(gains)
    expected = float(num_sure)
    best, best_speed = 0, expected / costs[num_rows]
    for n, (negative, _) in enumerate(gains, 1):
        expected -= negative
        speed = expected / costs[num_rows + n]
        if speed > best_speed:
            best, best_speed = n, speed
    return best if best_speed >= _LEAST_GAIN * num_sure / costs[num_rows] else 0

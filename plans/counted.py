"""The rounds of requests summed, in all, by category and by speed, and what that is worth at every batch."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from plans.answers import CategoryAnswer, Estimate, SizeAnswer
from plans.gain import Cost, Rows, speedups
from plans.logs import Recording
from plans.methods import Config
from plans.replay import NUM_LENGTHS, Rounds
from plans.tally import Tally, interval

SPEED_EDGES = tuple(float(2**x) for x in np.linspace(-2, 4, 25))
"""Between which speed-ups requests are counted; what lies beyond counts at the ends."""

OTHER = "(other)"

_MOST_CATEGORIES = 32

DraftSeconds = Callable[[int, float], Rows]
"""`[configs]`: what a batch's drafts of a round take, by the batch and its context."""


class Categories:
    """Names of kinds of requests: so many that are new, and one for all others."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def name(self, category: str | None) -> str | None:
        """Give the name that a category goes by; None stays None."""
        if category is None or category in self._known:
            return category
        if len(self._known) >= _MOST_CATEGORIES:
            return OTHER
        self._known.add(category)
        return category


class Counted:
    """The sums over requests for methods and sizes, with what their passes and drafts cost."""

    def __init__(self, configs: Sequence[Config], draft_s: DraftSeconds, cost: Cost, batch: int) -> None:
        self.configs = list(configs)
        self.whole = Tally()
        self.categories: dict[str, Tally] = {}
        self._names = Categories()
        self._by_speed = np.zeros((len(configs), len(SPEED_EDGES) - 1), np.int64)
        self.draft_s = draft_s
        self._cost = cost
        self._batch = batch

    def add(self, number: int, recording: Recording, rounds: Rounds) -> None:
        """Add request `number`; its own speed is that in the batch that is planned for."""
        self.whole.add(number, recording, rounds)
        n = recording.num_completion
        context = recording.num_prompt + (n - 1) / 2
        speeds = self._speeds(rounds.astype(float), np.array(float(n)), self._batch, context)
        places = np.searchsorted(np.array(SPEED_EDGES[1:-1]), speeds)
        self._by_speed[np.arange(len(self.configs)), places] += 1
        name = self._names.name(recording.category)
        if name is not None:
            self.categories.setdefault(name, Tally()).add(number, recording, rounds)

    def merge(self, other: "Counted") -> None:
        """Add the sums over other requests of the same log, whose categories go by the same names."""
        self.whole.merge(other.whole)
        self._by_speed += other._by_speed
        for name, tally in other.categories.items():
            self.categories.setdefault(name, Tally()).merge(tally)

    def sizes(self, batches: Sequence[int], longest: int) -> list[SizeAnswer]:
        """Answer for every method and size; `longest` is the largest size."""
        whole = self.whole
        rounds, tokens, num = whole.rounds, whole.tokens, whole.num_requests
        with np.errstate(invalid="ignore", divide="ignore"):
            per_round = tokens[:, None] / rounds[:, :, 0].sum(axis=-1)
        speeds = [self._speeds(rounds, tokens, batch, whole.mean_context) for batch in batches]
        answers = []
        for i, config in enumerate(self.configs):
            of_batches = [estimate(of_batch[:, i], num) for of_batch in speeds]
            drafted, accepted = rounds[0, i]
            lengths = np.arange(NUM_LENGTHS)
            num_drafted, num_accepted = float(drafted @ lengths), float(accepted @ lengths)
            most = config.size or longest
            answers.append(
                SizeAnswer(
                    config.method,
                    config.size,
                    estimate(per_round[:, i], num),
                    num_drafted / whole.num_tokens,
                    num_accepted / num_drafted if num_drafted else 0.0,
                    [int(drafted[j:].sum()) for j in range(1, most + 1)],
                    [int(accepted[j:].sum()) for j in range(1, most + 1)],
                    of_batches,
                    costs_from(batches, of_batches),
                    self._by_speed[i].tolist(),
                )
            )
        return answers

    def by_category(self, config: Config) -> list[CategoryAnswer]:
        """Answer for one method and size by category, at the batch that is planned for."""
        at = self.configs.index(config)
        answers = []
        for name, tally in sorted(self.categories.items()):
            rounds, num = tally.rounds, tally.num_requests
            with np.errstate(invalid="ignore", divide="ignore"):
                per_round = tally.tokens / rounds[:, at, 0].sum(axis=-1)
            speeds = self._speeds(rounds, tally.tokens, self._batch, tally.mean_context)
            speed = estimate(speeds[:, at], num)
            answers.append(CategoryAnswer(name, num, tally.num_tokens, estimate(per_round, num), speed, speed.verdict))
        return answers

    def _speeds(self, rounds: NDArray[np.float64], tokens: NDArray[np.float64], batch: int, context: float) -> Rows:
        return speedups(rounds, tokens, self.draft_s(batch, context), self._cost, batch, context)


def estimate(values: NDArray[np.float64], num_requests: int) -> Estimate:
    """Give the first value, with the interval that the others, of resamples, make."""
    return Estimate(float(values[0]), *(interval(values[1:], num_requests) or (None, None)))


def costs_from(batches: Sequence[int], speed: Sequence[Estimate]) -> int | None:
    """Give the first batch with less than the speed of plain decoding."""
    return next((batch for batch, at in zip(batches, speed, strict=True) if at.value < 1), None)

"""Sums over requests, with what they would have been for other requests of the same kind."""

import numpy as np
from numpy.typing import NDArray

from plans.logs import Recording
from plans.replay import Rounds

NUM_RESAMPLES = 200
_BLOCK = 64
_INSIDE = 0.95

Sums = NDArray[np.float64]


class Tally:
    """Adds up the rounds of requests, and beside the sum 200 sums in which each request counts 0, 1, 2, ... times.

    How often a request counts is Poisson-distributed with mean 1: the bootstrap over requests of a log that is gone
    through once (Hanley and MacGibbon 2006; Chamandy et al. 2012). Requests are drawn, not rounds, for the rounds of
    one are alike. The weights of a request follow from its number in the log alone, and all sums are of whole numbers:
    tallies of parts of a log add up to that of the whole, to the last bit.
    """

    def __init__(self) -> None:
        self.num_requests = 0
        self.num_tokens = 0
        self.num_prompt_tokens = 0
        self._context = 0  # sum over tokens of the context they are made in
        self._rounds: NDArray[np.float64] | None = None
        self._tokens = np.zeros(NUM_RESAMPLES + 1)
        self._block = -1
        self._weights = np.zeros((_BLOCK, NUM_RESAMPLES + 1))
        self._waiting: list[tuple[NDArray[np.float64], int, Rounds]] = []

    def add(self, number: int, recording: Recording, rounds: Rounds) -> None:
        """Add the rounds of request `number` of the log."""
        n = recording.num_completion
        self.num_requests += 1
        self.num_tokens += n
        self.num_prompt_tokens += recording.num_prompt
        self._context += n * recording.num_prompt + n * (n - 1) // 2
        if number // _BLOCK != self._block:
            self._block = number // _BLOCK
            self._weights = np.ones((_BLOCK, NUM_RESAMPLES + 1))
            self._weights[:, 1:] = np.random.default_rng(self._block).poisson(1.0, (_BLOCK, NUM_RESAMPLES))
        self._waiting.append((self._weights[number % _BLOCK], n, rounds))
        if len(self._waiting) == _BLOCK:
            self._take_in()

    def merge(self, other: "Tally") -> None:
        """Add the sums over other requests of the same log."""
        self.num_requests += other.num_requests
        self.num_tokens += other.num_tokens
        self.num_prompt_tokens += other.num_prompt_tokens
        self._context += other._context
        self._rounds = self.rounds + other.rounds if self._waiting or self._rounds is not None else other.rounds
        self._tokens = self._tokens + other.tokens

    def __getstate__(self) -> dict[str, object]:
        """Give sums alone: nothing else goes to another process."""
        self._take_in()
        return self.__dict__

    @property
    def mean_context(self) -> float:
        """Tokens of context that a token of an answer is made in, on average."""
        return self._context / self.num_tokens if self.num_tokens else 0.0

    @property
    def rounds(self) -> Sums:
        """Rounds by tokens drafted and accepted: `[resamples, configs, 2, NUM_LENGTHS]`, the log itself first."""
        self._take_in()
        assert self._rounds is not None, "nothing was added"
        return self._rounds

    @property
    def tokens(self) -> Sums:
        """Tokens of the answers: `[resamples]`, the log itself first."""
        self._take_in()
        return self._tokens

    def _take_in(self) -> None:
        if not self._waiting:
            return
        weights = np.array([weight for weight, _, _ in self._waiting])
        rounds = np.array([rounds for _, _, rounds in self._waiting], np.float64)
        self._tokens = self._tokens + weights.T @ np.array([n for _, n, _ in self._waiting], np.float64)
        summed = (weights.T @ rounds.reshape(len(rounds), -1)).reshape(-1, *rounds.shape[1:])
        self._rounds = summed if self._rounds is None else self._rounds + summed
        self._waiting.clear()


def interval(values: NDArray[np.float64], num_requests: int) -> tuple[float, float] | None:
    """Give between which values 95 of 100 resamples lie (percentile interval); None where one request is all."""
    finite = values[np.isfinite(values)]
    if num_requests < 2 or len(finite) < NUM_RESAMPLES // 2:
        return None
    low, high = np.quantile(finite, [(1 - _INSIDE) / 2, (1 + _INSIDE) / 2])
    return float(low), float(high)

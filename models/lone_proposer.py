"""A proposer in the one-sequence loop."""

from collections.abc import Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray

from models.protocol import Ask, Chunk, Proposer
from models.runner_target import RunnerTarget
from spec import SamplingParams


class LoneProposer:
    """A `spec.Proposer` over a proposer and the blocks of the one sequence that `target` is.

    It works on a copy of the proposer, bound beside the target.
    """

    def __init__(self, proposer: Proposer, target: RunnerTarget) -> None:
        self._proposer = copy(proposer)
        self._target = target
        self._proposer.bind(target.num_bound, target.block_tokens, target.model)
        self._covered = 0
        self._ask = Ask(0, [], 0, [], [], [])

    @property
    def reads_target(self) -> bool:
        """Heads draft from the target's hidden states."""
        return bool(self._proposer.taps)

    def begin(self, prompt: Sequence[int], output: Sequence[int], params: SamplingParams) -> None:
        """Feed the proposer what it lacks of `prompt + output`."""
        context = [*prompt, *output]
        length = len(context)
        table = self._target.reserve(length)
        start = min(self._covered, length - 1)
        self._proposer.feed([Chunk(context[start:], start, table, 1)])
        self._covered = length
        self._ask = Ask(0, table, length, [], [], [], params, prompt, output)

    def laws(self, tokens: Sequence[int], parents: Sequence[int], frontier: Sequence[int]) -> NDArray[np.float64]:
        """Give the law after each node of the frontier, -1 being the context, float64 `[len(frontier), V]`."""
        laws = self._proposer.laws([self._ask._replace(tokens=tokens, parents=parents, frontier=frontier)])
        words = self._proposer.vocabulary
        return laws if words is None else np.array([words.widen(law) for law in laws])

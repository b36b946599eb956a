"""What the one-sequence loop asks of a target, and of a model that proposes drafts."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from spec.params import SamplingParams


class Target(Protocol):
    """A model with the cache of one sequence."""

    def cached(self) -> int:
        """Positions in the cache."""

    def extend(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """Feed ids after what is cached; one row of logits per id, float32 `[len(ids), V]`."""

    def truncate(self, length: int) -> None:
        """Forget all but the first `length` positions."""


@runtime_checkable
class BoundedTarget(Target, Protocol):
    """A target that can hold only so many positions."""

    @property
    def max_model_len(self) -> int:
        """Positions the cache can hold; the nodes of a tree that are side by side share one."""


@runtime_checkable
class TreeTarget(Target, Protocol):
    """A target that can be fed token trees."""

    def extend(self, ids: Sequence[int], parents: Sequence[int] | None = None) -> NDArray[np.float32]:
        """Feed ids into the slots after what is cached; one row of logits per id, float32 `[len(ids), V]`.

        `parents[i]` is the index in `ids` of what id `i` follows, -1 for the last cached one; None is a chain. A row
        sees what is cached, its ancestors and itself, and its position is one more than its parent's.
        """

    def move_slots(self, moves: Sequence[tuple[int, int]]) -> None:
        """Carry out `(from slot, to slot)` moves in their order; slots count from the start of the sequence."""


class Proposer(Protocol):
    """What gives the law of the next token after every node of a draft."""

    def begin(self, prompt: Sequence[int], output: Sequence[int], params: SamplingParams) -> None:
        """Start a draft after `prompt + output`; `params` are those of a draft model's law."""

    def laws(self, tokens: Sequence[int], parents: Sequence[int], frontier: Sequence[int]) -> NDArray[np.float64]:
        """Give the law after each node of the frontier of the draft so far, -1 being its root: `[len(frontier), V]`."""


@runtime_checkable
class TargetReader(Proposer, Protocol):
    """A proposer that may draft from what the target made of the context."""

    @property
    def reads_target(self) -> bool:
        """Whether the target is to have cached all but the last token of a context before a draft begins."""

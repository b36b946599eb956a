"""From rounds and the cost of passes to a speed-up."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from plans.errors import PlanError
from plans.methods import MAX_SIZE
from plans.replay import NUM_LENGTHS
from plans.tally import Sums

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_DRAFT_STEP = 0.08

Rows = NDArray[np.float64]


class Cost(Protocol):
    """What passes take on the machine that is planned for."""

    def pass_s(self, num_rows: Rows, batch: int, context: float) -> Rows:
        """Give the seconds of passes of `num_rows` rows in all, over `batch` sequences of `context` tokens each."""

    def explain(self) -> list[str]:
        """Say what the cost rests on, with every constant."""


def plain_s(cost: Cost, batch: int, context: float) -> float:
    """Give the seconds of a pass without drafts."""
    return float(cost.pass_s(np.array([float(batch)]), batch, context)[0])


def speedups(rounds: Sums, tokens: NDArray[np.float64], draft_s: Rows, cost: Cost, batch: int, context: float) -> Rows:
    """Give the seconds a token takes plainly over those it takes with drafts, both in batches of `batch`: `[..., c]`.

    `rounds` `[..., c, 2, NUM_LENGTHS]` are by drafted and accepted tokens, `tokens` `[...]` what they delivered,
    `draft_s` `[c]` the seconds in which the batch drafts. A round of every sequence is one pass. Alone, its rows are
    what the round drafted and one; in a batch the mean over many rounds is what counts.
    """
    drafted = rounds[..., 0, :]
    with np.errstate(invalid="ignore", divide="ignore"):
        num_rounds = drafted.sum(axis=-1)
        if batch == 1:
            pass_s = (drafted * cost.pass_s(np.arange(1.0, NUM_LENGTHS + 1), 1, context)).sum(axis=-1) / num_rounds
        else:
            rows: Rows = 1 + (drafted * np.arange(NUM_LENGTHS)).sum(axis=-1) / num_rounds
            pass_s = cost.pass_s(batch * rows, batch, context)
        found: Rows = tokens[..., None] / num_rounds * plain_s(cost, batch, context) / (pass_s + draft_s)
    return found


class ShareOfPass(NamedTuple):
    """The cost of a layer of drafts, by what is known of it: a share of a plain pass, whatever its rows."""

    share: float
    cost: Cost

    def pass_s(self, num_rows: Rows, batch: int, context: float) -> Rows:
        """Give the seconds of layers."""
        return np.full_like(num_rows, self.share * plain_s(self.cost, batch, context))

    def explain(self) -> list[str]:
        """Say so."""
        return [f"{self.share:g} of a plain pass, as given"]


class Given(NamedTuple):
    """A method that needs a model, by what is known of it.

    `rates[i]` is the chance that drafted token `i` is accepted where those before it were; each token takes `step` of
    a plain pass to draft.
    """

    name: str
    rates: tuple[float, ...]
    step: float = _DRAFT_STEP

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `eagle3=0.80,0.74,0.68` or `eagle3=0.80,0.74,0.68@0.05`. PlanError says what is allowed."""
        name, is_there, rest = text.partition("=")
        rates, has_step, step = rest.partition("@")
        try:
            found = cls(name, tuple(float(rate) for rate in rates.split(",")), float(step) if has_step else _DRAFT_STEP)
        except ValueError:
            found = cls("", ())
        if not (name and is_there and found.rates and len(found.rates) <= MAX_SIZE):
            raise PlanError(f"acceptance {text!r}: NAME=R1,R2,... with 1 to {MAX_SIZE} rates, and @STEP if known")
        if not all(0 <= rate <= 1 for rate in found.rates) or not 0 <= found.step < float("inf"):
            raise PlanError(f"acceptance {text!r}: rates in [0, 1], and a step >= 0, in plain passes")
        return found

    def tokens_per_round(self, size: int) -> float:
        """Give what a round with `size` drafted tokens delivers on average."""
        return float(1 + np.cumprod(self.rates[:size]).sum())

    def speedup(self, size: int, cost: Cost, batch: int, context: float) -> float:
        """Give the speed-up with chains of `size` tokens."""
        plain = plain_s(cost, batch, context)
        pass_s = float(cost.pass_s(np.array([batch * (1.0 + size)]), batch, context)[0])
        return self.tokens_per_round(size) * plain / (pass_s + size * self.step * plain)


def check_batches(batches: Sequence[int]) -> list[int]:
    """Give batches in order, each once. PlanError for what is none."""
    for batch in batches:
        if not 1 <= batch <= 65_536:
            raise PlanError(f"batch {batch}: 1 to 65,536 sequences")
    return sorted(set(batches))

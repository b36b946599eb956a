"""How long prompts and outputs are."""

from typing import Self

import msgspec
import numpy as np

from sims.errors import SimError

_MOST = 2**31 - 1
_ALLOWED = f"N, LOW-HIGH (uniform) or lognormal:MEDIAN:SIGMA, in tokens from 1 to {_MOST}"


class Lengths(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A distribution of token counts: always `low` where it equals `high`, uniform between them, or lognormal.

    Lognormal lengths have the median `low` and the standard deviation `sigma` of their logarithm; they are cut at
    `high`, which `parse` sets to 16 times the median.
    """

    low: int
    high: int
    sigma: float | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `64`, `16-256` or `lognormal:128:0.8`. Raises SimError for anything else."""
        try:
            if text.startswith("lognormal:"):
                _, median, sigma = text.split(":")
                lengths = cls(int(median), 16 * int(median), float(sigma))
            else:
                low, high = text.split("-") if "-" in text else (text, text)
                lengths = cls(int(low), int(high))
        except ValueError:
            raise SimError(f"{text!r}: {_ALLOWED}") from None
        if not 1 <= lengths.low <= lengths.high <= _MOST or (lengths.sigma is not None and not 0 <= lengths.sigma <= 8):
            raise SimError(f"{text!r}: {_ALLOWED}")
        return lengths

    def draw(self, rng: np.random.Generator) -> int:
        """Draw one length."""
        if self.sigma is not None:
            return min(self.high, max(1, round(self.low * float(np.exp(self.sigma * rng.standard_normal())))))
        return int(rng.integers(self.low, self.high + 1)) if self.low < self.high else self.low

    def __str__(self) -> str:
        if self.sigma is not None:
            return f"lognormal:{self.low}:{self.sigma:g}"
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"

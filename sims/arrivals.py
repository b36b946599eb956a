"""When requests come: as others leave, or at times of their own."""

from collections.abc import Iterator

import msgspec
import numpy as np


class Closed(msgspec.Struct, frozen=True, tag="closed", forbid_unknown_fields=True):
    """A closed loop: always `concurrency` requests open; a new one comes the moment one ends."""

    concurrency: int = 256

    def __str__(self) -> str:
        return f"always {self.concurrency} open"


class Open(msgspec.Struct, frozen=True, tag="open", forbid_unknown_fields=True):
    """An open loop: `rate` requests a second, whatever becomes of them.

    Gaps are gamma distributed with the coefficient of variation `burstiness`: 1 is a Poisson process, 0 a metronome,
    more than 1 comes in bursts.
    """

    rate: float = 100.0
    burstiness: float = 1.0

    def times_s(self, rng: np.random.Generator) -> Iterator[float]:
        """Give the times of arrival, without end."""
        now_s = 0.0
        shape = self.burstiness**-2 if self.burstiness else 0.0
        while True:
            now_s += rng.gamma(shape, 1 / (self.rate * shape)) if shape else 1 / self.rate
            yield now_s

    def __str__(self) -> str:
        kind = "Poisson" if self.burstiness == 1 else f"gamma, burstiness {self.burstiness:g}"
        return f"{self.rate:g} a second ({kind})"


class Recorded(msgspec.Struct, frozen=True, tag="recorded", forbid_unknown_fields=True):
    """The times a trace was recorded at, divided by `speedup`."""

    speedup: float = 1.0

    def __str__(self) -> str:
        return "at the trace's own times" + (f", {self.speedup:g} times as fast" if self.speedup != 1 else "")

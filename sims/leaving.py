"""Clients that leave, read slowly or vanish: who, where and how, drawn from the seed."""

from typing import Literal

import msgspec
import numpy as np

Point = Literal["waiting", "prefill", "tokens", "between", "pass"]
POINTS: tuple[Point, ...] = ("waiting", "prefill", "tokens", "between", "pass")

Way = Literal["cancel", "break", "raise", "task"]
WAYS: tuple[Way, ...] = ("cancel", "break", "raise", "task")


class Leave(msgspec.Struct, frozen=True):
    """Where a client leaves, and how.

    `waiting`: before anything of it has run. `prefill`: when its first chunk is handed to the model. `pass`: in the
    middle of a later forward pass, `fraction` of it done. `tokens`: as it has read `num_tokens`. `between`: a moment
    after that, with nothing new to read. It leaves by `stream.cancel()`, by breaking out of its loop, by an
    exception in the loop's body, or by the cancellation of its task.
    """

    point: Point
    way: Way
    num_tokens: int
    fraction: float


class Leaving(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many clients misbehave."""

    cancel_rate: float = 0.0
    slow_rate: float = 0.0
    slow_delay_ms: float = 50.0
    """What a slow reader takes for a token, on average."""
    vanish_at_s: tuple[float, ...] = ()
    """At these times every open client leaves at once."""

    def draw(self, rng: np.random.Generator, max_tokens: int) -> Leave | None:
        """Draw whether, where and how a client leaves."""
        # Always the same number of draws, so that another rate leaves the rest of the workload as it was.
        chance, fraction = rng.random(2)
        point, way = rng.integers(len(POINTS)), rng.integers(len(WAYS))
        num_tokens = int(rng.integers(1, max_tokens + 1))
        if chance >= self.cancel_rate:
            return None
        return Leave(POINTS[point], WAYS[way], num_tokens, float(fraction))

    def draw_delay_s(self, rng: np.random.Generator) -> float:
        """Draw a client's pause after each token: 0 for one that reads at once."""
        chance, scale = rng.random(), rng.exponential()
        return self.slow_delay_ms / 1e3 * float(scale) if chance < self.slow_rate else 0.0

"""The generator every draw comes from: PCG-XSH-RR 64/32 (O'Neill 2014, section 6.3)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spec.errors import refuse

_MULTIPLIER = 6364136223846793005
_MASK64 = (1 << 64) - 1
_MASK32 = (1 << 32) - 1


class Pcg32:
    """One stream of 32-bit draws. `state` and `inc` are the whole of it: carry them and the stream goes on."""

    __slots__ = ("inc", "state")

    def __init__(self, initstate: int, initseq: int = 0) -> None:
        self.inc = (initseq << 1 | 1) & _MASK64
        self.state = 0
        self.next_u32()
        self.state = (self.state + initstate) & _MASK64
        self.next_u32()

    @classmethod
    def at(cls, state: int, inc: int) -> "Pcg32":
        """Resume the stream that stood at `state` with increment `inc`."""
        rng = cls.__new__(cls)
        rng.state = state
        rng.inc = inc
        return rng

    def next_u32(self) -> int:
        """Draw an integer in `[0, 2**32)`."""
        return int(self.next_f64() * 4294967296.0)

    def next_f64(self) -> float:
        """Draw a uniform in `[0, 1)`: one 32-bit draw over 2**32, exactly."""
        old = self.state
        self.state = (old * _MULTIPLIER + self.inc) & _MASK64
        twice = (((old >> 18 ^ old) >> 27) & _MASK32) * 4294967297  # the 32 bits, and again above themselves
        return (twice >> (old >> 59) & _MASK32) / 4294967296.0


def draws_ahead(rngs: Sequence[Pcg32], num_draws: int) -> tuple[NDArray[np.float64], NDArray[np.uint64]]:
    """Give the next draws of each stream, float `[n, num_draws]`, and where it stands after none, one, ... of them.

    The streams stay where they are; the states are `[n, num_draws + 1]`. After `i` draws a stream that stood at `s`
    stands at `a_i s + c_i inc`, modulo 2**64 (Brown 1994), so all are found at once.
    """
    factors, offsets = [1], [0]
    for _ in range(num_draws):
        factors.append(factors[-1] * _MULTIPLIER & _MASK64)
        offsets.append((offsets[-1] * _MULTIPLIER + 1) & _MASK64)
    here = np.array([(rng.state, rng.inc) for rng in rngs], np.uint64).reshape(-1, 2)
    states = here[:, :1] * np.array(factors, np.uint64) + here[:, 1:] * np.array(offsets, np.uint64)
    old = states[:, :-1]
    twice = (((old >> 18) ^ old) >> 27 & _MASK32) * 4294967297
    return (twice >> (old >> 59) & _MASK32) / 4294967296.0, states


def mix64(x: int) -> int:
    """Scramble 64 bits: SplitMix64's output function of `x` (Steele, Lea and Flood 2014)."""
    z = (x + 0x9E3779B97F4A7C15) & _MASK64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK64
    return z ^ z >> 31


def stream(seed: int, choice: int = 0) -> Pcg32:
    """Give the target's generator of completion number `choice` of a request.

    Raises SpecError for a seed that is not an unsigned 64-bit integer or a negative choice.
    """
    return _lane(seed, choice, 0)


def draft_stream(seed: int, choice: int = 0) -> Pcg32:
    """Give the generator that a stochastic draft draws from: what it draws never moves that of `stream`.

    Raises SpecError like `stream`.
    """
    return _lane(seed, choice, 1)


def _lane(seed: int, choice: int, offset: int) -> Pcg32:
    """Give lane `2 * choice + offset`.

    Two PCG streams of one seed differ by a constant, whatever the seed: lanes past the first scramble theirs.
    """
    if not 0 <= seed <= _MASK64:
        raise refuse("seed", seed, "an integer in [0, 2**64)")
    if choice < 0:
        raise refuse("choice", choice, "an integer >= 0")
    lane = 2 * choice + offset
    return Pcg32(mix64((mix64(seed) + lane) & _MASK64) if lane else seed, lane)

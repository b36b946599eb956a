"""The generator every draw comes from: PCG-XSH-RR 64/32 (O'Neill 2014, section 6.3)."""

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
        shifted = ((old >> 18 ^ old) >> 27) & _MASK32
        turn = old >> 59
        return ((shifted >> turn | shifted << (32 - turn)) & _MASK32) / 4294967296.0


def stream(seed: int, choice: int = 0) -> Pcg32:
    """Give the target's generator of completion number `choice` of a request.

    A stochastic draft draws from `Pcg32(seed, 2 * choice + 1)`, so what it draws never moves this stream.
    Raises SpecError for a seed that is not an unsigned 64-bit integer or a negative choice.
    """
    if not 0 <= seed <= _MASK64:
        raise refuse("seed", seed, "an integer in [0, 2**64)")
    if choice < 0:
        raise refuse("choice", choice, "an integer >= 0")
    return Pcg32(seed, 2 * choice)

"""Prompts made up: with as much repetition, and as many shared beginnings, as wanted."""

import msgspec
import numpy as np
from numpy.typing import NDArray

_SPAN = (4, 17)  # tokens of a phrase, low inclusive, high exclusive
_MIX = np.uint64(0x9E3779B97F4A7C15)


class Prompts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What made-up prompts look like.

    A prompt is written phrase by phrase, 4 to 16 tokens each: with probability `repetition` a phrase is copied from
    earlier in the same prompt, otherwise it is new. With probability `shared_rate` the prompt begins with the first
    `shared_tokens` of one of `num_shared` texts (at most all but its last token).
    """

    repetition: float = 0.5
    shared_rate: float = 0.5
    shared_tokens: int = 16
    num_shared: int = 8

    def draw(self, rng: np.random.Generator, num_tokens: int, vocab_size: int, seed: int) -> list[int]:
        """Write a prompt of `num_tokens`; the shared texts are a function of `seed` alone."""
        tokens: list[int] = []
        if self.shared_tokens and rng.random() < self.shared_rate:
            text = int(rng.integers(self.num_shared))
            num_shared = min(self.shared_tokens, num_tokens - 1)
            tokens = text_of(mix(mix(seed, 1), text), num_shared, vocab_size).tolist()
        while len(tokens) < num_tokens:
            num_phrase = int(rng.integers(*_SPAN))
            if tokens and rng.random() < self.repetition:
                at = int(rng.integers(len(tokens)))
                tokens += tokens[at : at + num_phrase]
            else:
                tokens += rng.integers(vocab_size, size=num_phrase).tolist()
        return tokens[:num_tokens]


def mix(state: int, value: int) -> int:
    """Chain a value onto a 64-bit state: equal chains give equal states, others practically never."""
    return int(_scramble(np.array([(state * 0x2545F4914F6CDD1D + value + 1) % 2**64], np.uint64))[0])


def text_of(state: int, num_tokens: int, vocab_size: int) -> NDArray[np.uint64]:
    """Give the first `num_tokens` tokens of the text that belongs to a state: a longer one begins the same."""
    return _scramble(np.uint64(state) + np.arange(num_tokens, dtype=np.uint64) * _MIX) % np.uint64(vocab_size)


def _scramble(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble 64 bits with the finaliser of SplitMix64 (Steele, Lea and Flood, 2014)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))

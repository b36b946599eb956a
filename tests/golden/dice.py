"""The random choices that the cases need."""

import math

from tests import reference as ref


class Dice:
    """The few random choices the cases need, from the reference's own generator."""

    def __init__(self, name):
        self.rng = ref.Pcg32(int.from_bytes(name.encode()[:8], "big"), len(name))

    def below(self, n):
        return self.rng.next_u32() % n

    def pick(self, *choices):
        return choices[self.below(len(choices))]

    def real(self, low, high):
        return round(low + (high - low) * self.rng.next_f64(), 4)

    def u64(self):
        return self.rng.next_u32() << 32 | self.rng.next_u32()

    def ids(self, length, vocab):
        return [self.below(vocab) for _ in range(length)]

    def row(self, vocab):
        """Smooth, coarse enough for exact ties, or with holes."""
        kind = self.below(4)
        row = [ref.float32(self.real(-6, 6)) for _ in range(vocab)]
        if kind == 1:
            row = [round(2 * logit) / 2 for logit in row]
        if kind == 2:
            row = [-math.inf if self.below(4) == 0 else logit for logit in row]
            row[:2] = [1.5, 1.0]  # one stop id may be masked, and something is left
        return row

    def law(self, vocab):
        weights = [self.real(0.0, 1.0) * self.pick(0.0, 1.0, 1.0) for _ in range(vocab)]
        weights[self.below(vocab)] += 0.25
        return ref.normalize(weights)

    def params(self, vocab, temperature=None):
        changes = {"temperature": self.pick(0, 0.3, 0.7, 1.0, 1.6) if temperature is None else temperature}
        if self.below(3) == 0:
            changes["top_k"] = self.pick(1, 2, 3, vocab + 2)
        if self.below(3) == 0:
            changes["top_p"] = self.real(0.2, 1.0)
        if self.below(4) == 0:
            changes["min_p"] = self.real(0.0, 0.5)
        if self.below(3) == 0:
            changes["repetition_penalty"] = self.real(0.6, 1.8)
        if self.below(3) == 0:
            changes["presence_penalty"] = self.real(-2, 2)
        if self.below(3) == 0:
            changes["frequency_penalty"] = self.real(-2, 2)
        if self.below(4) == 0:
            changes["logit_bias"] = {str(token): self.real(-5, 5) for token in self.ids(2, vocab)}
        if self.below(4) == 0:
            changes.update(min_tokens=self.pick(2, 4, 9), stop_token_ids=[self.below(vocab)])
        return ref.make_params(**changes)

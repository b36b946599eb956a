"""Writes the vectors: cases chosen by hand where an edge is meant, drawn from a fixed generator otherwise."""

import json
import math
from itertools import product
from pathlib import Path

from tests import reference as ref

FOLDER = Path(__file__).resolve().parent


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


def pcg32_cases():
    dice = Dice("pcg32")
    for initstate, initseq in [(42, 54), (0, 0), (2**64 - 1, 2**64 - 1)] + [(dice.u64(), dice.u64()) for _ in range(6)]:
        rng = ref.Pcg32(initstate, initseq)
        yield {"initstate": initstate, "initseq": initseq, "u32": [rng.next_u32() for _ in range(8)]}


def contexts(dice):
    yield from ([], [3], [1, 1], [5, 6, 7, 8, 5, 6], [2] * 48, [1, 2, 3, 9, 1, 2, 4, 9, 1, 2], [0, 1, 2, 3])
    for vocab, length in product((2, 3, 5), (9, 17, 33, 60)):
        yield dice.ids(length, vocab)


def lookup_cases():
    dice = Dice("lookup")
    for ctx in contexts(dice):
        case = {
            "ctx": ctx,
            "k": 1 + dice.below(8),
            "max_ngram": dice.pick(2, 3, 4),
            "min_ngram": dice.pick(1, 1, 2),
        }
        yield {**case, "draft": ref.prompt_lookup(**case)}
    yield {"ctx": [5, 6, 7, 8, 5, 6], "k": 3, "max_ngram": 3, "min_ngram": 1, "draft": [7, 8, 5]}


def ngram_cases():
    dice = Dice("ngram")
    for ctx in contexts(dice):
        case = {"ctx": ctx, "k": 1 + dice.below(8), "n": dice.pick(1, 2, 3, 3, 4)}
        yield {**case, "draft": ref.ngram_draft(**case)}
    for ctx in ([7, 4, 7, 2, 7], [7, 4, 7, 2, 7, 4, 7]):  # a tie, and no tie
        yield {"ctx": ctx, "k": 4, "n": 2, "draft": ref.ngram_draft(ctx, 4, 2)}


def distribution_cases():
    dice = Dice("distribution")
    for i in range(28):
        vocab = dice.pick(3, 4, 6, 9)
        row, params = dice.row(vocab), dice.params(vocab)
        prompt, output = dice.ids(1 + dice.below(5), vocab), dice.ids(dice.below(8), vocab)
        p = ref.distribution(row, params, prompt, output)
        u = 0.0 if i % 7 == 0 else 1 - 2**-32 if i % 7 == 1 else dice.rng.next_f64()
        case = {"row": row, "params": params, "prompt": prompt, "output": output, "p": p, "u": u}
        yield {**case, "sample": ref.sample_dense(p, u)}


def step_cases():
    dice = Dice("step")
    for i in range(24):
        vocab = dice.pick(2, 3, 5)
        p, q = dice.law(vocab), dice.law(vocab)
        if i % 6 == 0:
            q = list(p)
        x = ref.sample_dense(q, dice.rng.next_f64())
        u_accept, u_resample = dice.pick(0.0, dice.rng.next_f64(), dice.rng.next_f64()), dice.rng.next_f64()
        case = {"p": p, "q": q, "x": x, "u_accept": u_accept, "u_resample": u_resample}
        token, accepted = ref.speculative_step(**case)
        yield {**case, "residual": ref.residual(p, q), "token": token, "accepted": accepted}


def verify_cases():
    dice = Dice("verify")
    for i in range(30):
        vocab, m = dice.pick(3, 4, 6), dice.pick(0, 1, 2, 3, 5)
        temperature = 0 if i % 3 == 0 else dice.pick(0.5, 1.0, 1.6)
        rows, params = [dice.row(vocab) for _ in range(m + 1)], dice.params(vocab, temperature)
        prompt, output = dice.ids(1 + dice.below(5), vocab), dice.ids(dice.below(6), vocab)
        draft, draft_probs = [], [] if i % 2 else None
        for row in rows[:m]:  # drafts that are often right, so that the rounds are long
            p = ref.distribution(row, params, prompt, output + draft)
            q = [0.7 * a + 0.3 * b for a, b in zip(p, dice.law(vocab), strict=True)]
            draft.append(ref.sample_dense(q, dice.rng.next_f64()))
            if draft_probs is not None:
                draft_probs.append(q)
        initstate, initseq = dice.u64(), dice.below(200)
        rng = ref.Pcg32(initstate, initseq)
        tokens, logprobs, n_accepted = ref.verify_draft(rows, draft, draft_probs, params, prompt, output, rng)
        case = {"rows": rows, "draft": draft, "draft_probs": draft_probs, "params": params}
        case.update(prompt=prompt, output=output, initstate=initstate, initseq=initseq)
        yield {
            **case,
            "tokens": tokens,
            "logprobs": logprobs,
            "n_accepted": n_accepted,
            "next_u32": rng.next_u32(),
        }


def generate_cases():
    dice = Dice("generate")
    for i in range(30):
        vocab, order, sharp = dice.pick(4, 8, 16), dice.pick(1, 2, 3), dice.pick(4.0, 12.0, 30.0)
        target = {"seed": dice.rng.next_u32(), "vocab": vocab, "order": order, "sharp": sharp}
        case = {
            "target": target,
            "draft": ("none", "ngram", "prompt_lookup", "ngram", "prompt_lookup")[i % 5],
            "k": 1 + dice.below(8),
            "prompt": dice.ids(1 + dice.below(9), vocab),
            "params": dice.params(vocab, 0 if i % 3 == 0 else dice.pick(0.3, 1.0)),
            "seed": dice.u64(),
            "choice": dice.pick(0, 1, 3),
            "verify": ("resample", "match")[i % 2],
            "max_new": dice.pick(1, 5, 9, 17, 32),
            "eos": dice.ids(dice.pick(0, 0, 1), vocab),
        }
        yield {**case, **ref.generate(**case)}


FILES = {
    "pcg32": pcg32_cases,
    "lookup": lookup_cases,
    "ngram": ngram_cases,
    "distribution": distribution_cases,
    "step": step_cases,
    "verify": verify_cases,
    "generate": generate_cases,
}


def without_infinities(value):
    if isinstance(value, list):
        return [without_infinities(item) for item in value]
    if isinstance(value, dict):
        return {key: without_infinities(item) for key, item in value.items()}
    return None if value == -math.inf else value


def text_of(name):
    lines = [json.dumps(without_infinities(case), allow_nan=False) for case in FILES[name]()]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def main():
    for name in FILES:
        (FOLDER / f"{name}.json").write_text(text_of(name))

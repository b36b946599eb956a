"""Writes the vectors: cases chosen by hand where an edge is meant, drawn from a fixed generator otherwise."""

import json
import math
from itertools import product
from pathlib import Path

from tests import reference as ref
from tests.golden import trees
from tests.golden.dice import Dice

FOLDER = Path(__file__).resolve().parent


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
    "tree_shapes": trees.shape_cases,
    "tree_children": trees.children_cases,
    "tree_verify": trees.verify_cases,
    "tree_loop": trees.loop_cases,
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

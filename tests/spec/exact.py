"""The law of a round as exact fractions: every outcome of the uniforms, each weighed by the length of its interval.

A rule compares its uniforms with numbers that follow from the target's law p and the draft's law q. These numbers
cut [0, 1) into intervals on which a round cannot change its mind; walking over one point of each interval, draw by
draw, visits everything a round can do. Each path is walked twice, near the lower and near the upper ends of its
intervals: a rule that looks for something else than it should is stopped there.
"""

import math
from collections import defaultdict
from fractions import Fraction
from itertools import accumulate, pairwise, product

import numpy as np

LOWER, UPPER = Fraction(1, 500), Fraction(499, 500)


class Walker:
    """A generator whose draws are the points of a path; past its end it takes the first interval."""

    def __init__(self, path, by_draw, where):
        self.path = list(path)
        self.by_draw = by_draw
        self.where = where
        self.state = 0
        self.weight = Fraction(1)

    def next_u32(self):
        if self.state == len(self.path):
            self.path.append(0)
        low, high = self.by_draw[self.state][self.path[self.state]]
        self.state += 1
        self.weight *= high - low
        return int((low + self.where * (high - low)) * 2**32)

    def next_f64(self):
        return self.next_u32() / 2**32


def outcomes(round_, by_draw):
    """Every `(outcome, weight)` of `round_(rng)`, depth first."""
    path = []
    while True:
        rng = Walker(path, by_draw, LOWER)
        outcome = round_(rng)
        again = Walker(rng.path[: rng.state], by_draw, UPPER)
        assert round_(again) == outcome, "a cut is missing"
        yield outcome, rng.weight
        path = rng.path[: rng.state]
        while path and path[-1] == len(by_draw[len(path) - 1]) - 1:
            path.pop()
        if not path:
            return
        path[-1] += 1


def one_hot(token, vocab):
    return tuple(Fraction(int(other == token)) for other in range(vocab))


def normalized(weights):
    total = sum(weights)
    return tuple(Fraction(weight) / total for weight in weights)


def cuts(rule, p, d, q):
    """For each draw at a position, where the rule may change its mind; "any" is for rules that are not known."""
    left = [max(a - b, Fraction(0)) for a, b in zip(p, q, strict=True)]
    accept, resample = {p[d] / q[d]}, set(accumulate(normalized(left) if any(left) else p))
    if rule == "resample":
        return [accept, resample]
    if rule == "match":
        return [set(accumulate(p))]
    apart = [abs(a - b) for a, b in zip(p, q, strict=True)]
    everything = (
        accept | resample | {p[d]} | set(accumulate(p)) | set(accumulate(normalized(apart) if any(left) else p))
    )
    return [everything, everything]


def intervals(points):
    ends = sorted({Fraction(0), Fraction(1), *(point for point in points if 0 < point < 1)})
    return list(pairwise(ends))


def logits_of(laws):
    with np.errstate(divide="ignore"):
        return np.log(np.array([[float(mass) for mass in law] for law in laws])).astype(np.float32)


class Round:
    """A round of drafts `m` tokens long, with the target's law after every prefix and the draft's where it has one.

    `base(prefix)` is the softmax of the target's row, `law(prefix)` what the parameters make of it; `rule` says how
    the uniforms are used: "resample", "match", or "any" where that is not known.
    """

    def __init__(self, vocab, m, base, *, law=None, draft_law=None, rule="resample"):
        self.vocab = vocab
        self.m = m
        self.base = base
        self.law = law or base
        self.draft_law = draft_law
        self.rule = rule

    def drafts(self):
        """Every draft a stochastic drafter can make, and its probability."""
        for draft in product(range(self.vocab), repeat=self.m):
            mass = math.prod((self.draft_law(draft[:i])[draft[i]] for i in range(self.m)), start=Fraction(1))
            if mass:
                yield draft, mass

    def outcomes(self, rule, draft):
        """Every `(tokens, weight)` of a rule that is called as `rule(rows, draft, draft_probs, rng)`."""
        prefixes = [draft[:i] for i in range(self.m + 1)]
        rows = logits_of([self.base(prefix) for prefix in prefixes])
        laws = [self.law(prefix) for prefix in prefixes]
        if self.draft_law:
            qs = [self.draft_law(prefix) for prefix in prefixes[:-1]]
            draft_probs = np.array([[float(mass) for mass in q] for q in qs])
        else:
            qs = [one_hot(d, self.vocab) for d in draft]
            draft_probs = None
        of_draws = [points for i in range(self.m) for points in cuts(self.rule, laws[i], draft[i], qs[i])]
        bonus_laws = laws if self.rule == "any" else laws[-1:]
        of_draws.append({point for law in bonus_laws for point in accumulate(law)})
        by_draw = [intervals(points) for points in of_draws]
        return outcomes(lambda rng: tuple(rule(rows, list(draft), draft_probs, rng)), by_draw)

    def completed(self, prefixes):
        """Extend each weighed prefix to `m + 1` tokens by the target's own law."""
        joint = defaultdict(Fraction)
        for prefix, weight in prefixes.items():
            for rest in product(range(self.vocab), repeat=self.m + 1 - len(prefix)):
                text = prefix + rest
                steps = (self.law(text[:i])[text[i]] for i in range(len(prefix), self.m + 1))
                joint[text] += math.prod(steps, start=weight)
        return {text: mass for text, mass in joint.items() if mass}

    def target_law(self):
        return self.completed({(): Fraction(1)})

    def law_of(self, rule, draft=None):
        """The joint law of the first `m + 1` tokens: after one draft, or over all drafts of the drafter."""
        prefixes = defaultdict(Fraction)
        for tokens, mass in [(draft, Fraction(1))] if draft is not None else self.drafts():
            for emitted, weight in self.outcomes(rule, tokens):
                prefixes[emitted] += mass * weight
        assert sum(prefixes.values()) == 1
        return self.completed(prefixes)

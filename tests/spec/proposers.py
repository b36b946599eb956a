"""Proposers for the tests: the law after a context, as the vectors describe it."""

import numpy as np

import spec
from tests import reference as ref


def law_of(case):
    """The law after a context, float64 `[V]`, of the proposer that a vector names; contexts are looked at once."""
    proposer, target = case["proposer"], case["target"]
    if proposer["kind"] == "table":
        return lambda _ctx: np.array(proposer["q"])
    other = {"vocab": target["vocab"], **{name: proposer[name] for name in ("seed", "order", "sharp")}}
    params = spec.SamplingParams(temperature=proposer["temperature"], top_k=proposer["top_k"])
    known = {}

    def law(ctx):
        tail = tuple(ctx[-max(target["order"], other["order"]) :])
        if tail not in known:
            agreed, own = np.array(ref.fake_row(target, list(tail))), np.array(ref.fake_row(other, list(tail)))
            row = proposer["mix"] * agreed + (1 - proposer["mix"]) * own
            known[tail] = spec.dense_distribution(row, params, [], [])
        return known[tail]

    return law


def tokens_to(tokens, parents, node):
    path = []
    while node >= 0:
        path.append(tokens[node])
        node = parents[node]
    return path[::-1]


def grown(shape, law, ctx, children="top", max_depth=64, rng=None):
    """Grow a tree by a law, one context at a time."""
    growth = spec.grow(shape, children, max_depth, rng or spec.Pcg32(0))
    while growth.frontier:
        growth.feed([law(ctx + tokens_to(growth.tokens, growth.parents, node)) for node in growth.frontier])
    return growth.result()


class LawProposer:
    """A `Proposer` by a law over contexts; it tells what it was asked."""

    def __init__(self, law):
        self.law = law
        self.drafts = []

    def begin(self, prompt, output, params):
        self.ctx = [*prompt, *output]
        self.params = params
        self.drafts.append(None)

    def laws(self, tokens, parents, frontier):
        self.drafts[-1] = (list(tokens), list(parents))
        return np.array([self.law(self.ctx + tokens_to(tokens, parents, node)) for node in frontier])

"""A round of trees as exact fractions: the draft drawn, and judged, for every outcome of every draw.

A draw is first an interval. The reference does no more with it than ask whether it is below a number, and each
question that its interval leaves open is answered both ways, one after the other. What the reference does is then
known for every box of draws; the weight of a box is its volume. `spec` is run at points near the lower and the upper
ends of each box, and must do the same there, with as many draws.
"""

import math
from collections import defaultdict
from fractions import Fraction
from itertools import product

import numpy as np

from spec import DraftTree, SamplingParams, grow, verify_tree
from tests import reference_trees as trees
from tests.spec.exact import normalized

LOWER, UPPER = Fraction(1, 500), Fraction(499, 500)


class Draw:
    """A uniform of which an interval is known."""

    def __init__(self, decide):
        self.low, self.high = Fraction(0), Fraction(1)
        self.decide = decide

    def __lt__(self, threshold):
        if not self.low < threshold < self.high:
            return self.high <= threshold
        if self.decide():
            self.high = Fraction(threshold)
            return True
        self.low = Fraction(threshold)
        return False


class Points:
    """A generator that draws given points."""

    def __init__(self, points):
        self.points = points
        self.state = 0

    def next_f64(self):
        self.state += 1
        return float(self.points[self.state - 1])


class Run:
    """One way through a round: `decisions` answers the questions that are open; past its end the answer is yes."""

    def __init__(self, decisions):
        self.decisions = decisions
        self.num_answered = 0
        self.draws = []

    def decide(self):
        self.num_answered += 1
        if self.num_answered > len(self.decisions):
            self.decisions.append(True)
        return self.decisions[self.num_answered - 1]

    def uniform(self):
        self.draws.append(Draw(self.decide))
        return self.draws[-1]


def boxes(round_):
    """Every `(outcome, draws)` of `round_(uniform)`, depth first."""
    decisions = []
    while True:
        run = Run(decisions)
        yield round_(run.uniform), run.draws
        while decisions and not decisions[-1]:
            decisions.pop()
        if not decisions:
            return
        decisions[-1] = False


def volume(draws):
    return math.prod((draw.high - draw.low for draw in draws), start=Fraction(1))


class World:
    """The target's law after every prefix, and the draft's; `law` is what the parameters make of the target's."""

    def __init__(self, base, q, *, law=None, params=None):
        self.base, self.q = base, q
        self.law = law or base
        self.params = params or SamplingParams()

    def after(self, tokens, parents):
        """The target's law after each node."""
        return lambda node: self.law(tuple(trees.tokens_to(tokens, parents, node)))

    def rows(self, tokens, parents):
        nodes = [-1, *range(len(tokens))]
        laws = [self.base(tuple(trees.tokens_to(tokens, parents, node))) for node in nodes]
        with np.errstate(divide="ignore"):
            return np.log(np.array(laws, float))

    def completed(self, prefixes, length):
        """Extend each weighed prefix to `length` tokens by the target's own law."""
        joint = defaultdict(Fraction)
        for prefix, weight in prefixes.items():
            for rest in product(range(len(self.law(()))), repeat=length - len(prefix)):
                text = prefix + rest
                joint[text] += math.prod(
                    (self.law(text[:i])[text[i]] for i in range(len(prefix), length)), start=weight
                )
        return {text: mass for text, mass in joint.items() if mass}

    def keeps_law(self, prefixes, length):
        assert sum(prefixes.values()) == 1
        return self.completed(prefixes, length) == self.completed({(): Fraction(1)}, length)


class Drawn:
    """Rounds of a fixed shape whose children are drawn, or taken from the top."""

    def __init__(self, world, shape, children, rule):
        self.world, self.shape, self.children, self.rule = world, shape, children, rule
        self.fields = {"kind": shape.kind, **{name: getattr(shape, name) for name in shape.__struct_fields__}}

    def draft(self, uniform):
        return trees.grow(self.fields, lambda ctx: self.world.q(tuple(ctx)), [], self.children, 64, uniform)

    def reference(self, uniform):
        tokens, parents, q = self.draft(uniform)
        after = self.world.after(tokens, parents)
        path, last = trees.judge(self.rule, after, tokens, parents, q, self.children, uniform)
        return (*(tokens[node] for node in path), last)

    def real(self, rng):
        growth = grow(self.shape, self.children, 64, rng)
        while growth.frontier:
            paths = [tuple(trees.tokens_to(growth.tokens, growth.parents, node)) for node in growth.frontier]
            growth.feed(np.array([self.world.q(path) for path in paths], float))
        tree, draft_probs, _ = growth.result()
        return verified(self.world, tree, draft_probs, rng, self.rule, self.children)


class Given:
    """Rounds of a tree that is there, from the top."""

    def __init__(self, world, tokens, parents, rule):
        self.world, self.tokens, self.parents, self.rule = world, tokens, parents, rule

    def reference(self, uniform):
        after = self.world.after(self.tokens, self.parents)
        path, last = trees.judge(self.rule, after, self.tokens, self.parents, None, "top", uniform)
        return (*(self.tokens[node] for node in path), last)

    def real(self, rng):
        return verified(self.world, DraftTree(self.tokens, self.parents), None, rng, self.rule, "top")


def verified(world, tree, draft_probs, rng, rule, children):
    rows = world.rows(tree.tokens, tree.parents)
    told = verify_tree(rows, tree, draft_probs, world.params, [0], [], rng, rule=rule, children=children)
    assert tuple(told.tokens[:-1]) == tuple(tree.tokens[node] for node in told.path)
    return tuple(told.tokens)


def law_of(case):
    """The weight of every run of tokens that a round emits: the reference's, and `spec`'s as far as it is the same."""
    emitted = defaultdict(Fraction)
    for outcome, draws in boxes(case.reference):
        for where in (LOWER, UPPER):
            rng = Points([draw.low + where * (draw.high - draw.low) for draw in draws])
            assert case.real(rng) == outcome
            assert rng.state == len(draws)
        emitted[outcome] += volume(draws)
    return emitted


def law_of_reference(reference):
    emitted = defaultdict(Fraction)
    for outcome, draws in boxes(reference):
        emitted[outcome] += volume(draws)
    return emitted


def expected_length(law):
    return sum(len(tokens) * mass for tokens, mass in law.items())


def laws_by_prefix(choices, salt):
    """A law for every prefix; neighbours among the prefixes differ."""
    laws = [normalized(weights) for weights in choices]
    return lambda prefix: laws[(salt + sum((i + 1) * (t + 1) for i, t in enumerate(prefix))) % len(laws)]

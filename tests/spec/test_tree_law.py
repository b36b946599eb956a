"""Each rule emits exactly the target's joint law, for every way to take children; and what is bent is found out."""

import math
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest

from spec import Chain, DraftTree, Expansion, SamplingParams, Sequoia, Static, sample_dense
from tests import reference_trees as trees
from tests.spec.enumeration import (
    Drawn,
    Given,
    World,
    expected_length,
    law_of,
    law_of_reference,
    laws_by_prefix,
    verified,
)
from tests.spec.exact import normalized

P = {2: [(1, 3), (3, 1), (1, 1)], 3: [(1, 2, 1), (2, 1, 5), (0, 1, 3)], 4: [(1, 2, 3, 2), (3, 0, 1, 4), (1, 1, 4, 2)]}
Q = {2: [(1, 1), (3, 1), (1, 3)], 3: [(1, 1, 2), (4, 1, 3), (2, 0, 1)], 4: [(1, 1, 0, 2), (2, 1, 1, 0), (1, 0, 1, 2)]}

SAMPLED = [("iid", "resample"), ("distinct", "resample"), ("iid", "traversal"), ("distinct", "traversal")]
SHAPES = [
    (3, Chain(1)),
    (3, Chain(2)),
    (2, Chain(3)),
    (3, Expansion((2,))),
    (4, Expansion((2,))),
    (3, Expansion((3,))),
    (2, Expansion((2, 2))),
    (3, Expansion((2, 1))),
    (3, Expansion((1, 2))),
    (2, Expansion((2, 1, 1))),
    (2, Expansion((1, 2, 1))),
    (2, Static(((0,), (1,), (0, 0), (0, 0, 0)))),
    (3, Static(((0,), (1,), (1, 0)))),
    (2, Sequoia((0.7, 0.2), 4, 3)),
]


def world(vocab, salt=0):
    return World(laws_by_prefix(P[vocab], salt), laws_by_prefix(Q[vocab], salt + 1))


@pytest.mark.parametrize(("children", "rule"), SAMPLED)
@pytest.mark.parametrize(("vocab", "shape"), SHAPES, ids=repr)
def test_drawn_trees_keep_the_law(vocab, shape, children, rule):
    case = Drawn(world(vocab), shape, children, rule)
    assert case.world.keeps_law(law_of(case), shape.max_depth + 1)


TREES = [
    ([2], [-1]),
    ([0, 2], [-1, -1]),
    ([2, 1, 0], [-1, -1, -1]),
    ([1, 2, 0, 1], [-1, -1, 0, 0]),
    ([2, 1, 0, 0, 2], [-1, 0, -1, 1, 2]),
    ([0, 1, 2, 2, 0, 1], [-1, 0, 0, 1, 3, -1]),
]


@pytest.mark.parametrize("rule", ["match", "resample"])
@pytest.mark.parametrize(("tokens", "parents"), TREES)
@pytest.mark.parametrize("salt", range(3))
def test_trees_from_the_top_keep_the_law(tokens, parents, rule, salt):
    case = Given(world(3, salt), tokens, parents, rule)
    assert case.world.keeps_law(law_of(case), 5)


@pytest.mark.parametrize(("tokens", "parents"), TREES)
def test_from_the_top_no_rule_accepts_more(tokens, parents):
    laws = [law_of(Given(world(3), tokens, parents, rule)) for rule in ("match", "resample")]
    lengths = [expected_length(law) for law in laws]
    assert lengths[0] == lengths[1]


def halved_where_emitted(base):
    """A presence penalty of log 2 halves the weight of what was emitted: a law that follows the path."""
    return lambda prefix: normalized([mass / (2 if token in prefix else 1) for token, mass in enumerate(base(prefix))])


def without_stop(base):
    """Until two tokens are out, id 1 cannot come."""
    return lambda prefix: trees.without(base(prefix), 1) if len(prefix) < 2 else base(prefix)


PARAMS = {
    "penalties": (SamplingParams(presence_penalty=math.log(2)), halved_where_emitted),
    "min_tokens": (SamplingParams(min_tokens=2, stop_token_ids=(1,)), without_stop),
}


@pytest.mark.parametrize(("params", "transform"), PARAMS.values(), ids=PARAMS)
@pytest.mark.parametrize(("children", "rule"), [*SAMPLED, ("top", "match"), ("top", "resample")])
def test_the_law_kept_is_that_of_the_parameters(params, transform, children, rule):
    base = laws_by_prefix(P[3], 0)
    bent = World(base, laws_by_prefix(Q[3], 1), law=transform(base), params=params)
    case = Drawn(bent, Expansion((2, 1)), children, rule)
    assert bent.keeps_law(law_of(case), 3)


class Merged(Drawn):
    """Two draft models, each with a child of its own: iid siblings of unequal laws."""

    def __init__(self, world, rule):
        super().__init__(world, Expansion((2,)), "iid", rule)
        self.laws = [self.world.q(()), self.world.q((0,))]

    def draft(self, uniform):
        return [trees.pick(q, uniform()) for q in self.laws], [-1, -1], self.laws

    def real(self, rng):
        laws = np.array(self.laws, float)
        tree = DraftTree([sample_dense(law, rng.next_f64()) for law in laws], [-1, -1])
        return verified(self.world, tree, laws, rng, self.rule, "iid")


@pytest.mark.parametrize("rule", ["resample", "traversal"])
@pytest.mark.parametrize("vocab", [2, 3, 4])
def test_siblings_of_several_models_keep_the_law(vocab, rule):
    case = Merged(world(vocab), rule)
    assert case.world.keeps_law(law_of(case), 2)


@pytest.mark.parametrize("children", ["iid", "distinct"])
@pytest.mark.parametrize(("vocab", "k"), [(2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (4, 2)])
@pytest.mark.parametrize("salt", range(3))
def test_on_a_chain_traversal_is_never_behind(vocab, k, salt, children):
    lengths = {
        rule: expected_length(law_of(Drawn(world(vocab, salt), Chain(k), children, rule)))
        for rule in ("resample", "traversal")
    }
    assert lengths["traversal"] >= lengths["resample"]
    if k == 1:
        assert lengths["traversal"] == lengths["resample"]


def test_on_some_chains_traversal_accepts_more():
    cases = [Drawn(world(2, salt), Chain(3), "iid", rule) for salt in range(3) for rule in ("resample", "traversal")]
    lengths = [expected_length(law_of(case)) for case in cases]
    assert any(after > before for before, after in pairwise(lengths))


def test_on_a_tree_traversal_may_accept_less():
    """Where the second sibling carries a subtree and the first, which is given more than its due, carries none."""

    def laws(root, after_0, after_1, deeper):
        by_depth = {(): normalized(root), (0,): normalized(after_0), (1,): normalized(after_1)}
        return lambda prefix: by_depth.get(prefix, normalized(deeper))

    uneven = World(laws((1, 3), (7, 1), (1, 7), (1, 1)), laws((7, 1), (1, 3), (7, 1), (1, 1)))
    shape = Static(((0,), (0, 0), (0, 1), (0, 1, 0)))
    resample, traversal = (
        expected_length(law_of(Drawn(uneven, shape, "distinct", r))) for r in ("resample", "traversal")
    )
    assert (resample, traversal) == (2, Fraction(59, 32))


# ------------ negative controls: mistakes that the enumeration must see


def lopsided():
    """Laws of which, when a child has been rejected, several ids are left, and not as the draft has them."""
    return World(
        laws_by_prefix([(1, 4, 3), (3, 1, 4), (2, 5, 1)], 0), laws_by_prefix([(5, 2, 1), (1, 5, 2), (4, 1, 3)], 0)
    )


def bent(children, rule, *, judged=None, drop_below=None, law=None, q=None, parents=None):
    """Rounds of `<2, 1>` over three ids with a part exchanged."""
    case = Drawn(lopsided(), Expansion((2, 1)), children, rule)

    def reference(uniform):
        tokens, above, laws = case.draft(uniform)
        if drop_below is not None:  # a node goes by what was drawn for it
            kept = [n for n in range(len(tokens)) if laws[n][tokens[n]] >= drop_below and above[n] in (-1, 0, 1)]
            kept = [n for n in kept if above[n] == -1 or above[n] in kept]
            tokens, laws = [tokens[n] for n in kept], [laws[n] for n in kept]
            above = [kept.index(above[n]) if above[n] >= 0 else -1 for n in kept]
        after = (law or case.world.after)(tokens, above)
        hung = above if parents is None else parents(above)
        path, last = trees.judge(rule, after, tokens, hung, q(laws) if q else laws, judged or children, uniform)
        return (*(tokens[node] for node in path), last)

    return case.world.keeps_law(law_of_reference(reference), 3)


@pytest.mark.parametrize(("children", "rule"), SAMPLED)
def test_unbent_the_control_keeps_the_law(children, rule):
    assert bent(children, rule)


UNIFORM = [(Fraction(1, 3),) * 3] * 4


@pytest.mark.parametrize(("children", "rule"), SAMPLED)
def test_a_node_dropped_by_its_own_value_is_found_out(children, rule):
    assert not bent(children, rule, drop_below=Fraction(1, 3))


@pytest.mark.parametrize(("children", "rule"), SAMPLED)
def test_a_law_that_was_not_drawn_from_is_found_out(children, rule):
    assert not bent(children, rule, q=lambda _: UNIFORM)


@pytest.mark.parametrize("rule", ["resample", "traversal"])
def test_distinct_children_judged_as_independent_are_found_out(rule):
    assert not bent("distinct", rule, judged="iid")


@pytest.mark.parametrize(("children", "rule"), SAMPLED)
def test_the_wrong_parent_is_found_out(children, rule):
    assert not bent(children, rule, parents=lambda above: [-1, -1, 1, 0][: len(above)])


@pytest.mark.parametrize(("children", "rule"), SAMPLED)
def test_a_law_that_does_not_follow_the_path_is_found_out(children, rule):
    fixed = lopsided()
    assert not bent(children, rule, law=lambda _tokens, _parents: lambda _node: fixed.law(()))


@pytest.mark.parametrize(
    "wrong", [lambda p, _q: p, lambda p, q: trees.scaled([abs(a - b) for a, b in zip(p, q, strict=True)])]
)
def test_a_wrong_residual_is_found_out(wrong, monkeypatch):
    monkeypatch.setattr(trees, "residual", wrong)
    assert not bent("distinct", "resample")


def test_a_draw_that_is_used_twice_is_found_out():
    """The uniform that rejected a child is not the one to resample with."""
    case = Drawn(lopsided(), Chain(1), "iid", "resample")

    def reference(uniform):
        tokens, _, q = case.draft(uniform)
        u, p, x = uniform(), case.world.law(()), tokens[0]
        if u < p[x] / q[0][x]:
            return (x, trees.pick(case.world.law((x,)), uniform()))
        return (trees.pick(trees.residual(p, q[0]), u),)

    assert not case.world.keeps_law(law_of_reference(reference), 2)


def test_every_tree_of_two_nodes_from_the_top_keeps_the_law():
    for parents, tokens in product(([-1, -1], [-1, 0]), product(range(3), repeat=2)):
        if parents == [-1, 0] or tokens[0] != tokens[1]:
            for rule in ("match", "resample"):
                case = Given(world(3), list(tokens), parents, rule)
                assert case.world.keeps_law(law_of(case), 3)

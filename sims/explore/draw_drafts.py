"""Draw how to speculate: every proposer, shape, way of taking children and rule that go together, none of it large."""

import random

from spec import (
    BestFirst,
    Chain,
    Children,
    Draft,
    Dynamic,
    Expansion,
    Rule,
    Sequoia,
    Shape,
    SpecConfig,
    Static,
)

_EXPANSIONS = ((1,), (2,), (1, 1), (1, 2), (2, 1), (3,), (1, 1, 2), (2, 2), (3, 1), (2, 1, 1))
_STATIC = ((0,), (1,), (0, 0), (0, 1), (0, 0, 0), (1, 0))


def draw_drafts(rng: random.Random, most_nodes: int) -> SpecConfig:
    """Draw drafts of at most so many nodes."""
    draft = Draft(rng.choice(("none", "ngram", "prompt_lookup", "prompt_lookup", "fake", "fake", "fake")))
    if not draft.needs_proposer:
        return SpecConfig(draft, rng.randint(1, most_nodes))
    children: Children = rng.choice(("top", "top", "iid", "distinct"))
    rules: tuple[Rule, ...] = ("match", "resample") if children == "top" else ("resample", "traversal")
    return SpecConfig(draft, shape=_draw_shape(rng, most_nodes, children), children=children, rule=rng.choice(rules))


def _draw_shape(rng: random.Random, most_nodes: int, children: Children) -> Shape:
    nodes = rng.randint(1, most_nodes)
    expansions = [shape for shape in map(Expansion, _EXPANSIONS) if shape.max_nodes <= most_nodes]
    shapes: list[Shape] = [
        Chain(nodes),
        rng.choice(expansions),
        rng.choice(expansions),
        Static(_STATIC[:nodes]),
        Sequoia((0.6, 0.3, 0.2), nodes, rng.randint(1, 3)),
    ]
    if children == "top":
        top = rng.randint(1, 3)
        shapes += [Chain(nodes, 0.4), Dynamic(nodes, top, rng.randint(1, 3)), BestFirst(nodes, 0.1)]
    return rng.choice(shapes)


def draw_rule(rng: random.Random, speculative: SpecConfig) -> Rule | None:
    """Draw the rule that a request asks for, one that goes with its drafts; None is the drafts' own."""
    return rng.choice((None, "resample", "match" if speculative.children == "top" else "traversal"))

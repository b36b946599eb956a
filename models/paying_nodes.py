"""How many nodes of a tree pay: found before the first draft, from what passes cost and what a proposer says."""

from collections.abc import Sequence
from copy import copy

import msgspec

from models.drafting import DraftOrder, draft
from models.protocol import Chunk, Model, Proposer
from spec import Chain, Drafted, Dynamic, Pcg32, Sequoia, Shape, SpecConfig, nodes_that_pay, sequoia_nodes

_NUM_CONTEXTS = 16
_CONTEXT_TOKENS = 9  # the first is given, the others are the proposer's best


def with_paying_nodes(
    config: SpecConfig, proposer: Proposer, target: Model, pass_cost: Sequence[float], layer_cost: float
) -> SpecConfig:
    """Put the number of nodes that pays in the place of "auto".

    `pass_cost[r]` is the cost of a target's pass over `r` rows, for `r` up to 65, `layer_cost` that of a layer of the
    proposer's. What a tree of `n` nodes is to bring is, of a Sequoia tree, the sum of its chances of acceptance; of a
    dynamic one the sum of its `n` best values, the proposer taken at its word: a mean over texts of its own, which
    begin with tokens from all over the vocabulary. Proposer and target stay as they are: copies are asked.
    """
    if not config.is_auto:
        return config
    shape: Shape = config.tree_shape
    match shape:
        case Sequoia():
            paying = sequoia_nodes(shape.acceptance, shape.depth, pass_cost, layer_cost)
        case Dynamic():
            sums = _expected(shape, copy(proposer), copy(target))
            layers = [min(shape.depth, n) for n in range(1, len(sums) + 1)]
            paying = nodes_that_pay(sums, layers, pass_cost, layer_cost)
        case _:
            return config
    return msgspec.structs.replace(config, k=0, shape=msgspec.structs.replace(shape, nodes=paying.nodes))


def _expected(shape: Dynamic, proposer: Proposer, target: Model) -> list[float]:
    """Give for every size the sum of the best values, a mean over texts."""
    largest = msgspec.structs.replace(shape, nodes=shape.max_nodes)
    num_contexts = min(_NUM_CONTEXTS, proposer.vocab_size)
    target.bind(num_contexts, _CONTEXT_TOKENS)
    proposer.bind(num_contexts, _CONTEXT_TOKENS, target)
    firsts = [[i * proposer.vocab_size // num_contexts] for i in range(num_contexts)]
    texts = _draft(proposer, firsts, Chain(_CONTEXT_TOKENS - 1))
    contexts = [[*first, *text.tree.tokens] for first, text in zip(firsts, texts, strict=True)]
    target.forward([Chunk(ids, 0, [block], 0) for block, ids in enumerate(contexts)])
    drafts = _draft(proposer, contexts, largest)
    best = [sorted(drafted.values or (), reverse=True) for drafted in drafts]
    return [sum(sum(values[:n]) for values in best) / num_contexts for n in range(1, shape.max_nodes + 1)]


def _draft(proposer: Proposer, contexts: Sequence[Sequence[int]], shape: Shape) -> list[Drafted]:
    rng = Pcg32(0, 0)  # the best children are taken, and none drawn
    orders = [DraftOrder(ids, 0, [block], shape, "top", shape.max_depth, rng) for block, ids in enumerate(contexts)]
    return draft(proposer, orders, _CONTEXT_TOKENS)

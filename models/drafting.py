"""The drafts of a step: trees grown layer by layer, one question to the proposer for all sequences at a time."""

from collections.abc import Sequence
from typing import NamedTuple

from models.protocol import Ask, Chunk, Proposer
from spec import Children, Drafted, Pcg32, SamplingParams, Shape, grow


class DraftOrder(NamedTuple):
    """A tree to draft: the part of its context that the proposer has not been fed, and how it is to grow.

    0 ............ start ............ start + len(ids)
    |-- fed before --|---- ids ----|  the context's end, after which the tree grows

    There is one id at least; the last may have been fed before.
    """

    ids: Sequence[int]
    start: int
    table: Sequence[int]
    """The blocks of the context, and more where there are."""
    shape: Shape
    children: Children
    max_depth: int
    rng: Pcg32
    params: SamplingParams = SamplingParams()
    prompt: Sequence[int] = ()
    output: Sequence[int] = ()
    """As in `Ask`."""


def draft(proposer: Proposer, orders: Sequence[DraftOrder], block_tokens: int) -> list[Drafted]:
    """Feed every context to its end and grow a tree after it; what the proposer raises is raised."""
    lengths = [order.start + len(order.ids) for order in orders]
    tables = [order.table[: -(-n // block_tokens)] for order, n in zip(orders, lengths, strict=True)]
    proposer.feed([Chunk(order.ids, order.start, table, 1) for order, table in zip(orders, tables, strict=True)])
    words = proposer.vocabulary
    growths = [grow(order.shape, order.children, order.max_depth, order.rng, words) for order in orders]
    while True:
        asks = [
            Ask(
                place,
                tables[place],
                lengths[place],
                growth.tokens,
                growth.parents,
                growth.frontier,
                order.params,
                order.prompt,
                order.output,
            )
            for place, (growth, order) in enumerate(zip(growths, orders, strict=True))
            if growth.frontier
        ]
        if not asks:
            return [growth.result() for growth in growths]
        laws = proposer.laws(asks)
        at = 0
        for ask in asks:
            end = at + len(ask.frontier)
            growths[ask.place].feed(laws[at:end])
            at = end

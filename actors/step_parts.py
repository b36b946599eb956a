"""The parts of a step's messages: what a plan asks of the runner, and what a drafted tree is to the plan."""

from actors.messages import DraftAsk, Feed, ProposedTree, RoundSpec
from kvpool import blocks_for
from scheduler import Planned, Proposal


def draft_ask(planned: Planned, table: list[int]) -> DraftAsk:
    """Ask for the draft that is due, to be grown after the end of the context."""
    sequence, rng = planned.sequence, planned.sequence.draft_rng
    last = len(sequence.context) - 1
    start = min(sequence.covered, last) if sequence.has_draft_state else last
    return DraftAsk(
        sequence.seq,
        sequence.context[start:],
        start,
        table,
        sequence.speculative.model_shape,
        sequence.speculative.children,
        sequence.most_layers,
        sequence.draft_params,
        *sequence.looked_back_at,
        not sequence.may_drop_draft,
        rng.state,
        rng.inc,
    )


def proposal(tree: ProposedTree) -> Proposal:
    """Give the draft that a model has made."""
    num_nodes = len(tree.tokens)
    is_chain = tree.values is not None and tree.parents == list(range(-1, num_nodes - 1))  # and nothing was drawn
    return Proposal(tree.tokens, None if is_chain else tree.parents, tree.values, num_nodes, tree.rng_state)


def feed(planned: Planned, table: list[int], block_tokens: int) -> Feed:
    """Say what a sequence feeds, and how its round is verified if it has one."""
    sequence, draft, start = planned.sequence, planned.draft, planned.sequence.cached
    drafted = draft.tokens
    spec = None
    if planned.is_round:
        speculative, rng = sequence.speculative, sequence.rng
        spec = RoundSpec(
            drafted,
            draft.parents,
            speculative.children if drafted else "top",
            sequence.params,
            *sequence.looked_back_at,
            rng.state,
            rng.inc,
            speculative.rule if drafted else "match",  # with no draft, one draw by any rule
            sequence.request.logprobs,
        )
    ids = planned.ids
    num_blocks = blocks_for(start + len(ids), block_tokens)
    if num_blocks < len(table):  # room was made for the draft that there could have been
        table = table[:num_blocks]
    is_proposed_for = sequence.has_draft_state and sequence.covered >= sequence.cached
    return Feed(sequence.seq, ids, start, table, spec, is_proposed_for)

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
    sequence, draft = planned.sequence, planned.draft
    spec = None
    if planned.is_round:
        prompt, output = sequence.looked_back_at
        spec = RoundSpec(
            draft=draft.tokens,
            parents=draft.parents,
            children=sequence.speculative.children if draft.tokens else "top",
            params=sequence.params,
            prompt=prompt,
            output=output,
            rng_state=sequence.rng.state,
            rng_inc=sequence.rng.inc,
            verify=sequence.speculative.rule if draft.tokens else "match",  # with no draft, one draw by any rule
            logprobs=sequence.request.logprobs,
        )
    #   room was made for the draft that there could have been
    table = table[: blocks_for(sequence.cached + planned.num_tokens, block_tokens)]
    is_proposed_for = sequence.has_draft_state and sequence.covered >= sequence.cached
    return Feed(sequence.seq, planned.ids, sequence.cached, table, spec, is_proposed_for)

"""The states of a sequence and the moves between them."""

import enum


class State(enum.StrEnum):
    """Where a sequence is in its life."""

    WAITING = "waiting"
    """Submitted; holds nothing."""
    PREFILL = "prefill"
    """Admitted; its context is being cached, chunk by chunk."""
    DECODE = "decode"
    """All but its last token is cached; it goes from round to round."""
    PREEMPTED = "preempted"
    """Gave its blocks back; waits to be admitted and computed again."""
    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"


_ENDS = (State.FINISHED, State.CANCELLED, State.FAILED)

MOVES: dict[State, frozenset[State]] = {
    State.WAITING: frozenset({State.PREFILL, State.CANCELLED, State.FAILED}),
    State.PREFILL: frozenset({State.DECODE, State.PREEMPTED, *_ENDS}),
    State.DECODE: frozenset({State.PREEMPTED, *_ENDS}),
    State.PREEMPTED: frozenset({State.PREFILL, State.CANCELLED, State.FAILED}),
    **{end: frozenset() for end in _ENDS},
}

"""A sequence makes legal moves only, and every end is one."""

from itertools import product

import pytest

from scheduler import MOVES, NO_DRAFTS, Request, Sequence, State
from tests.scheduler.rig import GREEDY, Rig

LEGAL = {
    (State.WAITING, State.PREFILL),
    (State.PREFILL, State.DECODE),
    (State.PREFILL, State.PREEMPTED),
    (State.DECODE, State.PREEMPTED),
    (State.PREEMPTED, State.PREFILL),
    (State.PREFILL, State.FINISHED),
    (State.DECODE, State.FINISHED),
    *product((State.WAITING, State.PREFILL, State.DECODE, State.PREEMPTED), (State.CANCELLED, State.FAILED)),
}


def sequence_in(state):
    sequence = Sequence(0, Request(prompt=[1], params=GREEDY), NO_DRAFTS, 10)
    sequence.state = state
    return sequence


@pytest.mark.parametrize(("old", "new"), list(product(State, State)), ids=str)
def test_legal_moves_are_made_and_all_others_refused(old, new):
    sequence = sequence_in(old)
    if (old, new) in LEGAL:
        sequence.move(new)
        assert sequence.state is new
    else:
        with pytest.raises(AssertionError, match=f"sequence 0: {old} -> {new}"):
            sequence.move(new)
        assert sequence.state is old
    assert (new in MOVES[old]) == ((old, new) in LEGAL)


def test_an_ended_sequence_moves_no_more():
    assert all(not MOVES[end] for end in (State.FINISHED, State.CANCELLED, State.FAILED))


@pytest.mark.parametrize("end", [State.CANCELLED, State.FAILED])
def test_one_may_end_wherever_it_stands(end):
    rig = Rig(max_running=3)
    decode, prefill, paused = *rig.decoding(1), rig.submit(), rig.submit()
    rig.admit()
    waiting = rig.submit()
    parked = paused
    parked.is_paused = True
    rig.preempt(parked)
    assert parked.seq in rig.core.parked
    for sequence in (decode, prefill, parked, waiting):
        rig.end(sequence, end)
        assert sequence.state is end
        rig.check()
    assert rig.core.live() == []
    assert rig.available == rig.config.num_blocks - rig.ledger.pool.stats().held


def test_one_cannot_end_twice():
    rig = Rig()
    (sequence,) = rig.decoding(1)
    rig.end(sequence)
    with pytest.raises((AssertionError, KeyError)):
        rig.core.end(sequence, State.CANCELLED)

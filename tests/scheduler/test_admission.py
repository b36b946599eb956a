"""Who is let in: first come first served within a priority, never one before another, and never nobody for ever."""

import weakref

import pytest

from scheduler import Request, Sequence, State
from scheduler.waiting import WaitingQueue
from spec import SpecConfig
from tests.scheduler.rig import CYCLE, SAMPLED, Rig

NONE = SpecConfig.parse("none", 1)


def test_first_come_first_served():
    rig = Rig(max_running=2)
    first, second, third = (rig.submit() for _ in range(3))
    assert rig.admit() == [first, second]
    assert rig.admit() == []
    rig.end(first)
    assert rig.admit() == [third]


def test_a_lower_priority_number_goes_first_and_equals_go_by_arrival():
    rig = Rig(max_running=4)
    sequences = [rig.submit(priority=priority) for priority in (2, 0, 1, 0, -1)]
    assert rig.admit() == [sequences[i] for i in (4, 1, 3, 2)]
    assert rig.core.waiting.first() is sequences[0]


def test_nobody_overtakes_one_that_does_not_fit_yet():
    rig = Rig(num_blocks=12, speculative=NONE)
    rig.decoding(1, prompt=[0] * 16)
    large, small = rig.submit(CYCLE * 8, max_tokens=4), rig.submit(CYCLE, max_tokens=4)
    assert rig.admit() == []
    assert list(rig.core.waiting) == [large, small]


@pytest.mark.parametrize("num_blocks", range(8, 14))
@pytest.mark.parametrize("max_tokens", [4, 8])
def test_one_is_admitted_if_its_context_and_draft_fit_beside_what_the_running_need(num_blocks, max_tokens):
    """Running: 16 cached of a context of 17, which with a draft of 3 comes to 5 blocks. New: 4. One each to grow."""
    rig = Rig(num_blocks=num_blocks)
    rig.decoding(1, prompt=CYCLE * 4, max_tokens=max_tokens)
    assert rig.available == num_blocks - 4
    rig.submit([0, *CYCLE * 3], max_tokens=max_tokens)
    num_to_grow = 2 if max_tokens == 8 else 0  # the end may be nearer than a block and a draft
    assert bool(rig.admit()) == (num_blocks >= 4 + 1 + 4 + num_to_grow)


def test_alone_one_is_always_admitted():
    rig = Rig(num_blocks=5)
    sequence = rig.submit(CYCLE * 4 + CYCLE[:3], max_tokens=2)
    assert rig.admit() == [sequence]
    assert rig.plan()[0]


def test_no_more_are_admitted_than_the_token_budget_could_feed():
    rig = Rig(max_batch_tokens=20)
    sequences = [rig.submit(CYCLE * 2 + CYCLE[:1], max_tokens=2) for _ in range(5)]
    assert rig.admit() == sequences[:3], "9 tokens each: the third is begun"
    assert rig.admit() == []


def test_a_paused_one_takes_nothing_of_the_token_budget():
    rig = Rig(num_blocks=200)
    paused = rig.decoding(5)
    rig.shrink(max_batch_tokens=5)
    waits = rig.submit()
    assert rig.admit() == []
    for sequence in paused:
        sequence.is_paused = True
    assert rig.admit() == [waits]


def test_the_prefix_cache_is_asked_for_the_whole_context_and_leaves_one_token_to_feed():
    rig = Rig(speculative=NONE)
    first = rig.submit(CYCLE * 3, max_tokens=1)
    rig.step()
    assert first.state is State.FINISHED
    again = rig.submit(CYCLE * 3, max_tokens=1)
    rig.admit()
    assert (again.cached, again.num_pending) == (8, 4)
    other = rig.submit(CYCLE * 3, max_tokens=1, cache_salt="other")
    rig.admit()
    assert other.cached == 0


def test_a_candidate_that_is_refused_goes_on_waiting_at_its_place():
    rig = Rig()
    first, second = rig.submit(), rig.submit()
    entry = rig.core.candidates(rig.available)
    assert [candidate.seq for candidate in entry.candidates] == [first.seq, second.seq]
    rig.core.admitted(first, None)
    rig.core.admitted(second, None)
    assert first.state is second.state is State.WAITING
    assert rig.admit() == [first, second]


def test_the_paused_give_way_to_those_who_wait_for_a_place():
    rig = Rig(max_running=2)
    one, other = rig.decoding(2)
    other.is_paused = True
    waits = rig.submit()
    feeds, preempted = rig.plan()
    assert preempted == [other]
    assert {planned.sequence for planned in feeds} == {one, waits}
    assert rig.core.parked == {other.seq: other}
    assert other not in rig.core.waiting
    rig.core.resume(other)
    assert rig.core.parked == {}
    assert rig.core.waiting.first() is other
    rig.check()


def test_the_paused_keep_their_place_while_only_the_token_budget_is_short():
    rig = Rig(num_blocks=200)
    decodes = rig.decoding(3)
    decodes[2].is_paused = True
    rig.shrink(max_batch_tokens=4)
    rig.submit(CYCLE * 10)
    for _ in range(3):
        feeds, preempted = rig.plan()
        assert feeds
        assert preempted == []


def victims_for(rig, leave):
    rig.hog(leave)
    return rig.plan()[1]


def test_victims_are_the_last_to_come():
    rig = Rig()
    sequences = rig.decoding(3, prompt=CYCLE * 2, params=SAMPLED)  # each at the edge of a block
    assert victims_for(rig, leave=2) == sequences[2:]


def test_victims_are_those_of_lowest_priority():
    rig = Rig()
    sequences = [rig.submit(CYCLE * 2, params=SAMPLED, priority=priority) for priority in (1, 2, 0)]
    rig.step()
    assert victims_for(rig, leave=2) == [sequences[1]]


def test_victims_are_first_of_all_the_paused():
    rig = Rig()
    sequences = rig.decoding(3, prompt=CYCLE * 2, params=SAMPLED)
    sequences[0].is_paused = True
    assert victims_for(rig, leave=1) == [sequences[0]]
    assert rig.core.parked == {0: sequences[0]}


def test_as_many_victims_as_needed_and_never_the_best():
    rig = Rig(num_blocks=20)
    sequences = rig.decoding(4, prompt=CYCLE * 2, params=SAMPLED, max_tokens=8)
    rig.hog(leave=0)
    feeds, preempted = rig.plan()
    assert preempted == sequences[:1:-1], "each gives back 2 blocks, the two others need one each"
    assert [planned.sequence for planned in feeds] == sequences[:2]


def test_who_holds_nothing_is_no_victim():
    rig = Rig(prefix_cache=False)
    holds, best = rig.submit(CYCLE * 2, params=SAMPLED, priority=1), rig.submit(CYCLE * 2, params=SAMPLED)
    rig.step()
    bare = rig.submit(CYCLE * 2, params=SAMPLED, priority=2)
    rig.admit()
    assert bare.state is State.PREFILL
    assert victims_for(rig, leave=0) == [holds]
    assert best.seq in rig.core.running


def test_a_victim_keeps_its_tokens_its_generator_and_its_drafter_and_nothing_else():
    rig = Rig()
    (sequence,) = rig.decoding(1)
    rig.step()
    context, rng, drafter = list(sequence.context), sequence.rng.state, sequence.drafter
    sequence.propose()
    rig.preempt(sequence)
    assert (sequence.cached, sequence.proposal, sequence.state) == (0, None, State.PREEMPTED)
    assert (sequence.context, sequence.rng.state, sequence.drafter) == (context, rng, drafter)
    assert sequence.num_preemptions == 1
    rig.check()
    feeds, _ = rig.plan()
    assert feeds[0].ids[: len(context) - sequence.cached] == context[sequence.cached :]


def test_room_left_in_last_blocks_is_counted_before_anybody_is_preempted():
    """Three sequences of 6 cached have 2 places left in their last block: a round without draft needs no block."""
    rig = Rig(speculative=NONE)
    rig.decoding(3, prompt=CYCLE + CYCLE[:2], params=SAMPLED)
    assert victims_for(rig, leave=0) == []


def test_who_has_left_the_queue_is_not_kept():
    """The first never leaves, and thousands behind it do."""
    queue = WaitingQueue()
    made = [Sequence(seq, Request(prompt=[1], eos=(seq,)), NONE, 10) for seq in range(2000)]
    refs = [weakref.ref(sequence.stops) for sequence in made]  # what each alone holds
    for sequence in made:
        queue.push(sequence)
    for sequence in made[1:]:
        queue.remove(sequence)
    del made, sequence
    assert sum(ref() is not None for ref in refs) < 100


def test_taking_from_the_middle_of_the_queue_leaves_the_order_of_the_others():
    rig = Rig(max_running=1)
    sequences = [rig.submit(priority=i % 3) for i in range(300)]
    for sequence in sequences[::2] + sequences[1:200:2]:
        rig.core.end(sequence, State.CANCELLED)
    left = sorted((s for s in sequences[201::2]), key=lambda s: s.rank)
    assert len(rig.core.waiting) == len(left)
    order = []
    while rig.core.waiting:
        order.append(rig.core.waiting.first())
        rig.core.waiting.remove(order[-1])
    assert order == left
    assert rig.core.waiting.first() is None

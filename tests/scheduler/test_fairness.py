"""Nobody keeps another waiting: drafts not the prefill, prefill not the rounds, the less urgent not the more urgent."""

import itertools

import pytest

from scheduler import PassCost, Scheduler, State
from spec import SpecConfig
from tests.scheduler.rig import CYCLE, GREEDY, SAMPLED, Rig, lookup

LONG = CYCLE * 25
NONE = SpecConfig.parse("none", 1)


def passes_until_first_token(rig, sequence, most=50):
    for number in range(1, most + 1):
        rig.step()
        if sequence.num_emitted:
            return number
    raise AssertionError(f"no token in {most} passes")


def crowded(num_decodes, k, budget, **changes):
    """A rig in which so many decodes, with drafts, fill the token budget."""
    rig = Rig(speculative=lookup(k), max_batch_tokens=budget, num_blocks=4000, max_running=400, prefix_cache=False)
    decodes = rig.decoding(num_decodes, max_tokens=150, **changes)
    assert sum(1 + sequence.propose().num_nodes for sequence in decodes) >= budget
    return rig, decodes


@pytest.mark.parametrize("priority", [0, 5])
def test_greedy_drafts_keep_no_newcomer_waiting(priority):
    """8 rounds of 1 + 4 fill a budget of 40; without drafts they would leave 32 of it."""
    rig, _ = crowded(8, 4, 40, params=GREEDY, priority=5)
    assert passes_until_first_token(rig, rig.submit(CYCLE * 4, priority=priority)) == 1
    assert passes_until_first_token(rig, rig.submit(CYCLE * 8, priority=priority)) == 2


def test_a_cost_that_favours_drafts_keeps_no_newcomer_waiting():
    rig, _ = crowded(8, 4, 40, params=GREEDY)
    core, rig.core = rig.core, Scheduler(rig.config, PassCost.linear(1.0, 0.0))
    rig.core.running = core.running
    assert passes_until_first_token(rig, rig.submit(CYCLE * 4)) == 1


@pytest.mark.parametrize(("num_decodes", "k", "budget"), [(8, 4, 40), (33, 15, 512), (121, 4, 600)])
def test_drafts_that_must_be_fed_whole_keep_no_newcomer_waiting(num_decodes, k, budget):
    rig, _ = crowded(num_decodes, min(k, 4), min(budget, 5 * num_decodes), params=SAMPLED, priority=5)
    assert passes_until_first_token(rig, rig.submit(CYCLE * 2, priority=0, params=SAMPLED)) == 1
    assert passes_until_first_token(rig, rig.submit(CYCLE * 2, priority=9, params=SAMPLED)) <= 2


def test_rounds_and_prefill_that_do_not_fit_together_have_a_pass_each():
    """A budget of 5: a round of 1 + 4 takes all of it, and so does the end of a context with its draft."""
    rig = Rig(speculative=lookup(4), max_batch_tokens=5, num_blocks=500, prefix_cache=False)
    (decode,) = rig.decoding(1, params=SAMPLED, max_tokens=150)
    late = [rig.submit([0, 0, *CYCLE, *CYCLE], params=SAMPLED, max_tokens=1) for _ in range(3)]
    fed = []
    while late[-1].state is not State.FINISHED:
        fed.append(decode in {planned.sequence for planned in rig.step()})
        assert len(fed) < 60
    assert all(first or second for first, second in itertools.pairwise(fed)), "every second pass has the round"
    assert sum(fed) <= len(fed) // 2 + 1, "and every other the prefill"


@pytest.mark.parametrize("num_decodes", [1, 4, 7])
def test_prefill_without_end_leaves_the_rounds_their_share(num_decodes):
    rig = Rig(speculative=lookup(4), max_batch_tokens=16, num_blocks=4000, max_running=400)
    decodes = rig.decoding(num_decodes, params=SAMPLED, max_tokens=150)
    gaps = dict.fromkeys((sequence.seq for sequence in decodes), 0)
    for _ in range(60):
        rig.submit(LONG, priority=-1)
        served = {planned.sequence.seq for planned in rig.step()}
        gaps = {seq: 0 if seq in served else gap + 1 for seq, gap in gaps.items()}
        assert max(gaps.values()) < 2 * num_decodes


def test_drafts_have_what_prefill_can_not_use():
    """Of 40, 8 rounds take 8, and drafts the rest, for there is no block for the prefill."""
    rig = Rig(speculative=lookup(4), max_batch_tokens=40, block_tokens=16)
    rig.decoding(8)
    waits = rig.submit(LONG)
    rig.admit()
    rig.hog(leave=0)
    feeds, preempted = rig.plan()
    assert [planned.num_tokens for planned in feeds] == [5] * 8
    assert preempted == []
    assert waits.state is State.PREFILL


def test_drafts_take_no_more_than_prefill_gets():
    for num_decodes in range(1, 9):
        rig = Rig(speculative=lookup(4), max_batch_tokens=40, num_blocks=500)
        rig.decoding(num_decodes)
        rig.submit(LONG)
        feeds, _ = rig.plan()
        num_drafted = sum(len(planned.draft.tokens) for planned in feeds)
        assert num_drafted == min(4 * num_decodes, (40 - num_decodes) // 2)
        assert feeds[-1].num_pending == 40 - num_decodes - num_drafted >= num_drafted


@pytest.mark.parametrize(("priority", "fed"), [(0, [(7, 0), (4, 0)]), (1, [(7, 3), (1, 0)])])
def test_the_draft_of_a_context_that_ends_keeps_no_equal_waiting(priority, fed):
    rig = Rig(max_batch_tokens=11)
    rig.submit()
    other = rig.submit([5] * 9, priority=priority)
    feeds, _ = rig.plan()
    assert [(planned.num_pending, len(planned.draft.tokens)) for planned in feeds] == fed
    rig.end(other)
    assert [len(planned.draft.tokens) for planned in rig.plan()[0]] == [3]


# priorities


def test_the_more_urgent_is_let_in_at_once_where_all_places_are_taken():
    rig = Rig(max_running=3, num_blocks=500)
    running = [rig.submit(priority=priority) for priority in (2, 1, 2)]
    rig.step()
    urgent = rig.submit(priority=1)
    feeds, preempted = rig.plan()
    assert preempted == [running[2]]
    assert urgent in [planned.sequence for planned in feeds]
    rig.check()


def test_the_more_urgent_is_let_in_at_once_where_all_blocks_are_taken():
    rig = Rig(num_blocks=20, speculative=NONE, prefix_cache=False)
    running = [rig.submit([7, *CYCLE * 4], priority=priority, max_tokens=4) for priority in (1, 2, 3, 3)]
    rig.step()
    urgent = rig.submit(CYCLE * 7, max_tokens=4)
    feeds, preempted = rig.plan()
    assert preempted == [running[3], running[2]], "8 blocks: the room of two"
    assert urgent in [planned.sequence for planned in feeds]
    rig.check()


def test_who_would_not_fit_all_the_same_sends_nobody_away():
    rig = Rig(num_blocks=20, speculative=NONE, prefix_cache=False)
    rig.decoding(1, prompt=CYCLE * 14, max_tokens=4)
    rig.decoding(1, prompt=CYCLE, max_tokens=4, priority=1)
    waits = rig.submit(CYCLE * 6, max_tokens=4)
    assert rig.plan()[1] == []
    assert list(rig.core.waiting) == [waits]


def test_equals_send_nobody_away():
    rig = Rig(max_running=1)
    rig.decoding(1, priority=3)
    rig.submit(priority=3), rig.submit(priority=4)
    assert rig.admit() == rig.preempted == []


def test_the_less_urgent_cost_the_more_urgent_nothing_of_the_token_budget():
    rig = Rig(max_batch_tokens=20, num_blocks=500)
    less = rig.submit([0] * 100, priority=1)
    rig.step()
    equal, urgent = rig.submit(priority=1), rig.submit(priority=0)
    assert rig.admit() == [urgent]
    assert rig.preempted == []
    assert {less.state, equal.state} == {State.PREFILL, State.WAITING}


def test_the_paused_give_way_first_whatever_their_priority():
    rig = Rig(max_running=2)
    one, other = rig.decoding(2)
    one.is_paused = True
    rig.submit(priority=9)
    assert rig.plan()[1] == [one]
    assert other.seq in rig.core.running


def test_a_victim_goes_on_when_the_more_urgent_has_ended():
    rig = Rig(max_running=1, num_blocks=30)
    (less,) = rig.decoding(1, priority=1, max_tokens=8)
    urgent = [rig.submit(max_tokens=4) for _ in range(3)]
    for _ in range(100):
        if less.state is State.FINISHED:
            break
        rig.step()
        rig.check()
    assert [sequence.state for sequence in (*urgent, less)] == [State.FINISHED] * 4
    assert rig.ended == [*urgent, less]
    assert less.num_preemptions == 1


# what a candidate needs


def test_those_who_come_in_together_fit_together():
    """Two of 5 blocks each, and a third that would need one more than the 12 there are."""
    rig = Rig(num_blocks=12, speculative=NONE)
    sequences = [rig.submit(CYCLE * 4, max_tokens=5) for _ in range(3)]
    assert rig.admit() == sequences[:2]


def test_what_others_hold_costs_a_newcomer_nothing():
    """Of 16 blocks, the first is to fill 14; the other shares 12 of them and needs two of its own."""
    shared = [i % 7 for i in range(48)]
    for num_blocks in (15, 16):
        rig = Rig(num_blocks=num_blocks, speculative=NONE)
        first = rig.submit([*shared, 0, 0, 0, 0], max_tokens=4)
        rig.step()
        assert rig.available == num_blocks - 13
        second = rig.submit([*shared, 1, 1, 1, 1], max_tokens=4)
        assert rig.admit() == ([second] if num_blocks == 16 else [])
        while rig.core.live():
            rig.step()
            rig.check()
        assert {first.num_preemptions, second.num_preemptions} == {0}


def test_cached_blocks_without_an_owner_are_room_that_is_taken():
    """8 of the newcomer's 9 blocks are cached and nobody's: beside the 4 of another they leave 3 of 15."""
    for num_blocks in (12, 13):
        rig = Rig(num_blocks=num_blocks, speculative=NONE)
        rig.submit([i % 7 for i in range(33)], max_tokens=1)
        rig.step()
        assert rig.ledger.pool.stats().evictable == 8
        rig.decoding(1, prompt=[7] * 12, max_tokens=4)
        again = rig.submit([i % 7 for i in range(33)], max_tokens=4)
        assert rig.admit() == ([again] if num_blocks == 13 else [])
        rig.ledger.check()


def test_a_victim_that_shares_its_blocks_makes_room_by_its_own_only():
    """Three share 8 blocks and have one each: to make room for 4 besides, all three have to go."""
    shared = [i % 7 for i in range(32)]
    rig = Rig(num_blocks=12, speculative=NONE)
    rig.decoding(1, prompt=[*shared, 0], max_tokens=4, priority=1)
    less = [*rig.core.running.values(), *(rig.submit([*shared, i], max_tokens=4, priority=1) for i in (1, 2))]
    rig.step()
    assert len(rig.core.running) == 3
    assert rig.ledger.pool.stats().held == 11
    urgent = rig.submit([7] * 14, max_tokens=4)
    assert rig.admit() == [urgent]
    assert rig.preempted == less[::-1]
    rig.check()

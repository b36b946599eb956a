"""A pass: rounds first, drafts counted, prefill in what is left, and the last of a context only with its draft."""

import msgspec
import pytest

from kvpool import blocks_for
from scheduler import State, core
from spec import BestFirst, Drafter, SpecConfig, propose
from tests.scheduler.rig import CYCLE, GREEDY, SAMPLED, Rig, lookup

LONG = CYCLE * 25
NONE = SpecConfig.parse("none", 1)


@pytest.mark.parametrize("num_decodes", range(5))
@pytest.mark.parametrize("k", [1, 3, 4])
def test_drafts_count_against_the_budget_and_the_chunk_gets_the_rest(num_decodes, k):
    rig = Rig(speculative=lookup(k), max_batch_tokens=40)
    decodes = rig.decoding(num_decodes)
    prefill = rig.submit(LONG)
    feeds, preempted = rig.plan()
    assert not preempted
    rounds = [planned for planned in feeds if planned.sequence in decodes]
    assert [planned.num_tokens for planned in rounds] == [1 + k] * num_decodes
    (chunk,) = (planned for planned in feeds if planned.sequence is prefill)
    assert (chunk.num_pending, chunk.draft.tokens, chunk.is_round) == (40 - num_decodes * (1 + k), [], False)
    assert feeds[-1] is chunk, "rounds come first"


def test_a_round_is_fed_its_last_token_and_its_draft():
    rig = Rig()
    (sequence,) = rig.decoding(1)
    (planned,), _ = rig.plan()
    assert planned.ids == [sequence.context[-1], *planned.draft.tokens]
    assert (planned.num_pending, len(planned.draft.tokens), planned.is_round) == (1, 3, True)


@pytest.mark.parametrize("budget", range(4, 14))
def test_the_last_token_of_a_context_is_fed_only_together_with_the_draft(budget):
    """A prompt of 7 with a draft of 3: a sampled round needs room for all 10 of them."""
    rig = Rig(max_batch_tokens=budget)
    sequence = rig.submit(params=SAMPLED)
    fed = []
    while sequence.state in (State.WAITING, State.PREFILL):
        (planned,) = rig.step()
        fed.append(planned)
        assert planned.is_round == (planned is fed[-1] and sequence.num_emitted > 0)
    assert [planned.is_round for planned in fed] == [False] * (len(fed) - 1) + [True]
    assert sum(planned.num_pending for planned in fed) == 7
    assert len(fed[-1].draft.tokens) == 3
    assert fed[0].num_tokens == (10 if budget >= 10 else min(budget, 6))


@pytest.mark.parametrize("room", [6, 7, 8, 9, 10, 11])
def test_a_chunk_takes_what_blocks_have_room_for_and_a_greedy_round_may_go_without_its_draft(room):
    """Blocks of one token, `room` of them left, and a prompt of 7 with a draft of 3."""
    rig = Rig(block_tokens=1, num_blocks=20)
    rig.submit(max_tokens=4)
    rig.admit()
    rig.hog(leave=room)
    feeds, _ = rig.plan()
    expected = {6: (6, 0, False)}.get(room, (7, 3 if room >= 10 else 0, True))
    assert [(p.num_pending, len(p.draft.tokens), p.is_round) for p in feeds] == [expected]
    rig = Rig(block_tokens=1, num_blocks=20)
    rig.submit(params=SAMPLED, max_tokens=4)
    rig.admit()
    rig.hog(leave=room)
    feeds, _ = rig.plan()
    expected = (7, 3, True) if room >= 10 else (min(room, 6), 0, False)
    assert [(p.num_pending, len(p.draft.tokens), p.is_round) for p in feeds] == [expected]


@pytest.mark.parametrize("fed", [3, 4, 5])
def test_room_in_the_last_block_is_used_before_a_new_one_is_asked_for(fed):
    """Blocks of 4: a context cut at 3, 4 and 5 has 1, 0 and 3 places left in its last block."""
    rig = Rig(max_batch_tokens=fed, num_blocks=10, speculative=NONE)
    sequence = rig.submit(LONG[:30], max_tokens=2)
    rig.step()
    assert sequence.cached == fed
    held = rig.available
    blockers = [rig.ledger.pool.allocate(4) for _ in range(held)]
    free_places = -fed % 4
    plan = rig.core._chunk(sequence, 64, rig.available)
    assert (plan.num_tokens if plan else 0) == free_places
    for block in blockers:
        rig.ledger.pool.release(block)


@pytest.mark.parametrize("size", [1, 2, 3, 16])
def test_what_a_pass_adds_in_blocks_is_counted_from_edge_to_edge(size):
    sequence = Rig().submit()
    for sequence.cached in range(2 * size + 1):
        for num_tokens in range(2 * size + 2):
            grown = blocks_for(sequence.cached + num_tokens, size) - blocks_for(sequence.cached, size)
            assert sequence.num_new_blocks(num_tokens, size) == grown


def test_prefill_is_served_in_rank_and_a_late_one_gets_what_is_left():
    rig = Rig(max_batch_tokens=50, speculative=NONE)
    late, early = rig.submit(LONG[:40], priority=1), rig.submit(LONG[:30], priority=0)
    feeds, _ = rig.plan()
    assert [(planned.sequence, planned.num_pending) for planned in feeds] == [(early, 30), (late, 20)]


def test_prefill_is_served_in_rank_whoever_came_in_first():
    rig = Rig(max_batch_tokens=30, speculative=NONE)
    late = rig.submit(LONG[:80], priority=1)
    rig.step()
    early = rig.submit(LONG[50:70], priority=0)
    feeds, _ = rig.plan()
    assert [(planned.sequence, planned.num_pending) for planned in feeds] == [(early, 20), (late, 10)]


@pytest.mark.parametrize(("priority", "fed"), [(0, [2, 2, 5]), (5, [3, 2, 4])])
def test_rounds_are_served_before_a_prefill_of_better_rank_and_their_drafts_are_not(priority, fed):
    """Of 9, two rounds leave 7, and half of that is owed to a prefill of their priority; of all 9 to a better one."""
    rig = Rig()
    decodes = rig.decoding(2, priority=5)
    rig.shrink(max_batch_tokens=9)
    rig.submit(LONG, priority=priority)
    feeds, _ = rig.plan()
    assert [planned.sequence for planned in feeds[:2]] == decodes
    assert [planned.num_tokens for planned in feeds] == fed


@pytest.mark.parametrize("num_decodes", [3, 5, 8])
def test_rounds_in_excess_of_the_budget_take_turns(num_decodes):
    """Two rounds of 4 fit into a pass of 9: nobody is served twice before everybody was served once."""
    rig = Rig(num_blocks=500)
    decodes = rig.decoding(num_decodes, params=SAMPLED, max_tokens=150)
    rig.shrink(max_batch_tokens=9)
    served = []
    for _ in range(40):
        feeds = rig.step()
        assert sum(planned.num_tokens for planned in feeds) <= 9
        served += [planned.sequence.seq for planned in feeds]
    counts = [served.count(sequence.seq) for sequence in decodes]
    assert max(counts) - min(counts) <= 1
    for start in range(len(served) - 2 * num_decodes):
        assert {sequence.seq for sequence in decodes} <= set(served[start : start + 2 * num_decodes])


def test_a_draft_stays_the_same_until_its_round_is_settled():
    rig = Rig()
    (sequence,) = rig.decoding(1)
    draft = sequence.propose()
    assert sequence.propose() == draft
    assert rig.plan()[0][0].draft == rig.plan()[0][0].draft == draft
    rig.preempt(sequence)
    rig.admit()
    assert sequence.propose() == draft
    rig.step()
    assert sequence.proposal is None


def test_drafts_never_run_past_the_end():
    """With one token to go there is nothing to draft, with two there is one place."""
    for max_tokens in range(1, 7):
        rig = Rig(speculative=lookup(8))
        rig.submit(max_tokens=max_tokens)
        (planned,), _ = rig.plan()
        assert len(planned.draft.tokens) == min(max_tokens - 1, 4)
    rig = Rig(speculative=lookup(8), max_model_len=9)
    rig.submit(max_tokens=50)
    (planned,), _ = rig.plan()
    assert len(planned.draft.tokens) == 2, "9 positions: a prompt of 7 and two of the draft"


def test_short_of_blocks_greedy_drafts_go_before_anybody_is_preempted():
    """Two rounds with a draft of 3 need a block each and there is one; without drafts they need none."""
    rig = Rig()
    decodes = rig.decoding(2, prompt=CYCLE + CYCLE[:2])
    assert [sequence.cached for sequence in decodes] == [6, 6]
    rig.hog(leave=1)
    feeds, preempted = rig.plan()
    assert not preempted
    assert [planned.num_tokens for planned in feeds] == [1, 1]


def test_a_sampled_round_keeps_its_draft_and_the_last_in_rank_gives_way():
    rig = Rig()
    first, last = rig.decoding(2, prompt=CYCLE + CYCLE[:2], params=SAMPLED)
    rig.hog(leave=1)
    feeds, preempted = rig.plan()
    assert preempted == [last]
    assert [(planned.sequence, len(planned.draft.tokens)) for planned in feeds] == [(first, 3)]


def test_a_pause_takes_a_sequence_out_of_the_pass():
    rig = Rig()
    decodes = rig.decoding(3)
    decodes[1].is_paused = True
    feeds, preempted = rig.plan()
    assert [planned.sequence for planned in feeds] == [decodes[0], decodes[2]]
    assert not preempted, "it keeps its blocks while nobody wants them"
    rig.core.resume(decodes[1])
    assert len(rig.plan()[0]) == 3


def test_nothing_to_do_is_an_empty_plan():
    rig = Rig()
    assert rig.plan() == ([], [])
    (sequence,) = rig.decoding(1)
    sequence.is_paused = True
    assert rig.plan() == ([], [])


def test_a_settled_round_tells_what_was_cached_what_was_emitted_and_why_it_ended():
    rig = Rig(lambda planned: [*planned.draft.tokens, 0], max_batch_tokens=4)
    sequence = rig.submit([1, 2, 1, 2, 1, 2], max_tokens=6, params=GREEDY, eos=(0,))
    (settled,) = rig.settle(reserved(rig))
    assert (settled.verified, settled.emitted, settled.num_accepted, settled.finish_reason) == (
        [1, 2, 1, 2],
        [],
        0,
        None,
    )
    (settled,) = rig.settle(reserved(rig))
    assert (settled.verified, settled.emitted, settled.num_accepted) == ([1, 2, 1, 2], [1, 2, 0], 2)
    assert (settled.finish_reason, sequence.state) == ("stop", State.FINISHED)
    assert (sequence.num_rounds, sequence.num_drafted, sequence.num_accepted) == (1, 2, 2)


def reserved(rig):
    feeds, _ = rig.plan()
    rig.reserve(feeds)
    return feeds


@pytest.mark.parametrize(
    ("tokens", "max_tokens", "kept", "reason"),
    [
        ([1, 0, 2], 9, [1, 0], "stop"),
        ([1, 2, 0], 3, [1, 2, 0], "stop"),
        ([1, 2, 3], 3, [1, 2, 3], "length"),
        ([1, 2, 0], 2, [1, 2], "length"),
        ([0], 1, [0], "stop"),
        ([1, 2, 3], 9, [1, 2, 3], None),
    ],
)
def test_a_stop_id_is_seen_before_the_length_and_what_follows_is_dropped(tokens, max_tokens, kept, reason):
    rig = Rig()
    sequence = rig.submit(max_tokens=max_tokens, eos=(0,))
    assert sequence.take(tokens) == (kept, reason)
    assert sequence.context[7:] == kept
    assert sequence.cached == 7 + len(kept) - 1


SUFFIX = SpecConfig("suffix", shape=BestFirst(6, 0.05), factor=4.0)


def test_a_suffix_drafts_a_tree_as_large_and_as_deep_as_there_is_room_for():
    rig = Rig(speculative=SUFFIX)
    forks = [1, 2, 3, 1, 2, 4, 1, 2]
    sequence = rig.submit(forks)
    (planned,), _ = rig.plan()
    drafted = Drafter(SUFFIX, forks).draft(6, 19)
    assert not drafted.tree.is_chain
    assert (planned.draft.tokens, planned.draft.parents) == (drafted.tree.tokens, drafted.tree.parents)
    assert planned.draft.values == drafted.values
    assert planned.num_tokens == len(forks) + len(drafted.tree)
    rig.end(sequence)
    rig.submit(forks, max_tokens=2)
    (planned,), _ = rig.plan()
    assert planned.draft.depth == 1


@pytest.mark.parametrize(
    ("changes", "is_helped"), [({}, True), ({"params": SAMPLED}, False), ({"cache_salt": "x"}, False)]
)
@pytest.mark.parametrize("prompts", [False, True])
def test_what_finished_requests_said_is_drafted_where_the_text_does_not_depend_on_it(changes, is_helped, prompts):
    text = iter([5, 6, 7, 4, 3])
    speculative = msgspec.structs.replace(SUFFIX, prompts=prompts)
    rig = Rig(lambda planned: [next(text)], speculative=speculative)
    rig.submit([1, 2], max_tokens=5)
    while rig.core.live():
        rig.step()
    rig.submit([0, 5, 6], **changes)
    (planned,), _ = rig.plan()
    assert planned.draft.tokens[:2] == ([7, 4] if is_helped else [])
    rig.submit([0, 1, 2], **changes)
    planned = rig.plan()[0][-1]
    assert planned.draft.tokens[:2] == ([5, 6] if is_helped and prompts else [])


def test_what_finished_requests_said_is_kept_by_salt():
    text = iter([5, 6, 7, 4, 3])
    rig = Rig(lambda planned: [next(text)], speculative=SUFFIX)
    rig.submit([1, 2], max_tokens=5, cache_salt="x")
    while rig.core.live():
        rig.step()
    rig.submit([0, 5, 6]), rig.submit([0, 5, 6], cache_salt="x")
    assert [planned.draft.tokens[:2] for planned in rig.plan()[0]] == [[], [7, 4]]


@pytest.fixture
def slowly(monkeypatch):
    """Drafters take in three cached tokens a pass."""
    monkeypatch.setattr(core, "NUM_CAUGHT_UP", 3)


def rig_that_has_cached(prompt):
    rig = Rig()
    rig.submit(prompt, max_tokens=1)
    while rig.core.live():
        rig.step()
    return rig


@pytest.mark.parametrize("params", [GREEDY, SAMPLED])
def test_a_drafter_takes_in_a_long_prompt_as_it_is_prefilled(params):
    rig = Rig(max_batch_tokens=8, prefix_cache=False)
    sequence = rig.submit(LONG, params=params)
    while sequence.state in (State.WAITING, State.PREFILL):
        before = len(sequence.drafter)
        rig.step()
        assert len(sequence.drafter) - before <= 8 + sequence.num_emitted
        assert len(sequence.drafter) == len(sequence.context[: sequence.cached + sequence.num_emitted])


def test_a_text_that_depends_on_no_draft_does_not_wait_for_one(slowly):
    rig = rig_that_has_cached(LONG[:41])
    sequence = rig.submit(LONG[:41], max_tokens=100)
    rig.step()
    assert (sequence.num_emitted, sequence.num_drafted, len(sequence.drafter)) == (1, 0, 3)
    while not sequence.num_drafted:
        assert sequence.state is State.DECODE
        before = len(sequence.drafter)
        rig.step()
        assert len(sequence.drafter) - before <= 3 + 2
    assert sequence.num_emitted > 10
    assert len(sequence.drafter) == len(sequence.context)


def test_a_text_that_depends_on_drafts_waits_for_its_drafter_and_no_other_does(slowly):
    rig = rig_that_has_cached(LONG[:41])
    sequence = rig.submit(LONG[:41], params=SAMPLED)
    other = rig.submit([5, 6, 7], params=SAMPLED, priority=1)
    feeds, _ = rig.plan()
    assert [planned.sequence for planned in feeds] == [other]
    rig.end(other)
    for _ in range(12):
        plan = rig.core.plan(rig.available)
        assert (plan.feeds, plan.victims, plan.is_catching_up) == ([], [], True)
    (planned,), _ = rig.plan()
    assert planned.sequence is sequence
    assert (planned.is_round, planned.draft.tokens) == (True, propose(lookup(3), LONG[:41], 3))


@pytest.mark.parametrize("k", [1, 16])
def test_no_room_is_kept_for_drafts_where_there_are_none(k):
    """Three contexts of 7 and a block of 4 to grow fill 9 blocks, whatever the most that a draft could have been."""
    rig = Rig(num_blocks=9, block_tokens=4, speculative=SpecConfig.parse("none", k))
    for _ in range(3):
        rig.submit(max_tokens=20)
    assert len(rig.plan()[0]) == 3

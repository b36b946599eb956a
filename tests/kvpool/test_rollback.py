"""Growing and shortening block tables: what is given back, what is left alone, what is copied."""

import random

import pytest

from kvpool import BlockCopy, KvPool, KvPoolError, OutOfBlocks, blocks_for, extend, rollback


def snapshot(pool, *tables):
    blocks = range(pool.num_blocks)
    return (
        pool.stats(),
        [pool.ref_count(block) for block in blocks],
        [pool.fill(block) for block in blocks],
        [list(table) for table in tables],
    )


def table_of(pool, num_tokens):
    table: list[int] = []
    extend(pool, table, num_tokens)
    return table


def fork(pool, table):
    for block in table:
        pool.retain(block)
    return list(table)


def fills(pool, table):
    return [pool.fill(block) for block in table]


def test_blocks_for_rounds_up():
    assert [blocks_for(tokens, 4) for tokens in (0, 1, 4, 5, 8, 9)] == [0, 1, 1, 2, 2, 3]


def test_rollback_hand_example():
    pool = KvPool(8, 4)
    table = [pool.allocate() for _ in range(3)]
    for block, fill in zip(table, (4, 4, 2), strict=True):
        pool.set_fill(block, fill)
    kept = table[:2]
    assert rollback(pool, table, 5) == 1
    assert table == kept
    assert fills(pool, table) == [4, 1]
    assert pool.stats() == (8, 6, 0, 2)
    pool.check([table])


def test_rollback_drops_one_reference_only():
    pool = KvPool(8, 4)
    mine = table_of(pool, 10)
    theirs = fork(pool, mine)
    dropped = mine[2]
    assert rollback(pool, mine, 8) == 1
    assert pool.ref_count(dropped) == 1
    assert pool.fill(dropped) == 2
    assert [pool.ref_count(block) for block in theirs] == [2, 2, 1]
    assert pool.take_copies() == []
    pool.check([mine, theirs])
    assert rollback(pool, theirs, 0) == 3
    assert pool.stats().held == 2


@pytest.mark.parametrize("keep", range(11))
def test_rollback_keeps_exactly_what_it_is_told(keep):
    pool = KvPool(8, 4)
    table = table_of(pool, 10)
    before = list(table)
    assert rollback(pool, table, keep) == 3 - blocks_for(keep, 4)
    assert table == before[: blocks_for(keep, 4)]
    assert sum(fills(pool, table)) == keep
    pool.check([table])


def test_rollback_across_a_border_leaves_no_stale_holder():
    pool = KvPool(8, 4)
    table = table_of(pool, 6)
    extend(pool, table, 3)  # three drafts, the last of them in a third block
    third = table[2]
    assert rollback(pool, table, 6) == 1
    assert pool.ref_count(third) == 0
    assert pool.fill(third) == 0
    assert fills(pool, table) == [4, 2]
    pool.check([table])
    assert pool.allocate() == third  # and it can be someone else's at once
    pool.check([table, [third]])


def test_rollback_gives_the_freed_tail_back_last_block_first():
    pool = KvPool(4, 2)
    table = table_of(pool, 8)
    first, second, *_ = table
    rollback(pool, table, 0)
    assert [pool.allocate(), pool.allocate()] == [first, second]


@pytest.mark.parametrize("keep", [-1, 11, 12, 1000])
def test_rollback_refuses_a_length_it_does_not_have(keep):
    pool = KvPool(8, 4)
    table = table_of(pool, 10)
    before = snapshot(pool, table)
    with pytest.raises(KvPoolError, match=rf"keep: {keep}\b.*\[0, 10\]"):
        rollback(pool, table, keep)
    assert snapshot(pool, table) == before


@pytest.mark.parametrize("bad", [-1, 8, 10**9, "free", "repeated"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_rollback_refuses_a_table_it_cannot_trust(bad, place):
    pool = KvPool(8, 4)
    table = table_of(pool, 10)
    mine = list(table)
    free = pool.allocate()
    pool.release(free)
    mine[place] = {"free": free, "repeated": mine[(place + 1) % 3]}.get(bad, bad)
    before = snapshot(pool, mine)
    for keep in (0, 5, 8):
        with pytest.raises(KvPoolError, match=r"unknown|no owner|twice"):
            rollback(pool, mine, keep)
        assert snapshot(pool, mine) == before
    pool.check([table])


def test_shortening_a_shared_block_makes_a_private_copy():
    pool = KvPool(8, 4)
    mine = table_of(pool, 10)
    theirs = fork(pool, mine)
    before = snapshot(pool, theirs)[3]
    assert rollback(pool, mine, 7) == 1
    assert mine[0] == theirs[0]
    assert mine[1] not in theirs
    assert pool.take_copies() == [BlockCopy(theirs[1], mine[1], 3)]
    assert pool.take_copies() == []
    assert fills(pool, mine) == [4, 3]
    assert fills(pool, theirs) == [4, 4, 2]
    assert [theirs] == before
    pool.check([mine, theirs])


def test_shortening_an_indexed_block_leaves_its_entry_as_it_was():
    pool = KvPool(8, 4)
    table = table_of(pool, 8)
    known = list(table)
    pool.register(table[0], [1, 2, 3, 4], None)
    pool.register(table[1], [5, 6, 7, 8], table[0])
    assert rollback(pool, table, 6) == 0
    assert pool.take_copies() == [(known[1], table[1], 2)]
    assert pool.match([1, 2, 3, 4, 5, 6, 7, 8, 9]) == known
    assert pool.fill(known[1]) == 4
    assert pool.stats() == (8, 5, 1, 2)
    pool.check([table])


def test_a_copy_without_a_free_block_changes_nothing():
    pool = KvPool(3, 4)
    mine = table_of(pool, 10)
    theirs = fork(pool, mine)
    before = snapshot(pool, mine, theirs)
    with pytest.raises(OutOfBlocks):
        rollback(pool, mine, 5)
    assert snapshot(pool, mine, theirs) == before
    assert pool.take_copies() == []
    pool.check([mine, theirs])


def test_a_copy_may_use_what_the_same_rollback_gives_back():
    pool = KvPool(3, 4)
    mine = table_of(pool, 8)
    theirs = fork(pool, mine)
    extend(pool, mine, 1)
    tail = mine[2]
    assert rollback(pool, mine, 5) == 1
    assert mine == [theirs[0], tail]
    assert pool.take_copies() == [(theirs[1], tail, 1)]
    pool.check([mine, theirs])


def test_a_full_block_is_kept_without_a_copy():
    pool = KvPool(2, 4)
    mine = table_of(pool, 8)
    theirs = fork(pool, mine)
    assert rollback(pool, mine, 4) == 1
    assert rollback(pool, mine, 4) == 0
    assert mine == theirs[:1]
    assert pool.take_copies() == []


def test_extend_fills_the_last_block_before_it_takes_another():
    pool = KvPool(3, 4)
    table = table_of(pool, 10)
    extend(pool, table, 2)  # no block is left, and none is needed
    assert fills(pool, table) == [4, 4, 4]
    extend(pool, table, 0)
    with pytest.raises(OutOfBlocks):
        extend(pool, table, 1)
    with pytest.raises(KvPoolError, match="num_tokens: -1"):
        extend(pool, table, -1)
    assert fills(pool, table) == [4, 4, 4]
    pool.check([table])


@pytest.mark.parametrize("num_tokens", range(13))
def test_extend_takes_exactly_the_blocks_it_needs(num_tokens):
    pool = KvPool(8, 4)
    table = table_of(pool, 6)
    extend(pool, table, num_tokens)
    assert len(table) == blocks_for(6 + num_tokens, 4)
    assert sum(fills(pool, table)) == 6 + num_tokens
    pool.check([table])


def test_extend_uses_an_empty_block_that_is_there():
    pool = KvPool(4, 4)
    table = [pool.allocate()]
    theirs = fork(pool, table)
    extend(pool, table, 6)
    assert pool.take_copies() == [(theirs[0], table[0], 0)]
    extend(pool, theirs, 2)
    assert (fills(pool, table), fills(pool, theirs)) == ([4, 2], [2])
    pool.check([table, theirs])


def test_extend_refuses_a_table_whose_last_block_has_no_owner():
    pool = KvPool(4, 4)
    table = table_of(pool, 6)
    pool.release(table[1])
    before = snapshot(pool, table)
    with pytest.raises(KvPoolError, match=f"block {table[1]} has no owner"):
        extend(pool, table, 6)
    assert snapshot(pool, table) == before


def test_extend_is_all_or_nothing():
    pool = KvPool(4, 4)
    table = table_of(pool, 6)
    before = snapshot(pool, table)
    with pytest.raises(OutOfBlocks, match="3 blocks needed, 2 are"):
        extend(pool, table, 11)
    assert snapshot(pool, table) == before


def test_extend_copies_a_partial_block_with_two_owners_once():
    pool = KvPool(4, 4)
    mine = table_of(pool, 6)
    theirs = fork(pool, mine)
    extend(pool, mine, 3)
    assert pool.take_copies() == [(theirs[1], mine[1], 2)]
    assert fills(pool, mine) == [4, 4, 1]
    assert fills(pool, theirs) == [4, 2]
    extend(pool, theirs, 1)  # it is the only owner now
    assert pool.take_copies() == []
    pool.check([mine, theirs])


def test_extend_counts_the_copy_as_a_block():
    pool = KvPool(3, 4)
    mine = table_of(pool, 6)
    theirs = fork(pool, mine)
    before = snapshot(pool, mine, theirs)
    with pytest.raises(OutOfBlocks):
        extend(pool, mine, 3)
    assert snapshot(pool, mine, theirs) == before
    assert pool.take_copies() == []


def test_extend_after_a_full_shared_block_needs_no_copy():
    pool = KvPool(4, 4)
    mine = table_of(pool, 4)
    theirs = fork(pool, mine)
    extend(pool, mine, 1)
    assert mine[0] == theirs[0]
    assert pool.take_copies() == []
    pool.check([mine, theirs])


def test_copies_carried_out_late_and_in_order_read_what_was_there():
    pool = KvPool(6, 4)
    memory = [[(block, slot) for slot in range(4)] for block in range(6)]
    mine = table_of(pool, 6)
    source = mine[1]
    theirs = fork(pool, mine)
    wanted = [memory[block][:fill] for block, fill in zip(mine, (4, 1), strict=True)]
    rollback(pool, mine, 5)
    rollback(pool, theirs, 0)  # the source has no owner any more,
    other = table_of(pool, 4)  # and is another's before the copy is made
    assert other == [source]
    third = fork(pool, mine)
    extend(pool, third, 1)  # a copy of a copy
    for copy in pool.take_copies():
        memory[copy.destination][: copy.num_tokens] = memory[copy.source][: copy.num_tokens]
    assert [memory[block][:fill] for block, fill in zip(mine, (4, 1), strict=True)] == wanted
    assert [memory[block][:fill] for block, fill in zip(third, (4, 1), strict=True)] == wanted
    pool.check([mine, other, third])


def test_rolling_back_to_nothing_gives_every_reference_back_once():
    pool = KvPool(8, 4)
    mine = table_of(pool, 10)
    theirs = fork(pool, mine)
    assert rollback(pool, mine, 0) == 3
    assert mine == []
    assert rollback(pool, mine, 0) == 0
    pool.check([theirs])
    with pytest.raises(KvPoolError):
        rollback(pool, [*theirs, 7], 0)
    pool.check([theirs])


def test_blocks_conserved_across_rollbacks():
    """200 requests, eight at a time, most drafts rejected; the books are checked after every single change."""
    rng = random.Random(20)
    pool = KvPool(64, 4)
    waiting = [(rng.randrange(1, 20), rng.randrange(1, 24)) for _ in range(200)]
    running: list[tuple[list[int], int, int]] = []  # table, positions kept, positions at the end
    num_rejected = num_borders = 0
    while waiting or running:
        if waiting and len(running) < 8:
            pending, num_new = waiting.pop()
            table, kept, end = [], 0, pending + num_new
        else:
            table, kept, end = running.pop(0)
            pending = 1
        drafted = min(rng.randrange(6), end - kept - pending)
        extend(pool, table, pending + drafted)
        pool.check([table, *(other for other, _, _ in running)])
        accepted = sum(1 for _ in range(drafted) if rng.random() < 0.3)
        released = rollback(pool, table, kept + pending + accepted)
        assert released == blocks_for(kept + pending + drafted, 4) - blocks_for(kept + pending + accepted, 4)
        kept += pending + accepted
        num_rejected += drafted - accepted
        num_borders += released
        assert len(table) == blocks_for(kept, 4)
        assert pool.stats().held == len(table) + sum(len(other) for other, _, _ in running)
        if kept < end and rng.random() < 0.98:
            running.append((table, kept, end))
        else:
            rollback(pool, table, 0)
        pool.check([other for other, _, _ in running])
    assert pool.stats() == (64, 64, 0, 0)
    assert num_rejected > 1000
    assert num_borders > 200

"""One block's life, the prefix index, and the check that tells when the books are wrong."""

import gc
import sys

import pytest

from kvpool import KvPool, KvPoolError, OutOfBlocks, extend, rollback
from kvpool.prefix import _Node

A, B, C = [1, 2], [3, 4], [5, 6]


def chain(pool, *contents, salt=None):
    """Blocks held and registered one after the other."""
    table: list[int] = []
    for tokens in contents:
        block = pool.allocate(pool.block_tokens)
        pool.register(block, tokens, table[-1] if table else None, salt)
        table.append(block)
    return table


def check(pool, *tables):
    pool.check(tables)
    pool.check_index()


@pytest.mark.parametrize(("num_blocks", "block_tokens", "field"), [(0, 4, "num_blocks"), (4, 0, "block_tokens")])
def test_a_pool_of_nothing_is_refused(num_blocks, block_tokens, field):
    with pytest.raises(KvPoolError, match=f"{field}: 0"):
        KvPool(num_blocks, block_tokens)


def test_a_block_is_handed_out_once():
    pool = KvPool(3, 2)
    blocks = [pool.allocate() for _ in range(3)]
    assert sorted(blocks) == [0, 1, 2]
    with pytest.raises(OutOfBlocks, match="3"):
        pool.allocate()
    pool.release(blocks[1])
    assert pool.allocate() == blocks[1]


def test_references_are_counted():
    pool = KvPool(2, 2)
    block = pool.allocate()
    pool.retain(block)
    assert pool.ref_count(block) == 2
    pool.release(block)
    assert pool.stats() == (2, 1, 0, 1)
    pool.release(block)
    assert pool.stats() == (2, 2, 0, 0)


@pytest.mark.parametrize("block", [-1, 2, 10**6])
@pytest.mark.parametrize("method", ["retain", "release", "ref_count", "fill"])
def test_an_unknown_block_is_refused(method, block):
    pool = KvPool(2, 2)
    pool.allocate(), pool.allocate()
    with pytest.raises(KvPoolError, match=f"block {block} is unknown"):
        getattr(pool, method)(block)
    assert pool.stats() == (2, 0, 0, 2)


def test_a_free_block_has_no_owner_to_add_to_or_take_away():
    pool = KvPool(2, 2)
    block = pool.allocate()
    pool.release(block)
    for refused in (pool.retain, pool.release, lambda b: pool.set_fill(b, 1), lambda b: pool.register(b, A, None)):
        with pytest.raises(KvPoolError, match=f"block {block} "):
            refused(block)
    check(pool)
    assert pool.stats() == (2, 2, 0, 0)


@pytest.mark.parametrize("fill", [-1, 3])
def test_a_fill_is_within_the_block(fill):
    pool = KvPool(2, 2)
    block = pool.allocate(1)
    for refused in (lambda: pool.set_fill(block, fill), lambda: pool.allocate(fill)):
        with pytest.raises(KvPoolError, match=rf"fill: {fill}, must be in \[0, 2\]"):
            refused()
    assert pool.fill(block) == 1
    assert pool.stats().held == 1


def test_a_block_starts_empty_whatever_it_held_before():
    pool = KvPool(1, 2)
    pool.release(pool.allocate(2))
    assert pool.fill(0) == 0
    assert pool.fill(pool.allocate()) == 0


def test_a_shared_or_indexed_block_is_immutable():
    pool = KvPool(2, 2)
    shared = pool.allocate(1)
    pool.retain(shared)
    with pytest.raises(KvPoolError, match="2 owners"):
        pool.set_fill(shared, 2)
    pool.release(shared)
    pool.set_fill(shared, 2)
    pool.register(shared, A, None)
    with pytest.raises(KvPoolError, match="prefix index"):
        pool.set_fill(shared, 1)
    assert pool.fill(shared) == 2


@pytest.mark.parametrize("num_tokens", [-1, 2])
def test_a_private_copy_has_what_its_source_has(num_tokens):
    pool = KvPool(2, 2)
    block = pool.allocate(1)
    with pytest.raises(KvPoolError, match=f"num_tokens: {num_tokens}"):
        pool.private_copy(block, num_tokens)
    assert pool.stats() == (2, 1, 0, 1)
    assert pool.take_copies() == []


def test_match_follows_the_exact_tokens_from_the_start():
    pool = KvPool(8, 2)
    table = chain(pool, A, B)
    assert pool.match([*A, *B, *C]) == table
    assert pool.match([*A, *C, 0]) == table[:1]
    assert pool.match([*B, *C]) == []
    assert pool.match([2, 1, *B, 0]) == []  # the same tokens in another order
    assert pool.match([1, 3, *B, 0]) == []  # a block of the same length, its last token another
    assert pool.match([1 + 256, 2, 0]) == []
    check(pool, table)


def test_the_same_tokens_in_another_context_are_another_block():
    pool = KvPool(8, 2)
    first, second = chain(pool, A, C), chain(pool, B, C)
    assert pool.match([*A, *C, 0]) == first
    assert pool.match([*B, *C, 0]) == second
    check(pool, first, second)


def test_a_match_never_covers_the_whole_prompt():
    pool = KvPool(8, 2)
    table = chain(pool, A, B)
    assert [pool.match([*A, *B, *C][:n]) for n in range(7)] == [[], [], [], table[:1], table[:1], table, table]


def test_a_match_is_a_query():
    pool = KvPool(8, 2)
    table = chain(pool, A)
    rollback(pool, table, 0)
    before = pool.stats()
    assert pool.match([*A, 0]) == pool.match([*A, 0]) != []
    assert pool.stats() == before == (8, 7, 1, 0)


def test_salts_do_not_see_each_other():
    pool = KvPool(8, 2)
    plain, red = chain(pool, A, B), chain(pool, A, salt="red")
    assert pool.match([*A, *B, 0]) == plain
    assert pool.match([*A, *B, 0], "red") == red
    assert pool.match([*A, *B, 0], "blue") == pool.match([*A, *B, 0], "") == []
    check(pool, plain, red)


@pytest.mark.parametrize(
    ("tokens", "parent", "message"),
    [
        ([1], None, "1 ids.* exactly 2"),
        ([1, 2, 3], None, "3 ids.* exactly 2"),
        ([1, 2**31], None, "tokens: ids must be integers of 32 bits"),
        ([1, 1.5], None, "tokens: ids must be integers of 32 bits"),
        (A, 3, "parent 3 is not in the prefix index"),
        (A, -1, "parent -1 is not in the prefix index"),
    ],
)
def test_register_refuses_what_could_not_be_matched(tokens, parent, message):
    pool = KvPool(4, 2)
    block = pool.allocate(2)
    with pytest.raises(KvPoolError, match=message):
        pool.register(block, tokens, parent)
    check(pool, [block])
    pool.release(block)
    assert pool.stats().evictable == 0


def test_register_takes_a_full_held_block_once():
    pool = KvPool(4, 2)
    block = pool.allocate(1)
    with pytest.raises(KvPoolError, match="1 of 2 tokens"):
        pool.register(block, A, None)
    pool.set_fill(block, 2)
    pool.register(block, A, None)
    with pytest.raises(KvPoolError, match="already"):
        pool.register(block, B, None)
    assert pool.match([*B, 0]) == []


def test_an_indexed_block_without_owner_is_matched_and_can_be_held_again():
    pool = KvPool(4, 2)
    table = chain(pool, A, B)
    blocks = list(table)
    assert rollback(pool, table, 0) == 2
    assert pool.stats() == (4, 2, 2, 0)
    assert pool.match([*A, *B, 0]) == blocks
    for block in blocks:
        pool.retain(block)
    assert pool.stats() == (4, 2, 0, 2)
    assert [pool.fill(block) for block in blocks] == [2, 2]
    check(pool, blocks)


def test_eviction_is_the_last_resort_and_takes_the_oldest():
    pool = KvPool(4, 2)
    old, new = chain(pool, A), chain(pool, B)
    [old_block], [new_block] = old, new
    rollback(pool, old, 0)
    rollback(pool, new, 0)
    assert {pool.allocate(), pool.allocate()} == {2, 3}
    assert pool.match([*A, 0]) == [old_block]
    assert pool.allocate() == old_block
    assert pool.match([*A, 0]) == []
    assert pool.match([*B, 0]) == [new_block]
    assert pool.allocate() == new_block
    with pytest.raises(OutOfBlocks):
        pool.allocate()


def test_use_makes_a_block_young_again():
    pool = KvPool(2, 2)
    first, second = chain(pool, A), chain(pool, B)
    block = second[0]
    for table in (first[:], second[:]):
        rollback(pool, table, 0)
    pool.retain(first[0])
    pool.release(first[0])
    assert pool.allocate() == block


def test_a_prefix_outlives_its_continuation():
    pool = KvPool(3, 2)
    table = chain(pool, A, B, C)
    first, second, third = table
    rollback(pool, table, 0)
    assert [pool.allocate() for _ in range(3)] == [third, second, first]


def test_evicting_a_prefix_frees_what_continued_it():
    pool = KvPool(4, 2)
    first, second, third = chain(pool, A, B, C)
    for block in (first, second):  # the wrong way round, the third still held
        pool.release(block)
    other = pool.allocate()
    assert pool.allocate() == first  # the oldest; what cannot be reached without it goes too
    assert pool.stats() == (4, 1, 0, 3)
    check(pool, [third], [other], [first])
    pool.release(third)
    assert pool.stats() == (4, 2, 0, 2)
    assert pool.match([*A, *B, *C, 0]) == []


def test_two_blocks_of_one_content_stand_in_for_each_other():
    pool = KvPool(4, 2)
    mine, theirs = chain(pool, A, B), chain(pool, A)
    [first, second], [twin] = mine, theirs
    assert pool.match([*A, *B, 0]) == [first, second]
    rollback(pool, [first], 0)  # only the prefix: its twin keeps the continuation reachable
    pool.allocate()
    assert pool.allocate() == first
    assert pool.match([*A, *B, 0]) == [twin, second]
    pool.set_fill(first, 2)
    pool.register(first, C, second)
    assert pool.match([*A, *B, *C, 0]) == [twin, second, first]
    check(pool, [second], [twin], [3], [first])


def test_forget_all_leaves_owners_and_nothing_to_match():
    pool = KvPool(6, 2)
    held, gone = chain(pool, A, B), chain(pool, C, salt="red")
    rollback(pool, gone, 0)
    partial: list[int] = []
    extend(pool, partial, 1)
    pool.retain(partial[0])
    extend(pool, copy := list(partial), 1)
    pool.forget_all()
    assert pool.take_copies() == []
    assert pool.match([*A, *B, 0]) == pool.match([*C, 0], "red") == []
    assert pool.stats() == (6, 2, 0, 4)
    check(pool, held, partial, copy)
    rollback(pool, held, 0)
    assert pool.stats() == (6, 4, 0, 2)


def test_nothing_of_an_evicted_prefix_survives_without_the_collector():
    def num_nodes():
        return sum(type(thing) is _Node for thing in gc.get_objects())

    gc.collect()
    before = num_nodes()
    gc.disable()
    try:
        pool = KvPool(6, 2)
        for i in range(1000):
            table = chain(pool, [i, i], [i, 0], [i, 1], salt=str(i))
            rollback(pool, table, 0)
        assert num_nodes() - before == 6 + 2  # two roots, each with three blocks
        chain(pool, A)
        pool.forget_all()
        assert num_nodes() == before
    finally:
        gc.enable()


def test_cost_of_an_operation_does_not_grow_with_the_pool():
    """Lines executed, counted, for the same work in a small pool and in one a thousand times its size."""

    def work(pool):
        table = chain(pool, A, B)
        pool.match([*A, *B, 0])
        rollback(pool, table, 0)
        extend(pool, table, 3)
        pool.stats(), pool.check_conservation()
        rollback(pool, table, 0)

    def count(num_blocks):
        pool = KvPool(num_blocks, 2)
        tables = [chain(pool, [7, i]) for i in range(num_blocks)]
        for table in tables[: num_blocks // 2]:
            rollback(pool, table, 0)
        lines = 0

        def trace(frame, event, arg):
            nonlocal lines
            lines += event == "line"
            return trace

        previous = sys.gettrace()
        sys.settrace(trace)
        try:
            work(pool)
        finally:
            sys.settrace(previous)
        return lines

    assert count(10) == count(10_000)


def fresh():
    """A pool with a held and indexed, a held and partial, an evictable and some free blocks, and its tables."""
    pool = KvPool(8, 2)
    indexed, evictable = chain(pool, A, B), chain(pool, C)
    rollback(pool, evictable, 0)
    partial: list[int] = []
    extend(pool, partial, 3)
    return pool, [indexed, partial]


def test_check_accepts_what_is_right():
    pool, tables = fresh()
    check(pool, *tables, [])
    pool.check(iter(tables))
    assert pool.stats() == (8, 3, 1, 4)


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda p, t: t.pop(), "2 blocks miscounted: block"),
        (lambda p, t: t.append(t[0]), "2 blocks miscounted"),
        (lambda p, t: t[0].append(99), "99"),
        (lambda p, t: t[0].append(-1), "-1"),
        (lambda p, t: p.retain(t[0][0]), "has 2 owners and is in 1 tables"),
        (lambda p, t: p.set_fill(t[1][0], 1), "hold 3 tokens, full they hold 4"),
        (lambda p, t: t[1].reverse(), "hold 3 tokens, full they hold 4"),
        (lambda p, t: p._free.append(t[0][0]), "held and also free"),
        (lambda p, t: p._free.append(p._free[0]), "1 blocks are free or evictable twice"),
        (lambda p, t: p._free.append(next(iter(p._evictable))), "1 blocks are free or evictable twice"),
        (lambda p, t: p._free.pop(), r"free 2 \+ evictable 1 \+ held 4 != total 8"),
        (lambda p, t: p._evictable.popitem(), r"free 3 \+ evictable 0 \+ held 4 != total 8"),
        (lambda p, t: setattr(p, "_num_held", 5), "4 blocks have owners, counted as held are 5"),
        (lambda p, t: p._evictable.update({p._free.pop(): None}), "evictable and not indexed"),
        (lambda p, t: p._free.append(p._evictable.popitem()[0]), "free and indexed"),
    ],
)
def test_check_names_the_numbers_that_do_not_add_up(break_it, message):
    pool, tables = fresh()
    break_it(pool, tables)
    with pytest.raises(KvPoolError, match=message):
        pool.check(tables)


@pytest.mark.parametrize("counter", ["_free", "_evictable"])
def test_conservation_is_checked_without_the_tables(counter):
    pool, _ = fresh()
    pool.check_conservation()
    getattr(pool, counter).pop(next(iter(pool._evictable)) if counter == "_evictable" else 0)
    with pytest.raises(KvPoolError, match="!= total 8"):
        pool.check_conservation()


def nodes(pool):
    index = pool._index
    root = index._roots[None]
    first = root.children()[0]
    return index, root, first


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda i, r, n: r.unlink_all(), "malformed"),
        (lambda i, r, n: n.unlink_all(), "knows 3 blocks, 2 can be reached"),
        (lambda i, r, n: setattr(n, "oldest", None), "without a block"),
        (lambda i, r, n: n.add(7), "not known by their node"),
        (lambda i, r, n: setattr(n, "parent", None), "does not know its parent"),
        (lambda i, r, n: setattr(n, "key", b""), "does not know its parent or its tokens"),
        (lambda i, r, n: i._nodes.update({7: n}), "knows 4 blocks, 3 can be reached"),
    ],
)
def test_check_index_finds_what_cannot_be_reached(break_it, message):
    pool, _ = fresh()
    pool.check_index()
    break_it(*nodes(pool))
    with pytest.raises(KvPoolError, match=message):
        pool.check_index()


def test_check_index_finds_a_block_that_is_not_full():
    pool, tables = fresh()
    pool._fills[tables[0][1]] = 1
    with pytest.raises(KvPoolError, match="not full"):
        pool.check_index()

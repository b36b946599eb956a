"""What a sequence does with its block table, a plain list of blocks: grow, and roll back, to nothing at the end.

Position `p` of the sequence is in slot `p % block_tokens` of `table[p // block_tokens]`; every block is full but the
last. All functions change everything they promise or, raising, nothing.
"""

from kvpool.errors import KvPoolError, OutOfBlocks
from kvpool.pool import KvPool, blocks_for


def num_positions(pool: KvPool, table: list[int]) -> int:
    """How many positions the table covers: all its blocks full but the last. O(1)."""
    return pool.block_tokens * (len(table) - 1) + pool.fill(table[-1]) if table else 0


def extend(pool: KvPool, table: list[int], num_tokens: int) -> None:
    """Make room for `num_tokens` more positions, filling the last block before taking new ones.

    A partial last block that another sequence also owns is first traded for a private copy (`KvPool.take_copies`).
    Raises OutOfBlocks, or KvPoolError for a negative `num_tokens`.
    """
    if num_tokens < 0:
        raise KvPoolError(f"num_tokens: {num_tokens}, must be at least 0")
    if num_tokens == 0:
        return
    size = pool.block_tokens
    end = num_positions(pool, table) + num_tokens
    last_fill = pool.fill(table[-1]) if table else size
    has_room = last_fill < size
    must_copy = has_room and pool.is_immutable(table[-1])
    num_new = blocks_for(end, size) - len(table)
    if num_new + must_copy > pool.num_available:
        raise OutOfBlocks(f"{num_new + must_copy} blocks needed, {pool.num_available} are free or evictable")
    if must_copy:
        table[-1] = pool.private_copy(table[-1], last_fill)
    if has_room:
        pool.set_fill(table[-1], min(size, last_fill + num_tokens))
    if num_new:
        table.extend([pool.allocate(size) for _ in range(num_new - 1)])
        table.append(pool.allocate(end - size * len(table)))


def rollback(pool: KvPool, table: list[int], keep: int) -> int:
    """Shorten the table to its first `keep` positions; how many blocks it gave back, one reference each.

    B 4, fills (4, 4, 2), keep 5:   |0123|4567|89..|  ->  |0123|4...|   1 block given back

    A last block that must be shortened and is immutable is traded for a private copy (`KvPool.take_copies`); the
    other owner and the prefix index keep theirs. The tail goes first: of what the prefix index keeps, a continuation is
    then older, and evicted sooner, than the prefix it needs. Raises KvPoolError for `keep` outside `[0, positions]` or
    a table with an unknown, unowned or repeated block, OutOfBlocks where there is no block for the copy.
    """
    pool.require_held(table)
    return shorten(pool, table, keep)


def shorten(pool: KvPool, table: list[int], keep: int) -> int:
    """`rollback` for a table whose blocks are known to be its own: the cost does not grow with the table."""
    length = num_positions(pool, table)
    if not 0 <= keep <= length:
        raise KvPoolError(f"keep: {keep}, must be in [0, {length}]")
    size = pool.block_tokens
    num_kept = blocks_for(keep, size)
    tail = table[num_kept:]
    #   0 ........ keep ........ length
    #   | full | last |  tail   |          `last` has `keep % size` positions left, or is not cut at all
    new_fill = keep - size * (num_kept - 1)
    is_cut = num_kept > 0 and pool.fill(table[num_kept - 1]) != new_fill
    must_copy = is_cut and pool.is_immutable(table[num_kept - 1])
    if must_copy and not pool.num_available and all(pool.ref_count(block) > 1 for block in tail):
        raise OutOfBlocks("a private copy of the last kept block is needed, all blocks are held")
    del table[num_kept:]
    for block in reversed(tail):
        pool.release(block)
    if must_copy:
        table[-1] = pool.private_copy(table[-1], new_fill)
    elif is_cut:
        pool.set_fill(table[-1], new_fill)
    return len(tail)

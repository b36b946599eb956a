"""What the block pool costs: an operation at a million blocks beside a thousand, and the checks beside the work."""

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

from benchmarks.harness import Figure, compare, show
from kvpool import KvPool, Ledger, extend, rollback

BLOCK_TOKENS = 16
NUM_CALLS = 500


def worn(num_blocks: int) -> KvPool:
    """Make a pool of which 600 blocks are free, in random order, a third evictable and the rest held."""
    pool = KvPool(num_blocks, BLOCK_TOKENS)
    blocks = [pool.allocate(BLOCK_TOKENS) for _ in range(num_blocks)]
    random.Random(1).shuffle(blocks)
    for i, block in enumerate(blocks[: num_blocks // 3]):
        pool.register(block, [1_000_000 + i] * BLOCK_TOKENS, None)
        pool.release(block)
    for block in blocks[num_blocks - 600 :]:
        pool.release(block)
    return pool


def take_and_give(pool: KvPool) -> None:
    for block in [pool.allocate() for _ in range(NUM_CALLS)]:
        pool.retain(block)
        pool.release(block)
        pool.release(block)


def grow_and_roll_back(pool: KvPool) -> None:
    table: list[int] = []
    extend(pool, table, 200)
    for _ in range(NUM_CALLS):
        extend(pool, table, 12)
        rollback(pool, table, 200)
    rollback(pool, table, 0)


def index_and_evict(pool: KvPool, fresh: Iterator[int]) -> None:
    while pool.stats().free:
        pool.allocate()
    for _ in range(NUM_CALLS):
        tokens = [next(fresh)] * BLOCK_TOKENS
        pool.match([*tokens, 0])
        block = pool.allocate(BLOCK_TOKENS)
        pool.register(block, tokens, None)
        pool.release(block)


def sizes() -> list[Figure]:
    """Time the pool's operations at a million blocks against the same at a thousand."""
    large, small = worn(1_000_000), worn(1_000)
    return [
        compare(f"{NUM_CALLS} x {name}, 1e6 blocks against 1e3", partial(work, large), partial(work, small), goal="1")
        for name, work in (
            ("allocate, retain, release twice", take_and_give),
            ("extend over a border and roll back", grow_and_roll_back),
            ("match, allocate by eviction, register, release", partial(index_and_evict, fresh=count())),
        )
    ]


def serving() -> Ledger:
    """4,096 blocks, 256 sequences of about 15 blocks, the first three of each a shared prefix."""
    ledger = Ledger(KvPool(4096, BLOCK_TOKENS))
    rng = random.Random(2)
    shared = [rng.randrange(1000) for _ in range(3 * BLOCK_TOKENS)]
    for seq in range(256):
        prompt = shared + [rng.randrange(1000) for _ in range(rng.randrange(150, 230))]
        cached = ledger.admit(seq, prompt, None, len(prompt))
        assert cached is not None, "4,096 blocks are enough"
        ledger.commit(seq, prompt[cached:])
    return ledger


def reserve_and_reject(ledger: Ledger) -> None:
    for seq in range(256):
        ledger.extend(seq, 5)
        ledger.commit(seq, ())


def checks() -> list[Figure]:
    """Time the checks, and one sequence's round in a long table, against the book-keeping of 256 rounds."""
    ledger = serving()
    long = Ledger(KvPool(10_000, BLOCK_TOKENS), prefix_cache=False)
    for seq, num_tokens in enumerate((100, 100_004)):
        long.admit(seq, range(num_tokens), None, num_tokens)
        long.commit(seq, range(num_tokens))

    def rounds(seq: int) -> Callable[[], None]:
        def run() -> None:
            for _ in range(NUM_CALLS):
                long.extend(seq, 5)
                long.commit(seq, ())

        return run

    work = partial(reserve_and_reject, ledger)
    held = ledger.pool.stats().held
    return [
        compare(f"Ledger.check, {held:,} blocks held, against 256 rounds", ledger.check, work, goal="below 1"),
        compare("check_conservation, against 256 rounds", ledger.pool.check_conservation, work, goal="0"),
        compare("check_index, against 256 rounds", ledger.pool.check_index, work, goal="none"),
        compare(f"{NUM_CALLS} rounds at 100,004 cached tokens against 100", rounds(1), rounds(0), goal="1"),
    ]


def main() -> None:
    """Measure and print."""
    show(sizes() + checks())


if __name__ == "__main__":
    main()

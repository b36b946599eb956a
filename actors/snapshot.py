"""A look into the running engine: its sequences, and who holds which block."""

from contextlib import suppress

import msgspec

from kvpool import KvPoolError, Ledger
from scheduler import Scheduler

FREE = -1
EVICTABLE = -2
LEAVING = -3


class SequenceView(msgspec.Struct, frozen=True):
    """A sequence as it stands; token counts."""

    seq: int
    phase: str
    is_paused: bool
    num_prompt: int
    num_cached: int
    num_emitted: int
    num_blocks: int
    num_drafted: int
    num_accepted: int
    num_preemptions: int


class Snapshot(msgspec.Struct, frozen=True):
    """The sequences that have not ended, running ones first, and per block who holds it.

    `owners` has the number of a running sequence that holds the block (the newest, where it is shared), FREE,
    EVICTABLE, or LEAVING where its owner has ended and it is about to come back. `shared` lists the blocks with two
    owners or more. Only the first blocks of a large pool may be there.
    """

    sequences: list[SequenceView]
    num_sequences: int
    owners: list[int]
    shared: list[int]


def take_snapshot(core: Scheduler, ledger: Ledger, max_sequences: int, max_blocks: int) -> Snapshot:
    """Read scheduler and ledger between two messages; describe at most so many sequences and blocks."""
    pool = ledger.pool
    owners = [
        LEAVING if pool.ref_count(block) else EVICTABLE if pool.fill(block) else FREE
        for block in range(min(pool.num_blocks, max_blocks))
    ]
    tables: dict[int, list[int]] = {}
    for seq in sorted(core.running):
        with suppress(KvPoolError):  # the block manager has just been restarted, and the scheduler not yet
            tables[seq] = ledger.table(seq)
    for seq, table in tables.items():
        for block in table:
            if block < max_blocks:
                owners[block] = seq
    live = core.live()
    sequences = [
        SequenceView(
            s.seq,
            str(s.state),
            s.is_paused,
            s.prompt_len,
            s.cached,
            s.num_emitted,
            len(tables.get(s.seq, ())),
            s.num_drafted,
            s.num_accepted,
            s.num_preemptions,
        )
        for s in live[:max_sequences]
    ]
    held = {block for table in tables.values() for block in table if block < max_blocks}
    return Snapshot(sequences, len(live), owners, [block for block in held if pool.ref_count(block) > 1])

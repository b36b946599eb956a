"""A look into the running engine: its sequences, and who holds which block."""

from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

import msgspec

from kvpool import KvPoolError, Ledger
from scheduler import Sequence

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


class Ownership(NamedTuple):
    """Who holds which of the first blocks, as in `Snapshot`, and how many each of the sequences asked for has."""

    owners: list[int]
    shared: list[int]
    num_blocks: dict[int, int]


def ownership(ledger: Ledger, seqs: Iterable[int], max_blocks: int) -> Ownership:
    """Read the tables of running sequences between two messages; describe at most so many blocks."""
    pool = ledger.pool
    owners = [
        LEAVING if pool.ref_count(block) else EVICTABLE if pool.fill(block) else FREE
        for block in range(min(pool.num_blocks, max_blocks))
    ]
    num_blocks: dict[int, int] = {}
    held: set[int] = set()
    for seq in sorted(seqs):
        with suppress(KvPoolError):  # the block manager has just been restarted, and the scheduler not yet
            table = ledger.table(seq)
            num_blocks[seq] = len(table)
            described = [block for block in table if block < max_blocks]
            held.update(described)
            for block in described:
                owners[block] = seq
    return Ownership(owners, [block for block in held if pool.ref_count(block) > 1], num_blocks)


def view(sequence: Sequence, num_blocks: int) -> SequenceView:
    """Describe a sequence that holds so many blocks."""
    return SequenceView(
        sequence.seq,
        str(sequence.state),
        sequence.is_paused,
        sequence.prompt_len,
        sequence.cached,
        sequence.num_emitted,
        num_blocks,
        sequence.num_drafted,
        sequence.num_accepted,
        sequence.num_preemptions,
    )

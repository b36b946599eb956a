"""Who comes in: the arithmetic of admission, where what is cached, by whom it is held, and what is free are known."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from kvpool.ledger import Ledger
from kvpool.prefix import Salt


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A sequence that asks to come in: its context, whom it may share a prefix with, and the blocks it will need.

    It may send away the first `num_victims` of those that could give way.
    """

    seq: int
    tokens: Sequence[int]
    salt: Salt
    num_blocks: int
    num_victims: int


class Victim(msgspec.Struct, frozen=True, gc=False):
    """A sequence that holds a place and could give way; the blocks that are spoken for on its behalf."""

    seq: int
    num_promised: int


def admit(
    ledger: Ledger, candidates: Sequence[Candidate], victims: Sequence[Victim], num_places: int, num_promised: int
) -> tuple[list[int | None], list[int]]:
    """Admit candidates in order until one does not fit: per candidate its cached tokens or None, and who gave way.

    One fits if a place is free (`num_places`), and its blocks are available beside the `num_promised` that those who
    hold a place are still to take. A cached block that somebody holds costs it nothing; one without an owner is
    available no longer. Victims are released in order, no more than it takes, and only for one who then fits.
    """
    cached: list[int | None] = [None] * len(candidates)
    num_gone = 0
    for i, candidate in enumerate(candidates):
        found = _num_to_release(ledger, candidate, victims[num_gone : candidate.num_victims], num_places, num_promised)
        if found is None:
            break
        for victim in victims[num_gone : num_gone + found]:
            ledger.release(victim.seq)
            num_promised -= victim.num_promised
        num_gone += found
        num_places += found - 1
        cached[i] = ledger.admit(candidate.seq, candidate.tokens, candidate.salt, 0)
        num_promised += candidate.num_blocks - len(ledger.table(candidate.seq))
    return cached, [victim.seq for victim in victims[:num_gone]]


def _num_to_release(
    ledger: Ledger, candidate: Candidate, victims: Sequence[Victim], num_places: int, num_promised: int
) -> int | None:
    """How many of the victims have to go so that the candidate fits; None where all would not do."""
    pool = ledger.pool
    table = ledger.match(candidate.tokens, candidate.salt)
    gone: Counter[int] = Counter()  # references that would go with the victims
    num_available = pool.num_available
    for num_released in range(len(victims) + 1):
        num_revived = sum(pool.ref_count(block) == gone[block] for block in table)
        num_needed = candidate.num_blocks - len(table) + num_revived + num_promised
        if num_places + num_released > 0 and num_needed <= num_available:
            return num_released
        for victim in victims[num_released : num_released + 1]:
            for block in ledger.table(victim.seq):
                gone[block] += 1
                num_available += gone[block] == pool.ref_count(block)
            num_promised -= victim.num_promised
    return None

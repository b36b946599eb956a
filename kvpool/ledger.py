"""The block tables of all sequences, and what happens to them in the life of a request.

admit (match the prefix, make room) -> [extend -> a pass of the model -> commit]* -> release

    0 ........ cached ........ reserved
    | kept, known  | what the pass writes |      commit keeps a prefix of the right part and gives back the rest
"""

from collections.abc import Sequence

from kvpool.errors import KvPoolError, OutOfBlocks
from kvpool.pool import KvPool, blocks_for
from kvpool.prefix import Salt
from kvpool.table import extend, rollback, shorten


class _Sequence:
    """One sequence's table and how far it is cached, reserved and indexed."""

    __slots__ = ("cached", "reserved", "salt", "table", "unindexed")

    def __init__(self, table: list[int], cached: int, salt: Salt) -> None:
        self.table = table
        self.cached = cached  # positions that are kept
        self.reserved = cached  # positions the table has room for
        self.salt = salt
        self.unindexed: list[int] = []  # the cached tokens past the indexed blocks


class _Sequences(dict[int, _Sequence]):
    """The sequences that hold blocks, by their ids."""

    def __missing__(self, seq: int) -> _Sequence:
        raise KvPoolError(f"seq: {seq} holds no blocks")


class Ledger:
    """Every sequence's block table by the sequence's id, over one pool whose references it alone takes and gives.

    The cost of a call grows with the tokens and blocks it is about, never with what the sequence has cached. A
    method that needs a sequence raises KvPoolError for an id that was not admitted.
    """

    def __init__(self, pool: KvPool, prefix_cache: bool = True) -> None:
        self.pool = pool
        self._prefix_cache = prefix_cache
        self._sequences = _Sequences()

    def admit(self, seq: int, prompt: Sequence[int], salt: Salt, num_tokens: int) -> int | None:
        """Give `seq` the longest cached prefix of `prompt` and room for `num_tokens` more, at most to its end.

        How many tokens were cached (always fewer than the prompt has), or None, with nothing changed, where blocks
        do not suffice. Raises KvPoolError for an id that is held already, an empty prompt or a negative number.
        """
        if seq in self._sequences:
            raise KvPoolError(f"seq: {seq} was admitted already")
        if not len(prompt):
            raise KvPoolError("prompt: it is empty, one token at least is needed")
        if num_tokens < 0:
            raise KvPoolError(f"num_tokens: {num_tokens}, must be at least 0")
        pool = self.pool
        table = self.match(prompt, salt)
        cached = len(table) * pool.block_tokens
        num_tokens = min(num_tokens, len(prompt) - cached)
        # Matched blocks without an owner count as available now, and no longer once they are retained.
        num_revived = sum(pool.ref_count(block) == 0 for block in table)
        num_new = blocks_for(cached + num_tokens, pool.block_tokens) - len(table)
        if num_new + num_revived > pool.num_available:
            return None
        for block in table:
            pool.retain(block)
        sequence = self._sequences[seq] = _Sequence(table, cached, salt)
        self._reserve(sequence, num_tokens)
        return cached

    def match(self, tokens: Sequence[int], salt: Salt) -> list[int]:
        """Find the cached blocks that `tokens` would be admitted with."""
        return self.pool.match(tokens, salt) if self._prefix_cache else []

    def extend(self, seq: int, num_tokens: int) -> bool:
        """Make room for `num_tokens` more positions; False, with nothing changed, where blocks do not suffice."""
        if num_tokens < 0:
            raise KvPoolError(f"num_tokens: {num_tokens}, must be at least 0")
        try:
            self._reserve(self._sequences[seq], num_tokens)
        except OutOfBlocks:
            return False
        return True

    def commit(self, seq: int, tokens: Sequence[int], covered: int | None = None) -> int:
        """Keep `tokens`, written after the cached ones, and give back all room past them; the blocks given back.

        `tokens` are what the pass fed and the verification kept, in order (none undoes the reservation). A block
        that they make full is in the prefix index from here on, or, where a proposer keeps state beside the KV, from
        when the first `covered` positions that it has written include the block: a hit brings both. Raises
        KvPoolError for more tokens than had room.
        """
        sequence = self._sequences[seq]
        length = sequence.cached + len(tokens)
        if length > sequence.reserved:
            raise KvPoolError(f"tokens: {len(tokens)}, room was made for {sequence.reserved - sequence.cached}")
        num_released = 0
        if length != sequence.reserved and not self._set_end(sequence, length):
            num_released = shorten(self.pool, sequence.table, length)
        sequence.cached = sequence.reserved = length
        if self._prefix_cache:
            self._index(sequence, tokens, length if covered is None else min(covered, length))
        return num_released

    def release(self, seq: int) -> int:
        """Forget `seq` and give its blocks back; how many references that were, 0 for an id that holds nothing."""
        sequence = self._sequences.pop(seq, None)
        return 0 if sequence is None else rollback(self.pool, sequence.table, 0)

    def table(self, seq: int) -> list[int]:
        """Copy the block table of `seq`."""
        return self._sequences[seq].table.copy()

    def cached(self, seq: int) -> int:
        """Positions of `seq` that are kept, as of the last commit."""
        return self._sequences[seq].cached

    def forget_all(self) -> None:
        """Release every sequence and clear the prefix index: the memory behind all blocks was lost."""
        for seq in list(self._sequences):
            self.release(seq)
        self.pool.forget_all()

    def check(self) -> None:
        """Raise KvPoolError unless the tables explain the pool's counts and each fits its sequence's length.

        What is kept is never cut, so no block that others may read is written to, and nobody carries out a copy.
        """
        if num_owed := self.pool.num_copies_owed:
            raise KvPoolError(f"{num_owed} copies of shared blocks are owed: a sequence was cut into what is kept")
        self.pool.check([sequence.table for sequence in self._sequences.values()])
        size, fill = self.pool.block_tokens, self.pool.fill
        for seq, sequence in self._sequences.items():
            table, reserved = sequence.table, sequence.reserved
            if not table and not reserved:
                continue
            if not table or not 0 < fill(table[-1]) == reserved - size * (len(table) - 1):
                raise KvPoolError(f"sequence {seq}: {len(table)} blocks do not fit {reserved} positions")

    def _reserve(self, sequence: _Sequence, num_tokens: int) -> None:
        if not self._set_end(sequence, sequence.reserved + num_tokens):
            extend(self.pool, sequence.table, num_tokens)
        sequence.reserved += num_tokens

    def _set_end(self, sequence: _Sequence, end: int) -> bool:
        """Let the table end at `end` where that only moves the fill of its last block: most rounds are of that kind."""
        table = sequence.table
        size = self.pool.block_tokens
        fill = end - size * (len(table) - 1)
        if not table or not 0 < fill <= size or end == sequence.reserved:
            return False
        self.pool.set_fill(table[-1], fill)
        return True

    def _index(self, sequence: _Sequence, tokens: Sequence[int], end: int) -> None:
        """Register the blocks that are full up to `end`, where only `tokens` are new."""
        size = self.pool.block_tokens
        unindexed = sequence.unindexed
        unindexed.extend(tokens)
        if len(unindexed) < size:
            return
        #   0 ........ start ........ end ........ cached
        #   | indexed  |-- unindexed tokens -------|         `start` is where a block begins
        start = sequence.cached - len(unindexed)
        num_full = max(0, end - start) // size
        first = start // size
        for i in range(num_full):
            parent = sequence.table[first + i - 1] if first + i else None
            block_ids = unindexed[i * size : (i + 1) * size]
            self.pool.register(sequence.table[first + i], block_ids, parent, sequence.salt)
        del unindexed[: num_full * size]

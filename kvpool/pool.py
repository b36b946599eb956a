"""The block pool: who holds which block of KV memory, how full it is, and which free ones are worth keeping.

free --allocate--> held --release--> free, or evictable when the prefix index knows the block
evictable --retain--> held;  evictable --allocate, when nothing is free--> held with other content
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from kvpool.errors import KvPoolError, OutOfBlocks
from kvpool.prefix import PrefixIndex, Salt


class PoolStats(NamedTuple):
    """Blocks by state. `free + evictable + held == total`."""

    total: int
    free: int
    evictable: int
    held: int


class BlockCopy(NamedTuple):
    """The first `num_tokens` slots of block `source` are to be written to block `destination`."""

    source: int
    destination: int
    num_tokens: int


def blocks_for(tokens: int, block_tokens: int) -> int:
    """How many blocks of `block_tokens` slots `tokens` positions take."""
    return -(-tokens // block_tokens)


class KvPool:
    """`num_blocks` blocks of `block_tokens` slots each. Every operation on a block is O(1) in the pool's size.

    A block with two owners, or one the prefix index knows, is immutable. Raises KvPoolError for a pool without
    blocks or slots.
    """

    def __init__(self, num_blocks: int, block_tokens: int) -> None:
        if num_blocks < 1:
            raise KvPoolError(f"num_blocks: {num_blocks}, must be at least 1")
        if block_tokens < 1:
            raise KvPoolError(f"block_tokens: {block_tokens}, must be at least 1")
        self.num_blocks = num_blocks
        self.block_tokens = block_tokens
        #   arrays: an audit looks at all of them at once, and a block costs twelve bytes
        self._refs = array("i", bytes(4 * num_blocks))
        self._fills = array("i", bytes(4 * num_blocks))
        self._num_held = 0
        self._free = array("i", range(num_blocks - 1, -1, -1))  # the last one released is the first one out
        self._evictable: OrderedDict[int, None] = OrderedDict()  # oldest first
        self._index = PrefixIndex(block_tokens)
        self._indexed = self._index.blocks()  # a view
        self._copies: list[BlockCopy] = []

    # Owners and fills.

    @property
    def num_available(self) -> int:
        """How many times `allocate` would succeed now."""
        return len(self._free) + len(self._evictable)

    def allocate(self, fill: int = 0) -> int:
        """Take a block, with one owner and `fill` filled slots: a free one, else the oldest evictable one.

        Raises OutOfBlocks where there is neither, KvPoolError for a fill outside `[0, block_tokens]`.
        """
        self._require_fill(fill)
        if not self._free:
            self._evict_oldest()
        block = self._free.pop()
        self._refs[block] = 1
        self._fills[block] = fill
        self._num_held += 1
        return block

    def retain(self, block: int) -> None:
        """Add an owner. An evictable block becomes held again. Raises KvPoolError for an unknown or free block."""
        self._require_known(block)
        if self._refs[block]:
            self._refs[block] += 1
        elif block in self._evictable:
            del self._evictable[block]
            self._refs[block] = 1
            self._num_held += 1
        else:
            raise KvPoolError(f"block {block} is free, it cannot be retained")

    def release(self, block: int) -> None:
        """Take an owner away; the last one leaves the block free, or evictable if the prefix index knows it.

        Raises KvPoolError for an unknown block or one without an owner.
        """
        self._require_held(block)
        self._refs[block] -= 1
        if self._refs[block]:
            return
        self._num_held -= 1
        if block in self._indexed:
            self._evictable[block] = None
        else:
            self._set_free(block)

    def ref_count(self, block: int) -> int:
        """How many owners the block has. Raises KvPoolError for an unknown block."""
        self._require_known(block)
        return self._refs[block]

    def fill(self, block: int) -> int:
        """How many of the block's slots hold a position, 0 for a free block. Raises KvPoolError for an unknown one."""
        self._require_known(block)
        return self._fills[block]

    def set_fill(self, block: int, n: int) -> None:
        """Say how many slots are filled. Raises KvPoolError where `n` is out of range or the block is immutable."""
        if not 0 <= block < self.num_blocks or self._refs[block] != 1 or block in self._indexed:
            self._require_held(block)
            reason = "the prefix index knows it" if block in self._indexed else f"it has {self._refs[block]} owners"
            raise KvPoolError(f"block {block} is immutable: {reason}")
        self._require_fill(n)
        self._fills[block] = n

    def is_immutable(self, block: int) -> bool:
        """Whether the block has two owners or the prefix index knows it."""
        return self._refs[block] > 1 or block in self._indexed

    def require_held(self, blocks: Sequence[int]) -> None:
        """Raise KvPoolError unless every block is known, held and named once."""
        if not blocks:
            return
        if min(blocks) < 0 or max(blocks) >= self.num_blocks:
            unknown = next(block for block in blocks if not 0 <= block < self.num_blocks)
            raise KvPoolError(f"block {unknown} is unknown, the pool has 0 to {self.num_blocks - 1}")
        if not all(map(self._refs.__getitem__, blocks)):
            raise KvPoolError(f"block {next(block for block in blocks if not self._refs[block])} has no owner")
        if len(set(blocks)) != len(blocks):
            raise KvPoolError("a block is in the table twice")

    # Copy on write.

    def private_copy(self, block: int, num_tokens: int) -> int:
        """Trade an owner's reference to `block` for a new block that is to hold its first `num_tokens` slots.

        The copy is owed from now on, see `take_copies`. Raises OutOfBlocks, or KvPoolError where `block` has no
        owner or fewer tokens.
        """
        self._require_held(block)
        if not 0 <= num_tokens <= self._fills[block]:
            raise KvPoolError(f"num_tokens: {num_tokens}, must be in [0, {self._fills[block]}]")
        destination = self.allocate(num_tokens)
        self._copies.append(BlockCopy(block, destination, num_tokens))
        self.release(block)
        return destination

    @property
    def num_copies_owed(self) -> int:
        """Copies that `take_copies` would hand over."""
        return len(self._copies)

    def take_copies(self) -> list[BlockCopy]:
        """Hand over the copies owed since the last call, in the order they were asked for.

        The caller must carry them out in order and before the model's next pass. A source may have been released
        and even handed out again by then. Its slots are intact all the same: only a pass, which comes later, or a
        copy that was asked for later, writes to a block.
        """
        copies, self._copies = self._copies, []
        return copies

    # The prefix index.

    def register(self, block: int, tokens: Sequence[int], parent: int | None, salt: Salt = None) -> None:
        """Let `block` be found by its `block_tokens` tokens, after those of `parent`, its predecessor in the table.

        The first block of a sequence has no parent, and `salt` says which requests may share it. Raises KvPoolError
        unless the block is held, full and not indexed yet, and its parent is indexed.
        """
        self._require_held(block)
        if self._fills[block] != self.block_tokens:
            raise KvPoolError(f"block {block} holds {self._fills[block]} of {self.block_tokens} tokens, must be full")
        self._index.add(block, tokens, parent, salt)

    def match(self, tokens: Sequence[int], salt: Salt = None) -> list[int]:
        """Find the longest indexed chain of blocks for `tokens`, always leaving one token or more to feed.

        A query: whoever wants the blocks retains them before anything else is allocated.
        """
        return self._index.match(tokens, salt)

    def forget_all(self) -> None:
        """Clear the index after the memory behind it was lost: evictable blocks are free, no copy is owed."""
        self._index.clear()
        self._copies.clear()
        while self._evictable:
            self._set_free(self._evictable.popitem(last=False)[0])

    # The books.

    def stats(self) -> PoolStats:
        """Blocks by state, from independently kept counts."""
        return PoolStats(self.num_blocks, len(self._free), len(self._evictable), self._num_held)

    def check_conservation(self) -> None:
        """Raise KvPoolError unless `free + evictable + held == total`. O(1)."""
        total, free, evictable, held = self.stats()
        if free + evictable + held != total:
            raise KvPoolError(f"free {free} + evictable {evictable} + held {held} != total {total}")

    def check(self, tables: Iterable[Sequence[int]]) -> None:
        """Raise KvPoolError unless `tables`, all the tables there are, explain every count the pool keeps.

        Conservation; owners of a block == tables it is in; all blocks of a table full but the last; no block in two
        states; every evictable block indexed and no free one. O(blocks); `check_index` walks the index itself.
        """
        tables = list(tables)
        listed = list(chain.from_iterable(tables))
        self._check_owners(listed)
        self._check_fills(listed, [table[-1] for table in tables if table])
        self._check_states()
        self.check_conservation()

    def check_index(self) -> None:
        """Raise KvPoolError unless every indexed block is full and can be reached from a root. O(blocks indexed)."""
        self._index.check()
        partial = [block for block in self._index.blocks() if self._fills[block] != self.block_tokens]
        if partial:
            raise KvPoolError(f"blocks {partial} are in the prefix index and not full")

    def _check_owners(self, listed: list[int]) -> None:
        ids = np.array(listed, np.intp)
        if len(ids) and (ids.min() < 0 or ids.max() >= self.num_blocks):
            raise KvPoolError(f"a table holds block {ids.min()} or {ids.max()}, the pool has {self.num_blocks}")
        counts = np.bincount(ids, minlength=self.num_blocks)
        is_wrong = counts != np.frombuffer(self._refs, np.intc)
        if is_wrong.any():
            block = int(is_wrong.argmax())
            raise KvPoolError(
                f"{is_wrong.sum()} blocks miscounted: "
                f"block {block} has {self._refs[block]} owners and is in {counts[block]} tables"
            )

    def _check_fills(self, listed: list[int], last: list[int]) -> None:
        # No fill exceeds a block, so the sum is at its maximum only if every block before a table's last is full.
        filled = sum(map(self._fills.__getitem__, listed)) - sum(map(self._fills.__getitem__, last))
        if filled != self.block_tokens * (len(listed) - len(last)):
            raise KvPoolError(
                f"{len(listed) - len(last)} blocks before the last of their table hold {filled} tokens, "
                f"full they hold {self.block_tokens * (len(listed) - len(last))}"
            )

    def _check_states(self) -> None:
        refs = np.frombuffer(self._refs, np.intc)
        free = np.array(self._free, np.intc)  # a copy: an array cannot grow while it is looked into
        #   their order is of no matter here, and without it an ordered dictionary is gone over as fast as a plain one
        evictable = np.fromiter(dict.__iter__(self._evictable), np.intp, len(self._evictable))
        is_idle = np.zeros(self.num_blocks, bool)
        is_idle[free] = True
        is_idle[evictable] = True
        num_idle, num_named = int(np.count_nonzero(is_idle)), self.num_available
        if num_idle != num_named:
            raise KvPoolError(f"{num_named - num_idle} blocks are free or evictable twice")
        if (is_idle & (refs != 0)).any():
            raise KvPoolError("a block is held and also free or evictable")
        num_held = int(np.count_nonzero(refs))
        if num_held != self._num_held:
            raise KvPoolError(f"{num_held} blocks have owners, counted as held are {self._num_held}")
        known = self._index.blocks()
        is_indexed = np.zeros(self.num_blocks, bool)
        is_indexed[np.fromiter(known, np.intp, len(known))] = True
        if not is_indexed[evictable].all():
            raise KvPoolError(f"blocks {evictable[~is_indexed[evictable]].tolist()} are evictable and not indexed")
        if is_indexed[free].any():
            raise KvPoolError(f"blocks {free[is_indexed[free]].tolist()} are free and indexed")

    def _evict_oldest(self) -> None:
        if not self._evictable:
            raise OutOfBlocks(f"all {self.num_blocks} blocks are held")
        oldest, _ = self._evictable.popitem(last=False)
        # What continued the evicted block can be matched no more. Of that, what nobody owns is plain free.
        for block in self._index.discard(oldest):
            if not self._refs[block]:
                del self._evictable[block]
                self._set_free(block)
        self._set_free(oldest)

    def _set_free(self, block: int) -> None:
        self._fills[block] = 0
        self._free.append(block)

    def _require_known(self, block: int) -> None:
        if not 0 <= block < self.num_blocks:
            raise KvPoolError(f"block {block} is unknown, the pool has 0 to {self.num_blocks - 1}")

    def _require_held(self, block: int) -> None:
        self._require_known(block)
        if not self._refs[block]:
            raise KvPoolError(f"block {block} has no owner")

    def _require_fill(self, fill: int) -> None:
        if not 0 <= fill <= self.block_tokens:
            raise KvPoolError(f"fill: {fill}, must be in [0, {self.block_tokens}]")

"""Mistakes to plant in the pool, its prefix index, the tables and the ledger."""

from tests.mutants.mutant import Mutant

POOL, PREFIX, TABLE, LEDGER = "kvpool/pool.py", "kvpool/prefix.py", "kvpool/table.py", "kvpool/ledger.py"
TESTS = tuple(f"tests/kvpool/test_{name}.py" for name in ("rollback", "pool", "ledger"))


def mutant(name: str, path: str, old: str, new: str) -> Mutant:
    return Mutant(name, path, old, new, TESTS)


MUTANTS = [
    mutant(
        "release the partial last block with the tail",
        TABLE,
        "num_kept = blocks_for(keep, size)",
        "num_kept = keep // size",
    ),
    mutant(
        "keep the blocks of rejected drafts",
        LEDGER,
        "num_released = shorten(self.pool, sequence.table, length)",
        "num_released = shorten(self.pool, sequence.table, sequence.reserved)",
    ),
    mutant(
        "leave the fill of the last kept block as it was",
        TABLE,
        "    elif is_cut:\n        pool.set_fill(table[-1], new_fill)\n",
        "",
    ),
    mutant(
        "shorten a shared block in place",
        TABLE,
        "must_copy = is_cut and pool.is_immutable(table[num_kept - 1])",
        "must_copy = False",
    ),
    mutant(
        "copy a whole block where part of it is kept",
        POOL,
        "BlockCopy(block, destination, num_tokens)",
        "BlockCopy(block, destination, self._fills[block])",
    ),
    mutant("copy without giving the shared block back", POOL, "        self.release(block)\n", ""),
    mutant(
        "write into a partial block that another owns too",
        TABLE,
        "must_copy = has_room and pool.is_immutable(table[-1])",
        "must_copy = False",
    ),
    mutant(
        "forget that the copy takes a block",
        TABLE,
        "if num_new + must_copy > pool.num_available:",
        "if num_new > pool.num_available:",
    ),
    mutant(
        "roll back a table without looking at its blocks",
        TABLE,
        "    pool.require_held(table)\n",
        "",
    ),
    mutant("release the prefix before its continuation", TABLE, "in reversed(tail)", "in tail"),
    mutant(
        "let an indexed block be changed",
        POOL,
        "return self._refs[block] > 1 or block in self._indexed",
        "return self._refs[block] > 1",
    ),
    mutant(
        "let the fill of an indexed block be changed",
        POOL,
        "self._refs[block] != 1 or block in self._indexed:",
        "self._refs[block] != 1:",
    ),
    mutant(
        "let the fill of a block with two owners be changed",
        POOL,
        "self._refs[block] != 1 or block in self._indexed:",
        "not self._refs[block] or block in self._indexed:",
    ),
    mutant(
        "let a block with two owners be changed",
        POOL,
        "return self._refs[block] > 1 or block in self._indexed",
        "return block in self._indexed",
    ),
    mutant("free an indexed block at once", POOL, "self._evictable[block] = None", "self._set_free(block)"),
    mutant(
        "evict the youngest",
        POOL,
        "oldest, _ = self._evictable.popitem(last=False)",
        "oldest, _ = self._evictable.popitem()",
    ),
    mutant("evict before the free ones are gone", POOL, "if not self._free:", "if self._evictable or not self._free:"),
    mutant("keep the index entry of an evicted block", PREFIX, "        node.remove(block)\n", ""),
    mutant(
        "keep what continued an evicted block",
        PREFIX,
        "            stack.extend(node.unlink_all())\n",
        "",
    ),
    mutant(
        "free what continued an evicted block though it is held",
        POOL,
        "            if not self._refs[block]:\n                del self._evictable[block]\n",
        "            if self._evictable.pop(block, None) is None:\n",
    ),
    mutant(
        "leave a revived block evictable",
        POOL,
        "            del self._evictable[block]\n            self._refs",
        "            self._refs",
    ),
    mutant(
        "count a revived block as not held",
        POOL,
        "            self._refs[block] = 1\n            self._num_held += 1\n",
        "            self._refs[block] = 1\n",
    ),
    mutant(
        "match the whole prompt", PREFIX, "range(0, len(tokens) - size, size)", "range(0, len(tokens) - size + 1, size)"
    ),
    mutant(
        "match whatever the salt",
        PREFIX,
        "        root = self._roots.get(salt)\n",
        "        salt = None\n        root = self._roots.get(salt)\n",
    ),
    mutant(
        "tell blocks apart by all tokens but the last",
        PREFIX,
        'return array("i", tokens).tobytes()',
        'return array("i", tokens).tobytes()[:-4]',
    ),
    mutant(
        "tell blocks apart by the sum of their tokens",
        PREFIX,
        'return array("i", tokens).tobytes()',
        'return str(sum(array("i", tokens))).encode()',
    ),
    mutant(
        "tell tokens apart by their lowest byte",
        PREFIX,
        'return array("i", tokens).tobytes()',
        'return array("i", tokens).tobytes()[::4]',
    ),
    mutant(
        "hang every block under the root",
        PREFIX,
        "self._root(salt) if parent is None else self._nodes[parent]",
        "self._root(salt)",
    ),
    mutant("overlook all children but the first", PREFIX, "self._others.get(key)", "None"),
    mutant("keep empty roots", PREFIX, "            del self._roots[above.key]", "            pass"),
    mutant("leave dropped nodes linked in cycles", PREFIX, "        self._child = self._others = None\n", ""),
    mutant(
        "forget all children with the first",
        PREFIX,
        "            self._child = None\n        else",
        "            self._child = self._others = None\n        else",
    ),
    mutant(
        "index a partial block",
        POOL,
        "if self._fills[block] != self.block_tokens:\n            raise",
        "if self._fills[block] > self.block_tokens:\n            raise",
    ),
    mutant(
        "leave evictable blocks behind when memory is lost",
        POOL,
        "while self._evictable:",
        "while len(self._evictable) > 1:",
    ),
    mutant("owe copies of lost memory", POOL, "        self._copies.clear()\n", ""),
    mutant(
        "admit without counting the matched blocks that are evictable",
        LEDGER,
        "if num_new + num_revived > pool.num_available:",
        "if num_new > pool.num_available:",
    ),
    mutant(
        "index blocks when room is made for them",
        LEDGER,
        "        sequence.reserved += num_tokens\n",
        "        sequence.reserved += num_tokens\n        self._index(sequence, [0] * num_tokens, sequence.reserved)\n",
    ),
    mutant(
        "index a committed block one place too far",
        LEDGER,
        "first = start // size",
        "first = start // size + 1",
    ),
    mutant(
        "index blocks that a proposer has not written yet",
        LEDGER,
        "length if covered is None else min(covered, length)",
        "length",
    ),
    mutant(
        "index blocks that a proposer wrote and nobody kept",
        LEDGER,
        "length if covered is None else min(covered, length)",
        "length if covered is None else covered",
    ),
    mutant(
        "drop the tokens of a block that is not full yet",
        LEDGER,
        "        del unindexed[: num_full * size]\n",
        "        unindexed.clear()\n",
    ),
    mutant(
        "release without forgetting the sequence", LEDGER, "self._sequences.pop(seq, None)", "self._sequences.get(seq)"
    ),
    mutant("admit an id twice", LEDGER, "if seq in self._sequences:", "if seq in self._sequences and not prompt:"),
    mutant(
        "keep the tables when memory is lost",
        LEDGER,
        "            self.release(seq)\n",
        "            self.cached(seq)\n",
    ),
    mutant(
        "keep more than there was room for",
        LEDGER,
        "        if length > sequence.reserved:\n",
        "        if False:\n",
    ),
    mutant(
        "leave an empty block at the end of a table",
        LEDGER,
        "        if not table or not 0 < fill <= size or end == sequence.reserved:\n",
        "        if not table or not 0 <= fill <= size or end == sequence.reserved:\n",
    ),
    mutant(
        "find a block that was given back, where a twin of it is left",
        PREFIX,
        "            self.oldest = next(iter(self.younger))\n",
        "",
    ),
    mutant(
        "forget a content whose twin is still there",
        PREFIX,
        "        if node.oldest is not None:\n            return []\n",
        "",
    ),
    mutant(
        "leave a root behind when its last child has gone",
        PREFIX,
        "        if above.parent is None and not above.has_children:\n",
        "        if False:\n",
    ),
    mutant(
        "overlook a table that does not fit its length",
        LEDGER,
        "            if not table or not 0 < fill(table[-1]) == reserved - size * (len(table) - 1):\n",
        "            if not table:\n",
    ),
    mutant(
        "overlook blocks before the last that are not full",
        POOL,
        "        if filled != self.block_tokens * (len(listed) - len(last)):\n",
        "        if False:\n",
    ),
    mutant(
        "overlook a block that is free twice",
        POOL,
        "        if num_idle != num_named:\n",
        "        if False:\n",
    ),
    mutant(
        "admit an id that is held already",
        LEDGER,
        "        if seq in self._sequences:\n            raise",
        "        if False:\n            raise",
    ),
]

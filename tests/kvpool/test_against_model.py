"""The pool against a naive model of it, in any order of calls, with memory that is really written and copied."""

from collections import Counter
from itertools import chain

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvpool import KvPool, OutOfBlocks, blocks_for, extend, rollback

TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=9)
PICK = st.integers(0, 99)
SALTS = st.sampled_from([None, "red"])


class NaivePool:
    """Blocks by state in plain lists, and the prefix index as a list of (salt, all tokens up to here, block)."""

    def __init__(self, num_blocks):
        self.owners = Counter()
        self.free = set(range(num_blocks))
        self.evictable = []
        self.entries = []

    def known(self, block):
        return any(block == entry[2] for entry in self.entries)

    def available(self):
        return len(self.free) + len(self.evictable)

    def take(self, block):
        if not self.free:
            self.evict(self.evictable.pop(0))
        assert block in self.free
        self.free.remove(block)
        self.owners[block] = 1

    def evict(self, block):
        [(salt, tokens, _)] = [entry for entry in self.entries if entry[2] == block]
        self.entries = [entry for entry in self.entries if entry[2] != block]
        self.free.add(block)
        if not any(entry[:2] == (salt, tokens) for entry in self.entries):
            lost = [e for e in self.entries if e[0] == salt and e[1][: len(tokens)] == tokens]
            self.entries = [e for e in self.entries if e not in lost]
            for _, _, other in lost:
                if not self.owners[other]:
                    self.evictable.remove(other)
                    self.free.add(other)

    def retain(self, block):
        if not self.owners[block]:
            self.evictable.remove(block)
        self.owners[block] += 1

    def release(self, block):
        self.owners[block] -= 1
        if not self.owners[block]:
            if self.known(block):
                self.evictable.append(block)
            else:
                self.free.add(block)

    def match(self, tokens, salt, size):
        found = []
        for end in range(size, len(tokens), size):
            blocks = [b for s, t, b in self.entries if s == salt and t == tuple(tokens[:end])]
            if not blocks:
                break
            found.append(blocks[0])
        return found


class PoolMachine(RuleBasedStateMachine):
    """Sequences start, fork, grow, roll back and end; blocks are pinned out of order; now and then all is forgotten."""

    @initialize(num_blocks=st.integers(2, 12), size=st.integers(1, 3))
    def build(self, num_blocks, size):
        self.size = size
        self.pool = KvPool(num_blocks, size)
        self.model = NaivePool(num_blocks)
        self.memory = [[None] * size for _ in range(num_blocks)]
        self.sequences = []  # table, tokens, salt
        self.pins = []

    def carry_out(self, copies):
        for source, destination, num_tokens in copies:
            self.memory[destination][:num_tokens] = self.memory[source][:num_tokens]

    def verify(self, table, tokens, salt):
        """Register every full block that is not known yet."""
        size = self.size
        for i in range(len(tokens) // size):
            if not self.model.known(table[i]):
                self.pool.register(table[i], tokens[i * size : (i + 1) * size], table[i - 1] if i else None, salt)
                self.model.entries.append((salt, tuple(tokens[: (i + 1) * size]), table[i]))

    def is_immutable(self, block):
        return self.model.owners[block] > 1 or self.model.known(block)

    def grow(self, table, tokens, salt, new):
        """Extend, compare with what must happen, write the new tokens."""
        size, before = self.size, list(table)
        last_fill = len(tokens) % size
        must_copy = bool(last_fill) and self.is_immutable(table[-1])
        num_new = blocks_for(len(tokens) + len(new), size) - len(table)
        if num_new + must_copy > self.model.available():
            stats = self.pool.stats()
            with pytest.raises(OutOfBlocks):
                extend(self.pool, table, len(new))
            assert table == before
            assert self.pool.stats() == stats
            return False
        extend(self.pool, table, len(new))
        if must_copy:
            self.model.take(table[len(before) - 1])
            self.model.release(before[-1])
            before[-1] = table[len(before) - 1]
        assert table[: len(before)] == before
        for block in table[len(before) :]:
            self.model.take(block)
        copies = self.pool.take_copies()
        assert [copy.num_tokens for copy in copies] == [last_fill] * must_copy
        self.carry_out(copies)
        for position, token in enumerate(new, len(tokens)):
            self.memory[table[position // size]][position % size] = token
        tokens.extend(new)
        return True

    @rule(prompt=TOKENS, salt=SALTS, is_verified=st.booleans())
    def start(self, prompt, salt, is_verified):
        table = self.pool.match(prompt, salt)
        assert table == self.model.match(prompt, salt, self.size)
        for block in table:
            self.pool.retain(block)
            self.model.retain(block)
        tokens = prompt[: len(table) * self.size]
        if self.grow(table, tokens, salt, prompt[len(tokens) :]):
            self.sequences.append((table, tokens, salt))
            if is_verified:
                self.verify(table, tokens, salt)
        else:
            self.give_back(table)

    @precondition(lambda self: self.sequences)
    @rule(pick=PICK, new=TOKENS | st.just([]))
    def fork(self, pick, new):
        table, tokens, salt = self.sequences[pick % len(self.sequences)]
        for block in table:
            self.pool.retain(block)
            self.model.retain(block)
        self.sequences.append((list(table), list(tokens), salt))
        if new:
            self.grow(table, tokens, salt, new)

    @precondition(lambda self: self.sequences)
    @rule(pick=PICK, new=TOKENS, num_rejected=st.integers(0, 12), is_verified=st.booleans())
    def go_on(self, pick, new, num_rejected, is_verified):
        table, tokens, salt = self.sequences[pick % len(self.sequences)]
        if self.grow(table, tokens, salt, new):
            self.shorten(table, tokens, num_rejected)
        if is_verified:
            self.verify(table, tokens, salt)

    @precondition(lambda self: self.sequences)
    @rule(pick=PICK, num_cut=st.integers(0, 12))
    def go_back(self, pick, num_cut):
        table, tokens, _ = self.sequences[pick % len(self.sequences)]
        self.shorten(table, tokens, num_cut)

    def shorten(self, table, tokens, num_cut):
        """Roll back by `num_cut` tokens and compare with what must happen."""
        keep = max(0, len(tokens) - num_cut)
        num_kept = blocks_for(keep, self.size)
        kept, tail = table[:num_kept], table[num_kept:]
        is_cut = keep < len(tokens) and keep % self.size > 0
        must_copy = is_cut and self.is_immutable(kept[-1])
        freed = any(self.model.owners[block] == 1 for block in tail)
        if must_copy and not self.model.available() and not freed:
            with pytest.raises(OutOfBlocks):
                rollback(self.pool, table, keep)
            assert table == kept + tail
            return
        assert rollback(self.pool, table, keep) == len(tail)
        for block in reversed(tail):
            self.model.release(block)
        copies = self.pool.take_copies()
        if must_copy:
            self.model.take(table[-1])
            assert copies == [(kept[-1], table[-1], keep % self.size)]
            self.model.release(kept[-1])
            kept[-1] = table[-1]
        else:
            assert copies == []
        self.carry_out(copies)
        assert table == kept
        del tokens[keep:]

    @precondition(lambda self: self.sequences)
    @rule(pick=PICK)
    def end(self, pick):
        self.give_back(self.sequences.pop(pick % len(self.sequences))[0])

    def give_back(self, table):
        blocks = list(table)
        assert rollback(self.pool, table, 0) == len(blocks)
        assert table == []
        for block in reversed(blocks):
            self.model.release(block)

    @precondition(lambda self: self.model.entries)
    @rule(pick=PICK)
    def pin(self, pick):
        _, _, block = self.model.entries[pick % len(self.model.entries)]
        self.pool.retain(block)
        self.model.retain(block)
        self.pins.append(block)

    @precondition(lambda self: self.pins)
    @rule(pick=PICK)
    def unpin(self, pick):
        block = self.pins.pop(pick % len(self.pins))
        self.pool.release(block)
        self.model.release(block)

    @rule(really=st.integers(0, 7))
    def forget_all(self, really):
        if really == 0:
            self.pool.forget_all()
            self.model.entries.clear()
            self.model.free.update(self.model.evictable)
            self.model.evictable.clear()

    @invariant()
    def the_books_agree(self):
        if not hasattr(self, "pool"):
            return
        tables = [table for table, _, _ in self.sequences] + [[block] for block in self.pins]
        self.pool.check(tables)
        self.pool.check_index()
        held = {block for block, owners in self.model.owners.items() if owners}
        assert held == set(chain.from_iterable(tables))
        assert self.pool.stats() == (
            self.pool.num_blocks,
            len(self.model.free),
            len(self.model.evictable),
            len(held),
        )
        assert list(self.pool._evictable) == self.model.evictable
        for block in range(self.pool.num_blocks):
            assert self.pool.ref_count(block) == self.model.owners[block]

    @invariant()
    def every_sequence_reads_its_own_tokens(self):
        for table, tokens, _ in getattr(self, "sequences", []):
            assert len(table) == blocks_for(len(tokens), self.size)
            assert sum(map(self.pool.fill, table)) == len(tokens)
            read = chain.from_iterable(self.memory[block][: self.pool.fill(block)] for block in table)
            assert list(read) == tokens

    @invariant()
    def every_indexed_block_holds_what_it_is_found_by(self):
        for _, tokens, block in getattr(self, "model", NaivePool(0)).entries:
            assert tuple(self.memory[block]) == tokens[-self.size :]

    def teardown(self):
        if hasattr(self, "pool"):
            for table, _, _ in self.sequences:
                rollback(self.pool, table, 0)
            for block in self.pins:
                self.pool.release(block)
            self.pool.forget_all()
            assert self.pool.stats().free == self.pool.num_blocks


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)

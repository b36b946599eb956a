"""The laws that hold at any moment, each checked from the engine's raw state and not by the engine's own checks."""

import re
import traceback
from array import array
from collections import Counter
from itertools import chain

from actors.messages import Step
from kvpool import Salt, blocks_for
from models.checked_kv import checksum
from scheduler import State
from sims.explore.insides import Insides

CONSERVATION = "conservation"
FENCE = "one writer, fenced"
LENGTH = "exact length"
LOSSLESS = "speculation changes speed only"
CANCEL = "cancel"
SHARING = "nothing unverified is shared"
PROGRESS = "progress"
SAME_RUN = "same seed, same run"
CRASH = "no actor fails by itself"


class Violation(Exception):  # what is reported, not an error of the program
    """A law was found broken; `traceback` is that of what died, where something did."""

    def __init__(self, law: str, what: str, traceback: str = "") -> None:
        super().__init__(f"{law}: {what}")
        self.law = law
        self.what = what
        self.traceback = traceback

    def __reduce__(self) -> tuple[type["Violation"], tuple[str, str, str]]:
        return type(self), (self.law, self.what, self.traceback)


def traceback_of(error: Exception) -> str:
    """Give an error's traceback, with the names of files alone: where they are says nothing."""
    return re.sub(r'(?<=File ")\S*/(?=[^/]+", line)', "", "".join(traceback.format_exception(error)))


def check_conservation(insides: Insides) -> None:
    """See that every block is free, evictable or held, in one way only, with as many owners as tables that name it."""
    pool = insides.pool
    owners = Counter(chain.from_iterable(held.table for held in insides.held.values()))
    free, evictable = pool._free, pool._evictable
    blocks = sorted(chain(free, evictable, owners))
    if blocks != list(range(pool.num_blocks)):
        twice = sorted(block for block, count in Counter(blocks).items() if count > 1)
        lost = sorted(set(range(pool.num_blocks)) - set(blocks))
        raise Violation(
            CONSERVATION,
            f"free {len(free)} + evictable {len(evictable)} + held {len(owners)} of {pool.num_blocks}; "
            f"in two states: {twice}, in none: {lost}",
        )
    for block, count in enumerate(pool._refs):
        if count != owners[block]:
            raise Violation(CONSERVATION, f"block {block} counts {count} owners and is in {owners[block]} tables")
    nodes = insides.nodes
    if not evictable.keys() <= nodes.keys() or any(block in nodes for block in free):
        raise Violation(CONSERVATION, "the blocks without an owner that are indexed are not the evictable ones")


def check_fence(insides: Insides, step: Step) -> None:
    """See that a running pass reads what its sequences still have, and writes what nobody else and no prefix has."""
    size = insides.pool.block_tokens
    for feed in step.feeds:
        held = insides.held.get(feed.seq)
        if held is None or held.table[: len(feed.table)] != feed.table:
            now = "none" if held is None else held.table
            raise Violation(
                FENCE, f"pass {step.number} uses blocks {feed.table} of sequence {feed.seq}, which has {now}"
            )
        for block in feed.table[feed.start // size :]:
            if insides.pool.ref_count(block) != 1:
                owners = [seq for seq, other in insides.held.items() if block in other.table]
                raise Violation(FENCE, f"pass {step.number} writes block {block}, which sequences {owners} have")
            if block in insides.nodes:
                raise Violation(
                    SHARING, f"pass {step.number} writes block {block}, which the prefix index knows already"
                )


def check_lengths(insides: Insides) -> None:
    """See that after a round every running sequence, and no other, has exactly the blocks for what is cached of it."""
    running, size = insides.core.running, insides.pool.block_tokens
    if insides.held.keys() != running.keys():
        raise Violation(LENGTH, f"after a settlement {sorted(insides.held)} hold blocks and {sorted(running)} run")
    for seq, sequence in running.items():
        held = insides.held[seq]
        if sequence.state is State.DECODE and sequence.cached != len(sequence.context) - 1:
            raise Violation(
                LENGTH,
                f"sequence {seq} has {sequence.cached} positions cached, "
                f"prompt {sequence.prompt_len} + emitted {sequence.num_emitted} - 1 expected",
            )
        if not held.cached == held.reserved == sequence.cached:
            raise Violation(
                LENGTH,
                f"sequence {seq} has {sequence.cached} positions cached; its table says {held.cached}, "
                f"and has room for {held.reserved}",
            )
        if len(held.table) != blocks_for(held.cached, size):
            raise Violation(LENGTH, f"sequence {seq} has {len(held.table)} blocks for {held.cached} positions")


def check_available(insides: Insides) -> None:
    """See that, as a pass is reserved, the scheduler counts on exactly the blocks that the pool could hand out."""
    if insides.available != insides.pool.num_available:
        raise Violation(
            LENGTH, f"the scheduler counts on {insides.available} blocks, the pool has {insides.pool.num_available}"
        )


class Prefixes:
    """Which contents a block in the prefix index may have: full blocks of what the requests' contexts come to be."""

    def __init__(self, block_tokens: int) -> None:
        self._size = block_tokens
        self._sums: dict[tuple[Salt, bytes], int] = {}
        self._known: dict[int, object] = {}

    def allow(self, salt: Salt, context: list[int]) -> None:
        """Allow the prefixes of a context; its last token is never cached."""
        for end in range(self._size, len(context), self._size):
            self._sums[salt, array("i", context[:end]).tobytes()] = checksum(context[:end])

    def check(self, insides: Insides, *, is_memory_there: bool) -> None:
        """Check the blocks that have come into the index: their tokens, and the memory behind them."""
        nodes = insides.nodes
        for block, node in nodes.items():
            if self._known.get(block) is node:
                continue
            path, above = [], node
            while above.parent is not None:
                path.append(above.key)
                above = above.parent
            tokens = b"".join(reversed(path))  # type: ignore[arg-type]  # only a root's key is a salt
            expected = self._sums.get((above.key, tokens))  # type: ignore[arg-type]
            if expected is None:
                spelled = array("i", tokens).tolist()
                raise Violation(SHARING, f"block {block} is indexed as the end of {spelled}, which nobody's context is")
            memories = [insides.written, insides.proposed] if isinstance(above.key, tuple) else [insides.written]
            if is_memory_there and any(int(written[block, -1]) != expected for written in memories):
                spelled = array("i", tokens).tolist()
                raise Violation(SHARING, f"block {block} is indexed as the end of {spelled} and was never written so")
        self._known = dict(nodes)

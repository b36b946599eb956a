"""A second, smaller model that drafts."""

from collections.abc import Iterator, Sequence
from copy import copy
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.laws import laws_of
from models.protocol import Ask, Chunk, Model

_SCRATCH_SLOTS = 1024  # for drafted nodes: those of one pass at a time
_CHAIN_SLOTS = 32  # of them, what a sequence's chain may keep from pass to pass


class DraftModel:
    """A `Proposer` over any model of the target's vocabulary.

    Its KV lies in memory of its own under the target's block tables. Drafted nodes are fed behind the context, into
    what is left of its last block and then into scratch: a layer of chains as one more token each, where there is room
    for all of them at once, a layer of other trees again with all that is above it.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._num_blocks = 0
        self._block_tokens = 1
        self._roots = np.empty((0, model.vocab_size), np.float32)  # the row after each place's context
        self._num_held: dict[int, int] = {}  # nodes of a place's chain that are in scratch

    @property
    def vocabulary(self) -> None:
        """Laws are over all of it."""

    @property
    def vocab_size(self) -> int:
        """The target's."""
        return self._model.vocab_size

    @property
    def max_model_len(self) -> int:
        """Positions that a context and a draft after it may have together."""
        return self._model.max_model_len

    @property
    def taps(self) -> tuple[int, ...]:
        """None: it looks at tokens only."""
        return ()

    @property
    def keeps_state(self) -> bool:
        """Keys and values of its own."""
        return True

    def bind(self, num_blocks: int, block_tokens: int, target: Model) -> None:
        """Take fresh memory. Raises ValueError for a target of another vocabulary."""
        if target.vocab_size != self.vocab_size:
            raise ValueError(f"the draft model has {self.vocab_size} tokens: the target has {target.vocab_size}")
        self._num_blocks, self._block_tokens = num_blocks, block_tokens
        self._num_held = {}
        self._model = copy(self._model)
        self._model.bind(num_blocks + self._num_scratch_blocks, block_tokens)

    @property
    def _num_scratch_blocks(self) -> int:
        return -(-_SCRATCH_SLOTS // self._block_tokens)

    def feed(self, chunks: Sequence[Chunk]) -> None:
        """Write the KV of tokens that are kept."""
        self._num_held = {}
        self._roots = self._model.forward(chunks)

    def laws(self, asks: Sequence[Ask]) -> NDArray[np.float64]:
        """Give the law after each node asked for, float64 `[nodes, vocab_size]`.

        Raises ValueError for a tree with more nodes than there is scratch for, or one that is too deep for the model.
        """
        rows = np.empty((sum(len(ask.frontier) for ask in asks), self.vocab_size), np.float32)
        feeds = []
        at = 0
        for ask in asks:
            wanted = range(at, at := at + len(ask.frontier))
            if list(ask.frontier) == [-1]:  # the root is never asked for together with what hangs below it
                rows[wanted] = self._roots[ask.place]
            else:
                feeds.append(_Branches(ask, wanted))
        if all(self._goes_on(branches.ask) for branches in feeds):
            self._feed(feeds, [self._next_of_chain(branches.ask) for branches in feeds], rows)
            self._num_held |= {branches.ask.place: len(branches.ask.tokens) for branches in feeds}
        else:
            self._num_held = {}
            for group, chunks in self._in_groups(feeds):
                self._feed(group, chunks, rows)
        return laws_of(rows, asks)

    def _feed(self, feeds: Sequence["_Branches"], chunks: Sequence[Chunk], rows: NDArray[np.float32]) -> None:
        if feeds:
            rows[[row for branches in feeds for row in branches.wanted]] = self._model.forward(chunks)

    def _goes_on(self, ask: Ask) -> bool:
        """Tell whether the last node alone is to be fed: it ends a chain whose other nodes are held."""
        end = len(ask.tokens) - 1
        return (
            list(ask.frontier) == [end]
            and list(ask.parents) == list(range(-1, end))
            and self._num_held.get(ask.place, 0) == end
            and end < _CHAIN_SLOTS - self._block_tokens
            and (ask.place + 1) * _CHAIN_SLOTS <= _SCRATCH_SLOTS
        )

    def _next_of_chain(self, ask: Ask) -> Chunk:
        """Feed the last node of a chain to scratch that is its place's."""
        size = self._block_tokens
        first = self._num_blocks + ask.place * _CHAIN_SLOTS // size
        table = [*ask.table, *range(first, first + _CHAIN_SLOTS // size)]
        start = ask.length + len(ask.tokens) - 1
        return Chunk(ask.tokens[-1:], start, table[: start // size + 1], 1)

    def _in_groups(self, feeds: Sequence["_Branches"]) -> Iterator[tuple[list["_Branches"], list[Chunk]]]:
        """Give what fits in the scratch at a time."""
        size = self._block_tokens
        group: list[_Branches] = []
        chunks: list[Chunk] = []
        used, num_scratch = 0, self._num_scratch_blocks
        for branches in feeds:
            ask, nodes = branches.ask, branches.nodes
            needed = -(-(ask.length + len(nodes)) // size) - len(ask.table)
            if needed > num_scratch:
                raise ValueError(f"a tree has {len(nodes)} nodes above its next layer: at most {_SCRATCH_SLOTS}")
            if used + needed > num_scratch:
                yield group, chunks
                group, chunks, used = [], [], 0
            first = self._num_blocks + used
            number = {-1: -1} | {node: i for i, node in enumerate(nodes)}
            ids, parents = [ask.tokens[node] for node in nodes], [number[ask.parents[node]] for node in nodes]
            table = [*ask.table, *range(first, first + needed)]
            chunks.append(Chunk(ids, ask.length, table, len(branches.wanted), parents))
            group.append(branches)
            used += needed
        yield group, chunks


class _Branches(NamedTuple):
    """A tree whose next layer is asked for, and the rows where the logits after its frontier go."""

    ask: Ask
    wanted: range

    @property
    def nodes(self) -> list[int]:
        """What the frontier grew from, by number, and then the frontier: no node of it is above another."""
        above: set[int] = set()
        for node in self.ask.frontier:
            at = self.ask.parents[node]
            while at >= 0 and at not in above:
                above.add(at)
                at = self.ask.parents[at]
        return [*sorted(above), *self.ask.frontier]

"""One sequence on a model, as the one-sequence loop wants it."""

import copy
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from models.execution import check_rows
from models.protocol import Chunk, Model, SlotMove
from spec import MAX_NODES


class RunnerTarget:
    """A `spec.Target` over a model and the blocks of one sequence.

    It works on a copy of the model, bound to fresh KV memory: one model serves any number of them, and engines. The
    nodes of a token tree lie in blocks beyond the `num_blocks` that bound the positions.
    """

    def __init__(self, model: Model, num_blocks: int, block_tokens: int) -> None:
        self.num_bound = num_blocks + -(-MAX_NODES // block_tokens)
        """Blocks of its model's memory."""
        self.block_tokens = block_tokens
        self.model = copy.copy(model)
        self.model.bind(self.num_bound, block_tokens)
        self._free = list(range(self.num_bound))
        self._table: list[int] = []
        self._cached = 0
        self.max_model_len = min(model.max_model_len, num_blocks * block_tokens)

    def cached(self) -> int:
        """Slots in the cache: positions, but for a tree that has just been fed."""
        return self._cached

    def reserve(self, num_slots: int) -> list[int]:
        """Give the blocks of the first so many slots, as they will be when these are fed."""
        needed = -(-num_slots // self.block_tokens)
        while len(self._table) < needed:
            self._table.append(self._free.pop(0))
        return self._table[:needed]

    def extend(self, ids: Sequence[int], parents: Sequence[int] | None = None) -> NDArray[np.float32]:
        """Feed ids in one pass; a row per id, float32 `[len(ids), vocab_size]`. `parents` as in `Chunk`.

        Raises ValueError, with nothing cached, for no ids, an id out of the vocabulary or too many positions.
        """
        end = self._cached + len(ids)
        needed = -(-end // self.block_tokens)
        if end > self.max_model_len and (parents is None or needed > len(self._table) + len(self._free)):
            raise ValueError(f"{end} positions: the cache holds max_model_len {self.max_model_len}")
        chunk = Chunk(ids=ids, start=self._cached, table=self.reserve(end), num_rows=len(ids), parents=parents)
        rows = check_rows(self.model.forward([chunk]), len(ids), self.model.vocab_size)
        self._cached = end
        return rows

    def move_slots(self, moves: Sequence[tuple[int, int]]) -> None:
        """Move KV from slot to slot, as `spec.compaction` has it."""
        self.model.move_slots([SlotMove(self._table, source, destination) for source, destination in moves])

    def truncate(self, length: int) -> None:
        """Forget all but the first `length` positions. ValueError outside `[0, cached()]`."""
        if not 0 <= length <= self._cached:
            raise ValueError(f"length {length}: must be in [0, {self._cached}], what is cached")
        keep = -(-length // self.block_tokens)
        self._free.extend(self._table[keep:])
        del self._table[keep:]
        self._cached = length

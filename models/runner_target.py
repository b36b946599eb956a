"""One sequence on a model, as the one-sequence loop wants it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from models.protocol import Chunk, Model


class RunnerTarget:
    """A `spec.Target` over a model and the blocks of one sequence.

    It binds the model to fresh KV memory, so a model serves one `RunnerTarget` at a time.
    """

    def __init__(self, model: Model, num_blocks: int, block_tokens: int) -> None:
        model.bind(num_blocks, block_tokens)
        self._model = model
        self._block_tokens = block_tokens
        self._free = list(range(num_blocks))
        self._table: list[int] = []
        self._cached = 0
        self.max_model_len = min(model.max_model_len, num_blocks * block_tokens)

    def cached(self) -> int:
        """Positions in the cache."""
        return self._cached

    def extend(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """Feed ids in one pass; a row per id, float32 `[len(ids), vocab_size]`.

        Raises ValueError, with nothing cached, for no ids, an id out of the vocabulary or too many positions.
        """
        end = self._cached + len(ids)
        if end > self.max_model_len:
            raise ValueError(f"{end} positions: the cache holds max_model_len {self.max_model_len}")
        needed = -(-end // self._block_tokens)
        table = self._table + self._free[: needed - len(self._table)]
        rows = self._model.forward([Chunk(ids=ids, start=self._cached, table=table, num_rows=len(ids))])
        del self._free[: needed - len(self._table)]
        self._table, self._cached = table, end
        return rows

    def truncate(self, length: int) -> None:
        """Forget all but the first `length` positions. ValueError outside `[0, cached()]`."""
        if not 0 <= length <= self._cached:
            raise ValueError(f"length {length}: must be in [0, {self._cached}], what is cached")
        keep = -(-length // self._block_tokens)
        self._free.extend(self._table[keep:])
        del self._table[keep:]
        self._cached = length

"""A target without weights: its logits are a pure function of a seed and the last few tokens."""

from collections.abc import Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from models.checked_kv import INCREMENT, MULTIPLIER, CheckedModel, Rows, chained, powers_of
from models.protocol import Chunk


class FakeModel(CheckedModel):
    """Logits drawn from PCG32 streams that the last `order` tokens of the context select.

    `row(context)`: `h = seed`, then `h = h * M + t + c` modulo 2**64 for each of the last `order` tokens; logit `i` is
    `float32(sharp * u_i)` with the first `vocab` uniforms of `Pcg32(h, 0)`. The context is read back from KV memory
    that checks itself, so the logits are right only if every block is.
    """

    def __init__(self, seed: int, vocab: int, order: int, sharp: float, max_model_len: int = 1 << 20) -> None:
        if vocab < 1 or order < 1:
            raise ValueError(f"vocab is {vocab} and order {order}: integers >= 1")
        super().__init__(vocab, max_model_len)
        self.seed = seed
        self.order = order
        self.sharp = sharp
        #   state number i of a stream that starts at s:  jumps[i] * s + offsets[i]
        self._jumps = powers_of(MULTIPLIER, vocab)
        self._offsets = np.concatenate(([np.uint64(0)], np.cumsum(self._jumps)[:-1]))

    def forward(self, chunks: Sequence[Chunk]) -> NDArray[np.float32]:
        """Write the fed ids; logits float32 `[sum(num_rows), vocab]`.

        Raises KvMismatch for a context that is not there.
        """
        return self.draw(self._contexts(self._memory.extend(chunks)))

    def rows(self, context: Sequence[int], num_rows: int) -> NDArray[np.float32]:
        """Give the logits after each of the last `num_rows` tokens of a context, from the tokens alone."""
        ends = range(len(context) - num_rows + 1, len(context) + 1)
        return self.draw([self.hash_of(context[max(0, end - self.order) : end]) for end in ends])

    def hash_of(self, tokens: Sequence[int]) -> int:
        """Give what selects the row after these tokens, the last `order` of a context or all of a shorter one."""
        h = self.seed
        for token in tokens:
            h = chained(h, token)
        return h

    def _contexts(self, rows: Rows) -> NDArray[np.uint64]:
        """Hash the last tokens before and at each row, oldest first."""
        h = np.full(len(rows.positions), self.seed % 2**64, np.uint64)
        newest_first = list(islice(self._memory.walk_back(rows), self.order))
        for tokens, is_there in reversed(newest_first):
            h = np.where(is_there, h * MULTIPLIER + (tokens + INCREMENT), h)
        return h

    def draw(self, hashes: Sequence[int] | NDArray[np.uint64]) -> NDArray[np.float32]:
        """Draw `vocab` uniforms from `Pcg32(h, 0)` for each h: seeding it is two steps with increment 1."""
        h = np.asarray(hashes, np.uint64)
        start = (h + np.uint64(1)) * MULTIPLIER + np.uint64(1)
        states = start[:, None] * self._jumps + self._offsets
        shifted = ((states >> np.uint64(18) ^ states) >> np.uint64(27)).astype(np.uint32)
        turn = (states >> np.uint64(59)).astype(np.uint32)
        draws = (shifted >> turn) | (shifted << (-turn & np.uint32(31)))
        return (self.sharp * (draws / 2.0**32)).astype(np.float32)


class FakeTarget:
    """A `spec.Target` with a `FakeModel`'s logits and no KV memory at all: what an engine's output is compared with."""

    def __init__(self, model: FakeModel) -> None:
        self._model = model
        self._context: list[int] = []
        self.max_model_len = model.max_model_len

    def cached(self) -> int:
        """Tokens fed."""
        return len(self._context)

    def extend(self, ids: Sequence[int], parents: Sequence[int] | None = None) -> NDArray[np.float32]:
        """Feed ids; a row per id, float32 `[len(ids), vocab]`. `parents` as in `Chunk`."""
        cached = len(self._context)
        self._context.extend(ids)
        if parents is None:
            return self._model.rows(self._context, len(ids))
        tails = [self._context[max(0, cached - self._model.order) : cached]]  # the last is that of parent -1
        for token, parent in zip(ids, parents, strict=True):
            tails.insert(-1, [*tails[parent if parent >= 0 else -1], token][-self._model.order :])
        return np.concatenate([self._model.rows(tail, 1) for tail in tails[:-1]])

    def move_slots(self, moves: Sequence[tuple[int, int]]) -> None:
        """Move tokens from slot to slot, as `spec.compaction` has it."""
        for source, destination in moves:
            self._context[destination] = self._context[source]

    def truncate(self, length: int) -> None:
        """Forget all but the first `length` tokens."""
        del self._context[length:]

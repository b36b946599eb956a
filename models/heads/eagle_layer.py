"""The decoder layer of EAGLE heads, with the keys and values of contexts in blocks and of drafted nodes in scratch."""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Self

import numpy as np

from models.heads.parts import Build, silu
from models.heads.weights import EagleHeads
from models.llama import attention, rms_norm, rotate
from models.paged_kv import Pass
from models.protocol import Ints
from models.weights import F32

Attend = Callable[[F32, Sequence[Ints], F32, F32], F32]
"""From queries `[rows, heads, head_dim]`, what places each row sees, keys and values: `[rows, heads * head_dim]`."""

_NONE = np.empty(0, np.int64)


def attend_in_tables(q: F32, seen: Sequence[Ints], keys: F32, values: F32) -> F32:
    """Attend as a llama does: a row is a sequence of its own, in blocks of one token."""
    counts = np.array([len(places) for places in seen], np.int64)
    tables = np.zeros((len(seen), int(counts.max(initial=0))), np.int64)
    for table, places in zip(tables, seen, strict=True):
        table[: len(places)] = places
    no_paths = np.empty((len(seen), 0), np.int64)
    fed = Pass(_NONE, counts - 1, _NONE, _NONE, np.arange(len(seen)), counts, no_paths, tables, _NONE)
    return attention(q, fed, keys, values)


class EagleLayer:
    """Keys and values in places of one token each: first those of the blocks' slots, then scratch."""

    def __init__(self, heads: EagleHeads, build: Build, attend: Attend) -> None:
        self.config = heads.config
        self._attend = attend
        self._q, self._k, self._v, self._o = (build(matrix) for matrix in (heads.q, heads.k, heads.v, heads.o))
        self._gate, self._up, self._down = (build(matrix) for matrix in (heads.gate, heads.up, heads.down))
        self._norm = heads.mlp_norm
        self._cosines, self._sines = heads.config.rope_table()
        self._keys = self._values = np.empty((0, 1, heads.config.num_kv_heads, heads.config.head_dim), np.float32)

    def fresh(self, num_slots: int) -> Self:
        """Give a copy with memory of its own."""
        bound = copy(self)
        shape = (num_slots, *self._keys.shape[1:])
        bound._keys, bound._values = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        return bound

    def keep(self, x: F32, positions: Ints, places: Ints) -> None:
        """Write the keys and values of attention's inputs `[n, inputs]` to `places` `[n]`."""
        if len(places) and (missing := int(places.max()) + 1 - len(self._keys)) > 0:
            room = np.zeros((max(missing, len(self._keys) // 8), *self._keys.shape[1:]), np.float32)
            self._keys, self._values = np.concatenate([self._keys, room]), np.concatenate([self._values, room])
        shape = (len(x), 1, *self._keys.shape[2:])
        self._keys[places] = rotate(self._k(x).reshape(shape)[:, 0], *self._rotation(positions))[:, None]
        self._values[places] = self._v(x).reshape(shape)

    def run(self, residual: F32, x: F32, positions: Ints, seen: Sequence[Ints]) -> F32:
        """Give the layer's outputs `[n, dim]`: row `i` attends to the places `seen[i]`, its own the last of them."""
        config = self.config
        q = rotate(self._q(x).reshape(-1, config.num_heads, config.head_dim), *self._rotation(positions))
        with np.errstate(over="ignore", invalid="ignore"):  # a row that is not finite is its own sequence's matter
            y = residual + self._o(self._attend(q, seen, self._keys, self._values))
            normed = rms_norm(y, self._norm, config.norm_eps)
            return y + self._down(silu(self._gate(normed)) * self._up(normed))

    def _rotation(self, positions: Ints) -> tuple[F32, F32]:
        return self._cosines[positions, None], self._sines[positions, None]

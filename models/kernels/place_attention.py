"""Attention of rows to keys that lie anywhere, each row's in its own order."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.kernels.digest import SOURCES
from models.kernels.lanes import numba
from models.kernels.packing import LANES
from models.kernels.rows import exponentiate, mix_values, score_keys
from models.weights import F32


def attend_places(q: F32, seen: Sequence[NDArray[np.integer]], keys: F32, values: F32) -> F32:
    """Let row `i` attend to the keys at `seen[i]`: from `q` `[rows, heads, head_dim]` to `[rows, heads * head_dim]`.

    `keys` and `values` are `[places, 1, kv_heads, head_dim]`, `head_dim` a multiple of 16.
    """
    num_rows, num_heads, head_dim = q.shape
    counts = np.array([len(places) for places in seen], np.int64)
    ends = np.cumsum(counts)
    group = num_heads // keys.shape[2]
    longest = -(-int(counts.max(initial=0)) // LANES) * LANES
    mixed = np.empty((num_rows, num_heads, head_dim), np.float32)
    if num_rows:
        scaled = np.ascontiguousarray(q / np.sqrt(np.float32(head_dim)))
        scores, heads = np.empty(group * longest, np.float32), np.empty(group * head_dim, np.float32)
        _attend_rows(scaled, np.concatenate(seen).astype(np.int64), ends, keys, values, scores, heads, mixed)
    return mixed.reshape(num_rows, num_heads * head_dim)


def _run_at(places: Any, position: int, end: int) -> int:
    """Count the places from `position` on that follow one another."""
    run = 1
    while position + run < end and places[position + run] == places[position] + run:
        run += 1
    return run


run_at = numba.njit(nogil=True, error_model="numpy")(_run_at)


def _compile(sources: int) -> Any:
    """Compile the rows, or take them from the disk; `sources` in it keeps an older version's from being taken."""

    def attend_rows(q: Any, places: Any, ends: Any, keys: Any, values: Any, scores: Any, heads: Any, mixed: Any) -> int:
        num_heads, head = q.shape[1], q.shape[2]
        kv_heads = keys.shape[2]
        group, stride = num_heads // kv_heads, kv_heads * head
        first = 0
        for row in range(len(q)):
            end = ends[row]
            padded = (end - first + LANES - 1) // LANES * LANES
            for kv_head in range(kv_heads):
                q_at = (row * num_heads + kv_head * group) * head
                position = first
                while position < end:
                    run, at = run_at(places, position, end), places[position] * stride + kv_head * head
                    score_keys(q, q_at, group, keys, at, stride, run, head, scores, position - first, padded)
                    position += run
                for member in range(group):
                    scores[member * padded + end - first : (member + 1) * padded] = -np.inf
                heads[:] = 0
                shares = np.empty(group, np.float32)
                for member in range(group):
                    shares[member] = exponentiate(scores, member * padded, padded)
                position = first
                while position < end:
                    run, at = run_at(places, position, end), places[position] * stride + kv_head * head
                    mix_values(scores, position - first, padded, group, values, at, stride, run, head, heads)
                    position += run
                for member in range(group):
                    for i in range(head):
                        mixed[row, kv_head * group + member, i] = heads[member * head + i] / shares[member]
            first = end
        return sources

    return numba.njit(nogil=True, error_model="numpy", cache=True)(attend_rows)


_attend_rows = _compile(SOURCES)

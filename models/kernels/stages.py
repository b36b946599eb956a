"""How the threads of a pass share a stage's items, and how rows become the panels that products read."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from models.kernels.lanes import numba
from models.kernels.packing import BLOCK_INPUTS
from models.kernels.product import MAX_ROWS
from models.kernels.rows import block_sum, fetch, fetch_add, give_way, sum_squares

CLAIM_STRIDE = 16  # int64 a stage: its two counters lie on cache lines of their own
_DONE = CLAIM_STRIDE // 2
_CLAIMS_A_THREAD = 4
_SPINS = 300  # looks at a counter before giving way


def _items(claims: Any, stage: int, num_items: int, threads: int) -> Iterator[int]:
    """Give the items of a stage that this thread gets, and come back when all are done, whoever did them."""
    span = max(1, num_items // (threads * _CLAIMS_A_THREAD))
    at = stage * CLAIM_STRIDE
    first = fetch_add(claims, at, span)
    while first < num_items:
        end = min(first + span, num_items)
        for item in range(first, end):  # noqa: UP028 - the compiler knows no `yield from`
            yield item
        fetch_add(claims, at + _DONE, end - first)
        first = fetch_add(claims, at, span)
    spins = 0
    while fetch(claims, at + _DONE) < num_items:
        spins += 1
        if spins > _SPINS:
            give_way()


def _num_parts(rows: int) -> int:
    """Count the parts in which rows go through a product; part `i` ends before row `(i + 1) * rows // parts`."""
    return (rows + MAX_ROWS - 1) // MAX_ROWS


def _place(line: Any, length: int, first: int, width: int, row: int, panel: Any, sums: Any) -> None:
    """Put one row of inputs in its column of the part that starts with row `first`."""
    blocks = length // BLOCK_INPUTS
    at = first * length + row - first
    for i in range(length):
        panel[at + i * width] = line[i]
    at = first * blocks + row - first
    for block in range(blocks):
        sums[at + block * width] = block_sum(line, block * BLOCK_INPUTS)


def _fill_panel(source: Any, rows: int, blocks: int, panel: Any, sums: Any) -> None:
    """Lay out the rows of `source` for a product over `blocks` blocks of inputs."""
    parts = num_parts(rows)
    for part in range(parts):
        first, end = part * rows // parts, (part + 1) * rows // parts
        for row in range(first, end):
            place(source[row], blocks * BLOCK_INPUTS, first, end - first, row, panel, sums)


def _fill_panel_normed(
    source: Any, index: Any, dim: int, norm_eps: float, weight: Any, line: Any, panel: Any, sums: Any
) -> None:
    """Lay out rows `index` of `source`, over their root mean square and times `weight`."""
    rows, length = len(index), len(weight)
    parts = num_parts(rows)
    for part in range(parts):
        first, end = part * rows // parts, (part + 1) * rows // parts
        for row in range(first, end):
            x = source[index[row]]
            scale = np.float32(1 / np.sqrt(sum_squares(x, 0, length) / dim + norm_eps))
            for i in range(length):
                line[i] = x[i] * scale * weight[i]
            place(line, length, first, end - first, row, panel, sums)


_compiled = numba.njit(nogil=True, error_model="numpy")
items, num_parts, place = _compiled(_items), _compiled(_num_parts), _compiled(_place)
fill_panel, fill_panel_normed = _compiled(_fill_panel), _compiled(_fill_panel_normed)

"""How the threads of a pass share a stage's items, and how rows become the inputs that products read."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.kernels.int8 import quantise
from models.kernels.lanes import numba
from models.kernels.packing import BLOCK_INPUTS, INT8_KINDS
from models.kernels.product import MAX_ROWS
from models.kernels.rows import block_sum, fetch, fetch_add, give_way, sum_squares

FLOATS, CODES = 1, 2
FIRST_INT8 = int(min(INT8_KINDS))

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


class Inputs(NamedTuple):
    """The rows that a product reads, in the forms that its matrices ask for."""

    panel: NDArray[np.float32]
    """For each part of the rows `[inputs][rows]`."""
    panel_sums: NDArray[np.float32]
    """Sums of the panel's blocks, for each part `[blocks][rows]`."""
    codes: NDArray[np.int8]
    """`[row][inputs]`: what a block's step is multiplied with."""
    steps: NDArray[np.float32]
    """`[row][blocks]`"""
    sums: NDArray[np.float32]
    """`[row][blocks]`: sums of the rounded inputs."""
    counts: NDArray[np.int32]
    """`[row][blocks]`: sums of the codes."""


def _forms(matrices: Any, first: int, end: int) -> int:
    """Say in which forms these matrices want their rows: FLOATS, CODES or both."""
    found = 0
    for matrix in range(first, end):
        found |= FLOATS if matrices[matrix, 1] < FIRST_INT8 else CODES
    return found


def _place(line: Any, length: int, first: int, width: int, row: int, forms: int, inputs: Any) -> None:
    """Lay out one row of inputs; in the panel in its column of the part that starts with row `first`."""
    blocks = length // BLOCK_INPUTS
    if forms & FLOATS:
        at = first * length + row - first
        for i in range(length):
            inputs.panel[at + i * width] = line[i]
        at = first * blocks + row - first
        for block in range(blocks):
            inputs.panel_sums[at + block * width] = block_sum(line, block * BLOCK_INPUTS)
    if forms & CODES:
        for block in range(blocks):
            at = row * blocks + block
            quantise(
                line,
                block * BLOCK_INPUTS,
                inputs.codes,
                at * BLOCK_INPUTS,
                inputs.steps,
                inputs.sums,
                inputs.counts,
                at,
            )


def _fill_inputs(source: Any, rows: int, blocks: int, forms: int, inputs: Any) -> None:
    """Lay out the rows of `source` for a product over `blocks` blocks of inputs."""
    parts = num_parts(rows)
    for part in range(parts):
        first, end = part * rows // parts, (part + 1) * rows // parts
        for row in range(first, end):
            place(source[row], blocks * BLOCK_INPUTS, first, end - first, row, forms, inputs)


def _fill_inputs_normed(
    source: Any, index: Any, dim: int, norm_eps: float, weight: Any, line: Any, forms: int, inputs: Any
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
            place(line, length, first, end - first, row, forms, inputs)


_compiled = numba.njit(nogil=True, error_model="numpy")
items, num_parts, place, forms = _compiled(_items), _compiled(_num_parts), _compiled(_place), _compiled(_forms)
fill_inputs, fill_inputs_normed = _compiled(_fill_inputs), _compiled(_fill_inputs_normed)

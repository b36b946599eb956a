"""One pass of a llama, compiled: every thread runs `run_pass`, and they share the work of each stage by claims.

A stage is a list of items. A thread claims some, computes them, counts them as done, and goes on to the next stage when
all are done, whoever did them: a thread that the system keeps from running is not waited for, unless it holds a claim.

    stages of a layer: 0 q, k, v   1 RoPE and the KV blocks   2 attention   3 o   4 gate and up   5 down
    after the last layer: the logits
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.kernels.digest import SOURCES
from models.kernels.lanes import numba
from models.kernels.packing import BLOCK_INPUTS, LANES, STRIPS, TILE_OUTPUTS
from models.kernels.product import multiply_tile
from models.kernels.rows import exponentiate, gate_tile, mix_values, score_keys
from models.kernels.stages import fill_panel, fill_panel_normed, items, num_parts

Q, K, V, O, GATE, UP, DOWN = range(7)  # noqa: E741
NUM_MATRICES = 7
NUM_STAGES = 6

_F32 = NDArray[np.float32]


class Sizes(NamedTuple):
    """Numbers of a model that a pass needs."""

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    padded_head: int
    dim: int
    norm_eps: float


class Packed(NamedTuple):
    """A model's weights as the compiled code wants them."""

    memory: NDArray[np.uint8]
    matrices: NDArray[np.int64]
    """Per layer the seven of `Q` to `DOWN`, then the output matrix; columns as `pack_all` gives them."""
    norms: _F32
    """`[2 * layers + 1, dim filled up to whole blocks]`"""
    biases: _F32
    """`[layers, q + k + v outputs]`"""
    cosines: _F32
    sines: _F32


class Shared(NamedTuple):
    """Room that the threads of a pass share; columns beyond a row's own stay zero."""

    x: _F32
    """`[rows, dim]`: the residual stream."""
    qkv: _F32
    q: _F32
    """`[rows, heads, padded_head]`: turned and scaled queries."""
    mixed: _F32
    gated: _F32
    claims: NDArray[np.int64]


class Private(NamedTuple):
    """Room of each thread, `[threads, ...]`."""

    panel: _F32
    """Inputs of a product, for each part of the rows `[inputs][rows]`."""
    sums: _F32
    """Sums of the panel's blocks, for each part `[blocks][rows]`."""
    line: _F32
    out: _F32
    up: _F32
    scores: _F32
    heads: _F32


def _multiply(packed: Any, matrix: Any, tile: Any, first: Any, width: Any, panel: Any, sums: Any, out: Any) -> None:
    """Multiply rows `first` to `first + width` by one tile of a matrix."""
    kind, blocks, block_bytes = matrix[1], matrix[3], matrix[4]
    at = matrix[0] + tile * blocks * block_bytes
    panel_at, sums_at = first * blocks * BLOCK_INPUTS, first * blocks
    multiply_tile(kind, width, panel, panel_at, sums, sums_at, packed.memory, at, blocks, out)


def _qkv_item(
    packed: Any, matrices: Any, layer: Any, item: Any, rows: Any, qkv: Any, panel: Any, sums: Any, out: Any
) -> None:
    column, which = 0, Q
    while item >= matrices[which, 2]:
        item -= matrices[which, 2]
        column += matrices[which, 5]
        which += 1
    parts = num_parts(rows)
    for part in range(parts):
        first, end = part * rows // parts, (part + 1) * rows // parts
        width = end - first
        multiply(packed, matrices[which], item, first, width, panel, sums, out)
        for strip in range(STRIPS):
            output = item * TILE_OUTPUTS + strip * LANES
            for row in range(width):
                for lane in range(min(LANES, matrices[which, 5] - output)):
                    to = column + output + lane
                    qkv[first + row, to] = out[(strip * width + row) * LANES + lane] + packed.biases[layer, to]


def _add_item(packed: Any, matrix: Any, item: Any, rows: Any, x: Any, panel: Any, sums: Any, out: Any) -> None:
    """Add one item's outputs to the residual stream."""
    parts = num_parts(rows)
    for part in range(parts):
        first, end = part * rows // parts, (part + 1) * rows // parts
        width = end - first
        multiply(packed, matrix, item, first, width, panel, sums, out)
        for strip in range(STRIPS):
            output = item * TILE_OUTPUTS + strip * LANES
            for row in range(width):
                for lane in range(min(LANES, matrix[5] - output)):
                    x[first + row, output + lane] += out[(strip * width + row) * LANES + lane]


def _gate_item(
    packed: Any, matrices: Any, item: Any, rows: Any, gated: Any, panel: Any, sums: Any, out: Any, up: Any
) -> None:
    parts = num_parts(rows)
    for part in range(parts):
        first, end = part * rows // parts, (part + 1) * rows // parts
        width = end - first
        multiply(packed, matrices[GATE], item, first, width, panel, sums, out)
        multiply(packed, matrices[UP], item, first, width, panel, sums, up)
        for strip in range(STRIPS):
            output = item * TILE_OUTPUTS + strip * LANES
            for row in range(width):
                at = (strip * width + row) * LANES
                gate_tile(out, at, up, at)
                for lane in range(min(LANES, matrices[GATE, 5] - output)):
                    gated[first + row, output + lane] = out[at + lane]


def _logits_item(packed: Any, matrix: Any, item: Any, rows: Any, logits: Any, panel: Any, sums: Any, out: Any) -> None:
    parts = num_parts(rows)
    for part in range(parts):
        first, end = part * rows // parts, (part + 1) * rows // parts
        width = end - first
        multiply(packed, matrix, item, first, width, panel, sums, out)
        for strip in range(STRIPS):
            output = item * TILE_OUTPUTS + strip * LANES
            for row in range(width):
                for lane in range(min(LANES, matrix[5] - output)):
                    logits[first + row, output + lane] = out[(strip * width + row) * LANES + lane]


def _turn_row(packed: Any, sizes: Any, fed: Any, row: Any, shared: Any, keys: Any, values: Any) -> None:
    """Turn a row's queries and key by RoPE, and put its key and value in their block."""
    half, position = sizes.head_dim // 2, fed.positions[row]
    block, slot = fed.blocks[row], fed.slots[row]
    scale = np.float32(1 / np.sqrt(sizes.head_dim))
    qkv = shared.qkv[row]
    for head in range(sizes.num_heads):
        for i in range(half):
            cosine, sine = packed.cosines[position, i], packed.sines[position, i]
            even, odd = qkv[head * sizes.head_dim + 2 * i], qkv[head * sizes.head_dim + 2 * i + 1]
            shared.q[row, head, 2 * i] = (even * cosine - odd * sine) * scale
            shared.q[row, head, 2 * i + 1] = (even * sine + odd * cosine) * scale
    at = sizes.num_heads * sizes.head_dim
    for head in range(sizes.num_kv_heads):
        for i in range(half):
            cosine, sine = packed.cosines[position, i], packed.sines[position, i]
            even, odd = qkv[at + head * sizes.head_dim + 2 * i], qkv[at + head * sizes.head_dim + 2 * i + 1]
            keys[block, slot, head, 2 * i] = even * cosine - odd * sine
            keys[block, slot, head, 2 * i + 1] = even * sine + odd * cosine
    at += sizes.num_kv_heads * sizes.head_dim
    for head in range(sizes.num_kv_heads):
        for i in range(sizes.head_dim):
            values[block, slot, head, i] = qkv[at + head * sizes.head_dim + i]


def _attend(
    sizes: Any, fed: Any, row: Any, kv_head: Any, shared: Any, scores: Any, heads: Any, keys: Any, values: Any
) -> None:
    """Let the query heads of one row that share a key head attend to all positions up to the row's."""
    group, head = sizes.num_heads // sizes.num_kv_heads, sizes.padded_head
    _, block_tokens, kv_heads, _ = keys.shape
    length = fed.positions[row] + 1
    padded = (length + LANES - 1) // LANES * LANES
    table = fed.tables[fed.chunk_of[row]]
    first_head = kv_head * group
    q_at = (row * sizes.num_heads + first_head) * head
    stride = kv_heads * head
    for start in range(0, length, block_tokens):
        at = (table[start // block_tokens] * block_tokens * kv_heads + kv_head) * head
        run = min(block_tokens, length - start)
        score_keys(shared.q, q_at, group, keys, at, stride, run, head, scores, start, padded)
    heads[: group * head] = 0
    for member in range(group):
        scores[member * padded + length : (member + 1) * padded] = -np.inf
        heads[group * head + member] = exponentiate(scores, member * padded, padded)
    for start in range(0, length, block_tokens):
        at = (table[start // block_tokens] * block_tokens * kv_heads + kv_head) * head
        run = min(block_tokens, length - start)
        mix_values(scores, start, padded, group, values, at, stride, run, head, heads)
    for member in range(group):
        for i in range(sizes.head_dim):
            mixed = heads[member * head + i] / heads[group * head + member]
            shared.mixed[row, (first_head + member) * sizes.head_dim + i] = mixed


_inlined = numba.njit(nogil=True, error_model="numpy")
multiply = _inlined(_multiply)
qkv_item, add_item, gate_item, logits_item = map(_inlined, (_qkv_item, _add_item, _gate_item, _logits_item))
turn_row, attend = _inlined(_turn_row), _inlined(_attend)


def _compile(sources: int) -> Any:
    """Compile `run_pass`, or take it from the disk; `sources` in it keeps an older version's code from being taken."""

    def run_pass(
        thread: int, threads: int, sizes: Any, packed: Any, fed: Any, keys: Any, values: Any, shared: Any,
        private: Any, logits: Any,
    ) -> int:  # fmt: skip
        rows, wanted = len(fed.positions), len(fed.wanted)
        panel, sums, line, out = private.panel[thread], private.sums[thread], private.line[thread], private.out[thread]
        up, scores, heads = private.up[thread], private.scores[thread], private.heads[thread]
        claims = shared.claims
        all_rows = np.arange(rows)
        for layer in range(sizes.num_layers):
            first_stage = NUM_STAGES * layer
            matrices = packed.matrices[layer * NUM_MATRICES : (layer + 1) * NUM_MATRICES]

            fill_panel_normed(shared.x, all_rows, sizes.dim, sizes.norm_eps, packed.norms[2 * layer], line, panel, sums)
            total = matrices[Q, 2] + matrices[K, 2] + matrices[V, 2]
            for item in items(claims, first_stage, total, threads):
                qkv_item(packed, matrices, layer, item, rows, shared.qkv, panel, sums, out)

            for item in items(claims, first_stage + 1, rows, threads):
                turn_row(packed, sizes, fed, item, shared, keys[layer], values[layer])

            total = rows * sizes.num_kv_heads
            for item in items(claims, first_stage + 2, total, threads):
                row, kv_head = item // sizes.num_kv_heads, item % sizes.num_kv_heads
                attend(sizes, fed, row, kv_head, shared, scores, heads, keys[layer], values[layer])

            fill_panel(shared.mixed, rows, matrices[O, 3], panel, sums)
            total = matrices[O, 2]
            for item in items(claims, first_stage + 3, total, threads):
                add_item(packed, matrices[O], item, rows, shared.x, panel, sums, out)

            fill_panel_normed(
                shared.x, all_rows, sizes.dim, sizes.norm_eps, packed.norms[2 * layer + 1], line, panel, sums
            )
            total = matrices[GATE, 2]
            for item in items(claims, first_stage + 4, total, threads):
                gate_item(packed, matrices, item, rows, shared.gated, panel, sums, out, up)

            fill_panel(shared.gated, rows, matrices[DOWN, 3], panel, sums)
            total = matrices[DOWN, 2]
            for item in items(claims, first_stage + 5, total, threads):
                add_item(packed, matrices[DOWN], item, rows, shared.x, panel, sums, out)

        if wanted > 0:
            matrix = packed.matrices[-1]
            fill_panel_normed(shared.x, fed.wanted, sizes.dim, sizes.norm_eps, packed.norms[-1], line, panel, sums)
            total = matrix[2]
            for item in items(claims, NUM_STAGES * sizes.num_layers, total, threads):
                logits_item(packed, matrix, item, wanted, logits, panel, sums, out)
        return sources

    return numba.njit(nogil=True, error_model="numpy", cache=True)(run_pass)


run_pass = _compile(SOURCES)

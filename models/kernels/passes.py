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
from models.kernels.int8 import multiply_tile_int8
from models.kernels.lanes import numba
from models.kernels.packing import BLOCK_INPUTS, LANES, TILE_OUTPUTS
from models.kernels.product import multiply_tile
from models.kernels.rows import exponentiate, gate_strip, mix_values, score_keys
from models.kernels.stages import FIRST_INT8, Inputs, fill_inputs, fill_inputs_normed, forms, items, num_parts

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
    k_column: int
    v_column: int
    dim: int
    norm_eps: float


class Packed(NamedTuple):
    """A model's weights as the compiled code wants them."""

    memory: NDArray[np.uint8]
    matrices: NDArray[np.int64]
    """Per layer q, k, v, o, gate, up, down; at the end the output matrix; columns as `pack_all` gives them."""
    norms: _F32
    """`[2 * layers + 1, dim filled up to whole blocks]`"""
    biases: _F32
    """`[layers, q + k + v outputs]`, each of the three filled up to whole tiles."""
    cosines: _F32
    sines: _F32


class Shared(NamedTuple):
    """Room that the threads of a pass share, rows filled up to whole tiles; what is beyond a row's own stays zero."""

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

    inputs: Inputs
    line: _F32
    ups: _F32
    """`[rows][32]`: the up projection of a tile."""
    scores: _F32
    heads: _F32


def _multiply(memory: Any, matrix: Any, tile: int, rows: int, inputs: Any, out: Any, column: int, add: int) -> None:
    """Multiply all rows by one tile of a matrix, into `out` from `column` on."""
    kind, blocks, stride = matrix[1], matrix[3], out.shape[1]
    at = matrix[0] + tile * blocks * matrix[4]
    parts = num_parts(rows)
    for part in range(parts):
        first, end = part * rows // parts, (part + 1) * rows // parts
        out_at = first * stride + column + tile * TILE_OUTPUTS
        if kind < FIRST_INT8:
            multiply_tile(
                kind, end - first, inputs.panel, first * blocks * BLOCK_INPUTS, inputs.panel_sums, first * blocks,
                memory, at, blocks, out, out_at, stride, add,
            )  # fmt: skip
        else:
            multiply_tile_int8(
                kind, end - first, inputs.codes, inputs.steps, inputs.sums, inputs.counts, first, memory, at, blocks,
                out, out_at, stride, add,
            )  # fmt: skip


def _turn_row(packed: Any, sizes: Any, layer: int, fed: Any, row: int, shared: Any, keys: Any, values: Any) -> None:
    """Turn a row's queries and key by RoPE, and put its key and value in their block."""
    half, position = sizes.head_dim // 2, fed.positions[row]
    block, slot = fed.blocks[row], fed.slots[row]
    scale = np.float32(1 / np.sqrt(sizes.head_dim))
    qkv, bias = shared.qkv[row], packed.biases[layer]
    for column in range(len(qkv)):
        qkv[column] += bias[column]
    for head in range(sizes.num_heads):
        for i in range(half):
            cosine, sine = packed.cosines[position, i], packed.sines[position, i]
            even, odd = qkv[head * sizes.head_dim + 2 * i], qkv[head * sizes.head_dim + 2 * i + 1]
            shared.q[row, head, 2 * i] = (even * cosine - odd * sine) * scale
            shared.q[row, head, 2 * i + 1] = (even * sine + odd * cosine) * scale
    at = sizes.k_column
    for head in range(sizes.num_kv_heads):
        for i in range(half):
            cosine, sine = packed.cosines[position, i], packed.sines[position, i]
            even, odd = qkv[at + head * sizes.head_dim + 2 * i], qkv[at + head * sizes.head_dim + 2 * i + 1]
            keys[block, head, slot, 2 * i] = even * cosine - odd * sine
            keys[block, head, slot, 2 * i + 1] = even * sine + odd * cosine
    at = sizes.v_column
    for head in range(sizes.num_kv_heads):
        for i in range(sizes.head_dim):
            values[block, head, slot, i] = qkv[at + head * sizes.head_dim + i]


def _keep(features: Any, num_layers: int, fed: Any, row: int, x: Any) -> None:
    """Keep what so many layers have made of a row, where there is a tap for it."""
    tap = features.tap_after[num_layers]
    if tap >= 0:
        kept = features.memory[fed.blocks[row], fed.slots[row], tap]
        for i in range(len(kept)):
            kept[i] = x[i]


def _run_from(fed: Any, row: int, position: int, block_tokens: int) -> tuple[int, int]:
    """Give the slot where a row finds `position` of its sequence, and how many positions lie together from there on."""
    base = fed.bases[row]
    if position < base:
        return position, min(block_tokens, base - position)
    return fed.paths[row, position - base], 1


def _attend(
    sizes: Any, fed: Any, row: Any, kv_head: Any, shared: Any, scores: Any, heads: Any, keys: Any, values: Any
) -> None:
    """Let the query heads of one row that share a key head attend to all that the row sees."""
    group, head = sizes.num_heads // sizes.num_kv_heads, sizes.padded_head
    _, kv_heads, block_tokens, _ = keys.shape
    length = fed.positions[row] + 1
    padded = (length + LANES - 1) // LANES * LANES
    table = fed.tables[fed.chunk_of[row]]
    first_head = kv_head * group
    q_at = (row * sizes.num_heads + first_head) * head
    position = 0
    while position < length:
        slot, run = run_from(fed, row, position, block_tokens)
        at = ((table[slot // block_tokens] * kv_heads + kv_head) * block_tokens + slot % block_tokens) * head
        score_keys(shared.q, q_at, group, keys, at, head, run, head, scores, position, padded)
        position += run
    heads[: group * head] = 0
    for member in range(group):
        scores[member * padded + length : (member + 1) * padded] = -np.inf
        heads[group * head + member] = exponentiate(scores, member * padded, padded)
    position = 0
    while position < length:
        slot, run = run_from(fed, row, position, block_tokens)
        at = ((table[slot // block_tokens] * kv_heads + kv_head) * block_tokens + slot % block_tokens) * head
        mix_values(scores, position, padded, group, values, at, head, run, head, heads)
        position += run
    for member in range(group):
        for i in range(sizes.head_dim):
            mixed = heads[member * head + i] / heads[group * head + member]
            shared.mixed[row, (first_head + member) * sizes.head_dim + i] = mixed


_compiled = numba.njit(nogil=True, error_model="numpy")
multiply, turn_row, keep = _compiled(_multiply), _compiled(_turn_row), _compiled(_keep)
run_from, attend = _compiled(_run_from), _compiled(_attend)


def _compile(sources: int) -> Any:
    """Compile `run_pass`, or take it from the disk; `sources` in it keeps an older version's code from being taken."""

    def run_pass(
        thread: int, threads: int, sizes: Any, packed: Any, fed: Any, keys: Any, values: Any, features: Any,
        shared: Any, private: Any, logits: Any,
    ) -> int:  # fmt: skip
        every, line = private.inputs, private.line[thread]
        inputs = Inputs(
            every.panel[thread], every.panel_sums[thread], every.codes[thread], every.steps[thread],
            every.sums[thread], every.counts[thread],
        )  # fmt: skip
        ups, scores, heads = private.ups[thread], private.scores[thread], private.heads[thread]
        memory, matrices, claims = packed.memory, packed.matrices, shared.claims
        rows = len(fed.positions)
        all_rows = np.arange(rows)
        for layer in range(sizes.num_layers):
            stage, q = NUM_STAGES * layer, NUM_MATRICES * layer
            k, v, o, gate, up, down = q + 1, q + 2, q + 3, q + 4, q + 5, q + 6

            norm, form = packed.norms[2 * layer], forms(matrices, q, o)
            fill_inputs_normed(shared.x, all_rows, sizes.dim, sizes.norm_eps, norm, line, form, inputs)
            q_tiles, k_tiles = matrices[q, 2], matrices[k, 2]
            for tile in items(claims, stage, q_tiles + 2 * k_tiles, threads):
                if tile < q_tiles:
                    multiply(memory, matrices[q], tile, rows, inputs, shared.qkv, 0, 0)
                elif tile < q_tiles + k_tiles:
                    multiply(memory, matrices[k], tile - q_tiles, rows, inputs, shared.qkv, sizes.k_column, 0)
                else:
                    v_tile = tile - q_tiles - k_tiles
                    multiply(memory, matrices[v], v_tile, rows, inputs, shared.qkv, sizes.v_column, 0)

            for row in items(claims, stage + 1, rows, threads):
                turn_row(packed, sizes, layer, fed, row, shared, keys[layer], values[layer])
                keep(features, layer, fed, row, shared.x[row])  # which no thread adds to before this stage is done

            for item in items(claims, stage + 2, rows * sizes.num_kv_heads, threads):
                row, kv_head = item // sizes.num_kv_heads, item % sizes.num_kv_heads
                attend(sizes, fed, row, kv_head, shared, scores, heads, keys[layer], values[layer])

            fill_inputs(shared.mixed, rows, matrices[o, 3], forms(matrices, o, gate), inputs)
            for tile in items(claims, stage + 3, matrices[o, 2], threads):
                multiply(memory, matrices[o], tile, rows, inputs, shared.x, 0, 1)

            norm, form = packed.norms[2 * layer + 1], forms(matrices, gate, down)
            fill_inputs_normed(shared.x, all_rows, sizes.dim, sizes.norm_eps, norm, line, form, inputs)
            for tile in items(claims, stage + 4, matrices[gate, 2], threads):
                multiply(memory, matrices[gate], tile, rows, inputs, shared.gated, 0, 0)
                multiply(memory, matrices[up], tile, rows, inputs, ups, -tile * TILE_OUTPUTS, 0)
                for row in range(rows):
                    for lane in range(0, TILE_OUTPUTS, LANES):
                        at = row * shared.gated.shape[1] + tile * TILE_OUTPUTS + lane
                        gate_strip(shared.gated, at, ups, row * TILE_OUTPUTS + lane)

            fill_inputs(shared.gated, rows, matrices[down, 3], forms(matrices, down, down + 1), inputs)
            for tile in items(claims, stage + 5, matrices[down, 2], threads):
                multiply(memory, matrices[down], tile, rows, inputs, shared.x, 0, 1)

        if thread == 0:
            for row in range(rows):
                keep(features, sizes.num_layers, fed, row, shared.x[row])
        wanted, output = len(fed.wanted), len(matrices) - 1
        norm, form = packed.norms[-1], forms(matrices, output, output + 1)
        fill_inputs_normed(shared.x, fed.wanted, sizes.dim, sizes.norm_eps, norm, line, form, inputs)
        num_tiles = matrices[output, 2] if wanted > 0 else 0
        for tile in items(claims, NUM_STAGES * sizes.num_layers, num_tiles, threads):
            multiply(memory, matrices[output], tile, wanted, inputs, logits, 0, 0)
        return sources

    return numba.njit(nogil=True, error_model="numpy", cache=True)(run_pass)


run_pass = _compile(SOURCES)

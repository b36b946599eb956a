"""What a row goes through between the products: norm, activation, attention; and how threads share the work."""

import sys
from typing import Any

from models.kernels.lanes import FLOATS, I32, I64, Lanes, intrinsic, ir, numba
from models.kernels.packing import BLOCK_INPUTS, LANES

_ZERO = FLOATS([0.0] * LANES)
_HEADS = 3  # that a value is read for at a time
_PIECES = 4  # of a value that are summed side by side, so that additions do not wait for one another


def _block_sum(lanes: Lanes, array: Any, at: Any) -> Any:
    """Sum the 32 floats from `array[at]` on."""
    total = lanes.load(array, at)
    for first in range(LANES, BLOCK_INPUTS, LANES):
        total = lanes.b.fadd(total, lanes.load(array, lanes.add(at, first)))
    return lanes.fold(total, lanes.b.fadd)


def _sum_squares(lanes: Lanes, array: Any, at: Any, length: Any) -> Any:
    """Sum the squares of `length` floats, a multiple of 16, from `array[at]` on."""
    total = lanes.slot(_ZERO)
    with lanes.loop(lanes.b.udiv(length, I64(LANES))) as index:
        x = lanes.load(array, lanes.add(at, lanes.mul(index, LANES)))
        lanes.b.store(lanes.fma(x, x, lanes.b.load(total)), total)
    return lanes.fold(lanes.b.load(total), lanes.b.fadd)


def _gate_strip(lanes: Lanes, gate: Any, gate_at: Any, up: Any, up_at: Any) -> None:
    """Turn sixteen gates into `silu(gate) * up`, in place."""
    b = lanes.b
    x = lanes.load(gate, gate_at)
    opened = b.fdiv(x, b.fadd(lanes.splat(1.0), lanes.exp(b.fneg(x))))
    lanes.store(b.fmul(opened, lanes.load(up, up_at)), gate, gate_at)


def _score_keys(
    lanes: Lanes, q: Any, q_at: Any, group: Any, keys: Any, key_at: Any, key_stride: Any, num_keys: Any, head_dim: Any,
    scores: Any, score_at: Any, score_stride: Any,
) -> None:  # fmt: skip
    """Write `scores[head][key]`, the dot products of a group of query heads and a run of keys."""
    whole = lanes.b.udiv(num_keys, I64(LANES))

    def score(head: Any, first: Any, count: int) -> list[Any]:
        """Multiply one head with `count` keys from `first` on; the lanes are still to be summed."""
        totals = [lanes.slot(_ZERO) for _ in range(count)]
        for total in totals:
            lanes.b.store(_ZERO, total)
        with lanes.loop(lanes.b.udiv(head_dim, I64(LANES))) as piece:
            offset = lanes.mul(piece, LANES)
            left = lanes.load(q, lanes.add(lanes.add(q_at, lanes.mul(head, head_dim)), offset))
            for i, total in enumerate(totals):
                place = lanes.add(lanes.add(key_at, lanes.mul(lanes.add(first, i), key_stride)), offset)
                lanes.b.store(lanes.fma(left, lanes.load(keys, place), lanes.b.load(total)), total)
        return [lanes.b.load(total) for total in totals]

    with lanes.loop(group) as head:
        row_at = lanes.add(score_at, lanes.mul(head, score_stride))
        with lanes.loop(whole) as sixteen:
            first = lanes.mul(sixteen, LANES)
            lanes.store(lanes.fold_all(score(head, first, LANES)), scores, lanes.add(row_at, first))
        with lanes.loop(lanes.b.urem(num_keys, I64(LANES))) as rest:
            key = lanes.add(lanes.mul(whole, LANES), rest)
            (total,) = score(head, key, 1)
            lanes.store(lanes.fold(total, lanes.b.fadd), scores, lanes.add(row_at, key))


def _exponentiate(lanes: Lanes, scores: Any, at: Any, length: Any) -> Any:
    """Turn `length` scores, a multiple of 16, into `exp(score - largest)`, in place, and give their sum."""
    pieces = lanes.b.udiv(length, I64(LANES))
    largest = lanes.slot(lanes.load(scores, at))
    with lanes.loop(pieces) as piece:
        x = lanes.load(scores, lanes.add(at, lanes.mul(piece, LANES)))
        lanes.b.store(lanes.larger(lanes.b.load(largest), x), largest)
    peak = lanes.slot(_ZERO)
    lanes.b.store(lanes.splat(_max_of(lanes, lanes.b.load(largest))), peak)
    total = lanes.slot(_ZERO)
    with lanes.loop(pieces) as piece:
        place = lanes.add(at, lanes.mul(piece, LANES))
        powers = lanes.exp(lanes.b.fsub(lanes.load(scores, place), lanes.b.load(peak)))
        lanes.store(powers, scores, place)
        lanes.b.store(lanes.b.fadd(lanes.b.load(total), powers), total)
    return lanes.fold(lanes.b.load(total), lanes.b.fadd)


def _max_of(lanes: Lanes, vector: Any) -> Any:
    return lanes.fold(vector, lanes.larger)


def _mix_values(
    lanes: Lanes, shares: Any, share_at: Any, share_stride: Any, group: Any, values: Any, value_at: Any,
    value_stride: Any, num_keys: Any, head_dim: Any, out: Any,
) -> None:  # fmt: skip
    """Add a run of values, each times its share, to `out[head][head_dim]`."""
    pieces = lanes.b.udiv(head_dim, I64(LANES))
    wide = lanes.b.udiv(pieces, I64(_PIECES))

    def mix(head: Any, num_heads: int, piece: Any, count: int) -> None:
        """Mix `count` pieces of the values, sixteen floats each, from `piece` on, for heads from one on."""
        offsets = [lanes.mul(lanes.add(piece, i), LANES) for i in range(count)]
        heads = [lanes.add(head, i) for i in range(num_heads)]
        out_at = [[lanes.add(lanes.mul(each, head_dim), offset) for offset in offsets] for each in heads]
        totals = [[lanes.slot(_ZERO) for _ in offsets] for _ in heads]
        for i, slots in enumerate(totals):
            for total, at in zip(slots, out_at[i], strict=True):
                lanes.b.store(lanes.load(out, at), total)
        with lanes.loop(num_keys) as key:
            shares_at = [lanes.add(lanes.add(share_at, lanes.mul(each, share_stride)), key) for each in heads]
            parts = [lanes.splat(lanes.scalar(shares, place)) for place in shares_at]
            row_at = lanes.add(value_at, lanes.mul(key, value_stride))
            for i, offset in enumerate(offsets):
                value = lanes.load(values, lanes.add(row_at, offset))
                for slots, share in zip(totals, parts, strict=True):
                    lanes.b.store(lanes.fma(share, value, lanes.b.load(slots[i])), slots[i])
        for i, slots in enumerate(totals):
            for total, at in zip(slots, out_at[i], strict=True):
                lanes.store(lanes.b.load(total), out, at)

    def mix_heads(head: Any, num_heads: int) -> None:
        with lanes.loop(wide) as several:
            mix(head, num_heads, lanes.mul(several, _PIECES), _PIECES)
        with lanes.loop(lanes.b.urem(pieces, I64(_PIECES))) as rest:
            mix(head, num_heads, lanes.add(lanes.mul(wide, _PIECES), rest), 1)

    together = lanes.b.udiv(group, I64(_HEADS))
    with lanes.loop(together) as several_heads:
        mix_heads(lanes.mul(several_heads, _HEADS), _HEADS)
    with lanes.loop(lanes.b.urem(group, I64(_HEADS))) as head:
        mix_heads(lanes.add(lanes.mul(together, _HEADS), head), 1)


def _fetch_add(lanes: Lanes, array: Any, at: Any, amount: Any) -> Any:
    """Add to an int64 that threads share, and give what it was."""
    return lanes.b.atomic_rmw("add", lanes.at(array, at, I64), amount, "seq_cst")


def _fetch(lanes: Lanes, array: Any, at: Any) -> Any:
    """Read an int64 that threads share."""
    return lanes.b.load_atomic(lanes.at(array, at, I64), "seq_cst", 8)


def _give_way(lanes: Lanes) -> None:
    """Let another thread have the processor."""
    name, kind = ("SwitchToThread", I32) if sys.platform == "win32" else ("sched_yield", I32)
    module = lanes.b.module
    function = module.globals.get(name) or ir.Function(module, ir.FunctionType(kind, []), name)
    lanes.b.call(function, [])


block_sum = intrinsic(_block_sum, numba.float32)
sum_squares = intrinsic(_sum_squares, numba.float32)
gate_strip = intrinsic(_gate_strip)
score_keys = intrinsic(_score_keys)
exponentiate = intrinsic(_exponentiate, numba.float32)
mix_values = intrinsic(_mix_values)
fetch_add = intrinsic(_fetch_add, numba.int64)
fetch = intrinsic(_fetch, numba.int64)
give_way = intrinsic(_give_way)

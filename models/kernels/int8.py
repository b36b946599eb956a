"""Products of quantised weights and rows rounded to 8 bits: exact integers within a block, floats over blocks."""

from typing import Any

from models.extras import need
from models.kernels.lanes import F16, FLOATS, I8, I32, I64, INTS, Lanes, cgutils, intrinsic, ir
from models.kernels.packing import BLOCK_INPUTS, INT8_KINDS, LANES, STRIP_BYTES, STRIPS, Kind
from models.kernels.product import MAX_ROWS

HAS_VNNI = bool(need("llvmlite.binding", "fast").get_host_cpu_features().get("avx512vnni"))
"""The processor multiplies bytes four at a time (`vpdpbusd`); without it no code for 8-bit rows is made."""

_ZERO, _NOTHING = FLOATS([0.0] * LANES), INTS([0] * LANES)
_AHEAD_BYTES = 4096
_LINE_BYTES = 64
_NUM_GROUPS = BLOCK_INPUTS // 4  # of four inputs, that one instruction takes
_TAKEN_OFF = {Kind.Q8_0_INT8: 128, Kind.Q4_0_INT8: 8, Kind.Q4_1_INT8: 0}


def _quantise(
    lanes: Lanes, line: Any, line_at: Any, codes: Any, codes_at: Any, steps: Any, sums: Any, counts: Any, block_at: Any,
) -> None:  # fmt: skip
    """Round a block of 32 floats to `step * code`, codes in [-127, 127], and sum its codes.

    A block with a number that is not finite has a step that is not finite either.
    """
    b = lanes.b
    halves = [lanes.load(line, lanes.add(line_at, first)) for first in (0, LANES)]
    # as integers, magnitudes are in the order of the floats, and above them all are infinity and nan
    bits = [b.and_(b.bitcast(x, INTS), INTS([0x7FFFFFFF] * LANES)) for x in halves]
    peak = lanes.fold(_larger_int(lanes, *bits), lambda left, right: _larger_int(lanes, left, right))
    peak = b.bitcast(peak, FLOATS.element)
    step = b.fdiv(peak, FLOATS.element(127.0))
    is_usable = b.and_(
        b.fcmp_ordered(">", peak, FLOATS.element(1e-30)), b.fcmp_ordered("<", peak, FLOATS.element(1e37))
    )
    inverse = lanes.splat(b.select(is_usable, b.fdiv(FLOATS.element(127.0), peak), FLOATS.element(0.0)))
    count = _NOTHING
    for half, x in enumerate(halves):
        rounded = lanes.larger(lanes.call("rint", b.fmul(x, inverse)), lanes.splat(-127.0))  # nan becomes a number here
        rounded = b.select(b.fcmp_ordered("<", rounded, lanes.splat(127.0)), rounded, lanes.splat(127.0))
        whole = b.fptosi(rounded, INTS)
        count = b.add(count, whole)
        lanes.store(b.trunc(whole, ir.VectorType(I8, LANES)), codes, lanes.add(codes_at, half * LANES))
    total = lanes.fold(count, b.add)
    lanes.store(step, steps, block_at)
    lanes.store(b.fmul(step, b.sitofp(total, FLOATS.element)), sums, block_at)
    lanes.store(total, counts, block_at)


def _larger_int(lanes: Lanes, left: Any, right: Any) -> Any:
    return lanes.b.select(lanes.b.icmp_unsigned(">", left, right), left, right)


def _multiply_tile_int8(
    lanes: Lanes, kind: Any, rows: Any, codes: Any, steps: Any, sums: Any, counts: Any, first: Any, weights: Any,
    at: Any, num_blocks: Any, out: Any, out_at: Any, out_stride: Any, add: Any,
) -> None:  # fmt: skip
    """Write `out[rows][outputs]`, the products of rows `first`, `first + 1` ... of the codes and a packed tile.

    `codes` are `[row][inputs]`, `steps`, `sums` (of a block, step included) and `counts` (the sums of its codes)
    `[row][blocks]`. Per row and output, over the blocks in order: `total = fma(dot, scale * step, total)`, where
    `dot` is an exact integer, and with an offset `total = fma(offset, sum, total)` after it.
    """
    if not HAS_VNNI:
        return
    b = lanes.b
    must_add = b.icmp_signed("!=", add, I64(0))
    done = b.append_basic_block("done")
    switch = b.switch(lanes.add(lanes.mul(kind, MAX_ROWS), rows), done)
    for each in INT8_KINDS:
        for num_rows in range(1, MAX_ROWS + 1):
            case = b.append_basic_block(f"{each.name}_{num_rows}")
            switch.add_case(I64(each * MAX_ROWS + num_rows), case)
            b.position_at_end(case)
            tile = _Tile(lanes, each, weights, at, (codes, steps, sums, counts), first, num_blocks)
            tile.write(num_rows, (out, out_at, out_stride, must_add))
            b.branch(done)
    b.position_at_end(done)


class _Tile:
    """The code for one format and number of rows."""

    def __init__(
        self, lanes: Lanes, kind: Kind, weights: Any, at: Any, inputs: tuple[Any, Any, Any, Any], first: Any,
        num_blocks: Any,
    ) -> None:  # fmt: skip
        self._lanes, self._kind, self._weights, self._at = lanes, kind, weights, at
        self._codes, self._steps, self._sums, self._counts = inputs
        self._first, self._num_blocks = first, num_blocks

    def write(self, num_rows: int, target: tuple[Any, Any, Any, Any]) -> None:
        lanes = self._lanes
        out, out_at, out_stride, must_add = target
        size = STRIP_BYTES[self._kind]
        totals = {(strip, row): lanes.slot(_ZERO) for strip in range(STRIPS) for row in range(num_rows)}
        for slot in totals.values():
            lanes.b.store(_ZERO, slot)
        with lanes.loop(self._num_blocks) as block:
            block_at = lanes.add(self._at, lanes.mul(block, STRIPS * size))
            for line in range(0, STRIPS * size, _LINE_BYTES):
                lanes.prefetch(self._weights, lanes.add(block_at, _AHEAD_BYTES + line))
            for strip in range(STRIPS):
                strip_at = lanes.add(block_at, strip * size)
                weights, scales = self._decode(strip_at), self._halves(strip_at)
                offsets = self._halves(lanes.add(strip_at, 2 * LANES)) if self._kind is Kind.Q4_1_INT8 else None
                for row in range(num_rows):
                    slot = totals[strip, row]
                    lanes.b.store(self._row(row, block, weights, scales, offsets, lanes.b.load(slot)), slot)
        for (strip, row), slot in totals.items():
            total = lanes.b.load(slot)
            place = lanes.add(lanes.add(out_at, lanes.mul(out_stride, row)), strip * LANES)
            added = lanes.b.fadd(lanes.load(out, place), total)
            lanes.store(lanes.b.select(must_add, added, total), out, place)

    def _row(self, row: int, block: Any, weights: list[Any], scales: Any, offsets: Any, total: Any) -> Any:
        """Add a block's part of one row to its total."""
        lanes, b = self._lanes, self._lanes.b
        place = lanes.add(lanes.mul(lanes.add(self._first, row), self._num_blocks), block)
        codes_at = lanes.mul(place, BLOCK_INPUTS)
        dots = [_NOTHING, _NOTHING]  # two, so that one need not wait for the other
        if _TAKEN_OFF[self._kind]:
            count = b.load(lanes.at(self._counts, place, I32))
            dots[0] = _splat_int(lanes, b.mul(count, I32(-_TAKEN_OFF[self._kind])))
        for group, four in enumerate(weights):
            x = _splat_int(lanes, b.load(lanes.at(self._codes, lanes.add(codes_at, 4 * group), I32), align=1))
            dots[group % 2] = _dot(lanes, dots[group % 2], four, x)
        step = lanes.splat(lanes.scalar(self._steps, place))
        total = lanes.fma(b.sitofp(b.add(*dots), FLOATS), b.fmul(scales, step), total)
        if offsets is None:
            return total
        return lanes.fma(offsets, lanes.splat(lanes.scalar(self._sums, place)), total)

    def _decode(self, strip_at: Any) -> list[Any]:
        """Give the weights of a block as unsigned bytes, by groups of four inputs."""
        lanes, b = self._lanes, self._lanes.b
        first = lanes.add(strip_at, STRIP_BYTES[self._kind] - LANES * BLOCK_INPUTS // (1 if self._is_bytes else 2))
        count = _NUM_GROUPS if self._is_bytes else _NUM_GROUPS // 2
        stored = [b.load(lanes.at(self._weights, lanes.add(first, 4 * LANES * i), INTS), align=1) for i in range(count)]
        if self._is_bytes:
            return stored
        mask = INTS([0x0F0F0F0F] * LANES)
        return [b.and_(x, mask) for x in stored] + [b.and_(b.lshr(x, INTS([4] * LANES)), mask) for x in stored]

    @property
    def _is_bytes(self) -> bool:
        return self._kind is Kind.Q8_0_INT8

    def _halves(self, at: Any) -> Any:
        """Load sixteen half-precision numbers as floats."""
        return self._lanes.b.fpext(self._lanes.load(self._weights, at, F16), FLOATS)


def _dot(lanes: Lanes, total: Any, unsigned: Any, signed: Any) -> Any:
    """Add to each lane the products of its four unsigned and four signed bytes; nothing saturates."""
    kind = ir.FunctionType(INTS, [INTS] * 3)
    function = cgutils.get_or_insert_function(lanes.b.module, kind, "llvm.x86.avx512.vpdpbusd.512")
    return lanes.b.call(function, [total, unsigned, signed])


def _splat_int(lanes: Lanes, value: Any) -> Any:
    one = lanes.b.insert_element(INTS(ir.Undefined), value, I32(0))
    return lanes.b.shuffle_vector(one, INTS(ir.Undefined), _NOTHING)


quantise = intrinsic(_quantise)
multiply_tile_int8 = intrinsic(_multiply_tile_int8)

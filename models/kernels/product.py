"""One routine for every product of weights and rows: a tile of outputs, a few rows, all inputs."""

from typing import Any

from models.extras import need
from models.kernels.lanes import F16, FLOATS, I8, I64, INTS, Lanes, intrinsic
from models.kernels.packing import BLOCK_INPUTS, INT8_KINDS, LANES, STRIP_BYTES, STRIPS, Kind

MAX_ROWS = 12 if need("llvmlite.binding", "fast").get_host_cpu_features().get("avx512f") else 3
"""Rows that share one decoding of the weights: as many as have their two running sums in the processor's registers."""

_HALF = BLOCK_INPUTS // 2
_ZERO = FLOATS([0.0] * LANES)
_AHEAD_BYTES = 2560  # how far ahead weights are asked for; memory answers after some hundred cycles
_LINE_BYTES = 64


def _multiply_tile(
    lanes: Lanes, kind: Any, rows: Any, panel: Any, panel_at: Any, sums: Any, sums_at: Any, weights: Any, at: Any,
    num_blocks: Any, out: Any, out_at: Any, out_stride: Any, add: Any,
) -> None:  # fmt: skip
    """Write `out[rows][outputs]`, the products of `panel[inputs][rows]` and a tile of packed weights.

    The rows of `out` are `out_stride` floats apart; with `add` not 0 the products are added to what is there.

    Per row and output, over the blocks in order: `total = fma(scale, block, total)`, where `block` is the running sum
    over the block's inputs 0, 16, 1, 17, ... How many rows go together changes which products are computed side by
    side, never the order of one. `sums[blocks][rows]` are the sums of a block's inputs, which the formats with an
    offset need.
    """
    builder = lanes.b
    target = (out, out_at, out_stride, builder.icmp_signed("!=", add, I64(0)))
    done = builder.append_basic_block("done")
    switch = builder.switch(lanes.add(lanes.mul(kind, MAX_ROWS), rows), done)
    for each in sorted(set(Kind) - set(INT8_KINDS)):
        for num_rows in range(1, MAX_ROWS + 1):
            case = builder.append_basic_block(f"{each.name}_{num_rows}")
            switch.add_case(I64(each * MAX_ROWS + num_rows), case)
            builder.position_at_end(case)
            _Tile(lanes, each, num_rows, panel, panel_at, sums, sums_at, weights, at).write(num_blocks, target)
            builder.branch(done)
    builder.position_at_end(done)


multiply_tile = intrinsic(_multiply_tile)


class _Tile:
    """The code for one format and number of rows."""

    def __init__(
        self, lanes: Lanes, kind: Kind, num_rows: int, panel: Any, panel_at: Any, sums: Any, sums_at: Any,
        weights: Any, at: Any,
    ) -> None:  # fmt: skip
        self._lanes, self._kind, self._num_rows = lanes, kind, num_rows
        self._panel, self._panel_at, self._sums, self._sums_at = panel, panel_at, sums, sums_at
        self._weights, self._at = weights, at

    def write(self, num_blocks: Any, target: tuple[Any, Any, Any, Any]) -> None:
        lanes = self._lanes
        out, out_at, out_stride, add = target
        pairs = [(strip, row) for strip in range(STRIPS) for row in range(self._num_rows)]
        totals = {pair: lanes.slot(_ZERO) for pair in pairs}
        running = {pair: lanes.slot(_ZERO) for pair in pairs}
        size = STRIP_BYTES[self._kind]
        with lanes.loop(num_blocks) as block:
            block_at = lanes.add(self._at, lanes.mul(block, STRIPS * size))
            for line in range(0, STRIPS * size, _LINE_BYTES):
                lanes.prefetch(self._weights, lanes.add(block_at, _AHEAD_BYTES + line))
            strips_at = [lanes.add(block_at, strip * size) for strip in range(STRIPS)]
            for pair in pairs:
                lanes.b.store(_ZERO, running[pair])
            with lanes.loop(_HALF) as index:
                self._accumulate(running, strips_at, block, index)
            for strip, row in pairs:
                total = self._scaled(
                    lanes.b.load(running[strip, row]), lanes.b.load(totals[strip, row]), strips_at[strip], block, row
                )
                lanes.b.store(total, totals[strip, row])
        for strip, row in pairs:
            total = lanes.b.load(totals[strip, row])
            place = lanes.add(lanes.add(out_at, lanes.mul(out_stride, row)), strip * LANES)
            added = lanes.b.fadd(lanes.load(out, place), total)
            lanes.store(lanes.b.select(add, added, total), out, place)

    def _accumulate(self, running: dict[tuple[int, int], Any], strips_at: list[Any], block: Any, index: Any) -> None:
        """Add the products of the block's inputs `index` and `index + 16`."""
        lanes = self._lanes
        decoded = [self._decode(strip_at, index) for strip_at in strips_at]
        x_at = lanes.add(self._panel_at, lanes.mul(lanes.add(lanes.mul(block, BLOCK_INPUTS), index), self._num_rows))
        for half in range(2):
            for row in range(self._num_rows):
                x = lanes.splat(lanes.scalar(self._panel, lanes.add(x_at, half * _HALF * self._num_rows + row)))
                for strip, weights in enumerate(decoded):
                    total = lanes.b.load(running[strip, row])
                    lanes.b.store(lanes.fma(weights[half], x, total), running[strip, row])

    def _decode(self, strip_at: Any, index: Any) -> tuple[Any, Any]:
        """Decode the weights of inputs `index` and `index + 16`, unscaled."""
        lanes, b, kind = self._lanes, self._lanes.b, self._kind

        def load(scale_bytes: int, weight_bytes: int, half: int, stored: Any) -> Any:
            place = lanes.mul(lanes.add(index, half * _HALF), LANES * weight_bytes)
            return lanes.load(self._weights, lanes.add(lanes.add(strip_at, scale_bytes), place), stored)

        if kind in (Kind.Q4_0, Kind.Q4_1):
            packed = b.zext(load(2 * LANES if kind is Kind.Q4_0 else 4 * LANES, 1, 0, I8), INTS)
            low, high = b.and_(packed, INTS([15] * LANES)), b.lshr(packed, INTS([4] * LANES))
            return b.sitofp(low, FLOATS), b.sitofp(high, FLOATS)
        if kind is Kind.Q8_0:
            return tuple(b.sitofp(b.sext(load(2 * LANES, 1, half, I8), INTS), FLOATS) for half in range(2))
        if kind is Kind.F16:
            return tuple(b.fpext(load(0, 2, half, F16), FLOATS) for half in range(2))
        return load(0, 4, 0, FLOATS.element), load(0, 4, 1, FLOATS.element)

    def _scaled(self, running: Any, total: Any, strip_at: Any, block: Any, row: int) -> Any:
        lanes, kind = self._lanes, self._kind
        if kind in (Kind.F32, Kind.F16):
            return lanes.b.fadd(total, running)
        scale = lanes.b.fpext(lanes.load(self._weights, strip_at, F16), FLOATS)
        if kind is Kind.Q8_0:
            return lanes.fma(scale, running, total)
        place = lanes.add(self._sums_at, lanes.add(lanes.mul(block, self._num_rows), row))
        inputs = lanes.splat(lanes.scalar(self._sums, place))
        if kind is Kind.Q4_0:
            return lanes.fma(scale, lanes.fma(inputs, lanes.splat(-8.0), running), total)
        offset = lanes.b.fpext(lanes.load(self._weights, lanes.add(strip_at, 2 * LANES), F16), FLOATS)
        return lanes.fma(offset, inputs, lanes.fma(scale, running, total))

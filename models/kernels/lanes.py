"""Vectors of sixteen floats in LLVM's own language, for code whose every rounding is spelled out.

A loop left to an optimiser may add in another order when it is compiled for another shape. Here each fused
multiply-add is written down, so a row's result follows from IEEE arithmetic alone. LLVM splits the vectors to what the
processor has.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from models.extras import need
from models.kernels.packing import LANES

ir: Any = need("llvmlite.ir", "fast")
numba: Any = need("numba", "fast")
extending: Any = need("numba.extending", "fast")
cgutils: Any = need("numba.core.cgutils", "fast")

I8, I32, I64 = (ir.IntType(bits) for bits in (8, 32, 64))
F16, F32 = ir.HalfType(), ir.FloatType()
FLOATS, INTS = ir.VectorType(F32, LANES), ir.VectorType(I32, LANES)


def intrinsic(build: Callable[..., Any], result: Any = None) -> Any:
    """Make `build(lanes, *values)` callable from compiled code; an array arrives as a pointer to its first element."""

    def typed(_context: Any, *types: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            plain = [
                context.make_array(kind)(context, builder, value).data if hasattr(kind, "ndim") else value
                for kind, value in zip(signature.args, values, strict=True)
            ]
            made = build(Lanes(builder), *plain)
            return context.get_dummy_value() if result is None else made

        return (result or numba.void)(*types), generate

    _, *parameters = inspect.signature(build).parameters.values()
    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    typed.__signature__ = inspect.Signature([context, *parameters])  # type: ignore[attr-defined]
    typed.__name__ = build.__name__
    return extending.intrinsic(typed)


class Lanes:
    """Writes vector code through an LLVM builder."""

    def __init__(self, builder: Any) -> None:
        self.b = builder

    def int(self, value: Any) -> Any:
        """Give a 64-bit constant, or the value itself."""
        return I64(value) if isinstance(value, int) else value

    def add(self, left: Any, right: Any) -> Any:
        """Add 64-bit integers."""
        return self.b.add(self.int(left), self.int(right))

    def mul(self, left: Any, right: Any) -> Any:
        """Multiply 64-bit integers."""
        return self.b.mul(self.int(left), self.int(right))

    def at(self, base: Any, offset: Any, kind: Any = F32) -> Any:
        """Point to `kind` at element `offset` of `base`."""
        return self.b.bitcast(self.b.gep(base, [self.int(offset)]), kind.as_pointer())

    def load(self, base: Any, offset: Any, kind: Any = F32) -> Any:
        """Load sixteen numbers of `kind` from element `offset` of `base`."""
        return self.b.load(self.at(base, offset, ir.VectorType(kind, LANES)), align=1)

    def store(self, value: Any, base: Any, offset: Any) -> None:
        """Store a vector, or a float, at element `offset` of `base`."""
        self.b.store(value, self.at(base, offset, value.type), align=1)

    def scalar(self, base: Any, offset: Any) -> Any:
        """Load one float."""
        return self.b.load(self.at(base, offset))

    def prefetch(self, base: Any, offset: Any) -> None:
        """Ask for the cache line of byte `offset` of `base`, which need not exist."""
        kind = ir.FunctionType(ir.VoidType(), [I8.as_pointer(), I32, I32, I32])
        function = cgutils.get_or_insert_function(self.b.module, kind, "llvm.prefetch.p0")
        self.b.call(function, [self.at(base, offset, I8), I32(0), I32(3), I32(1)])

    def splat(self, value: Any) -> Any:
        """Spread a float over all lanes."""
        if isinstance(value, float):
            return FLOATS([value] * LANES)
        one = self.b.insert_element(FLOATS(ir.Undefined), value, I32(0))
        return self.b.shuffle_vector(one, FLOATS(ir.Undefined), INTS([0] * LANES))

    def fma(self, left: Any, right: Any, addend: Any) -> Any:
        """Round `left * right + addend` once."""
        return self.call("fma", left, right, addend)

    def call(self, name: str, *values: Any) -> Any:
        """Call an LLVM operation on whole vectors."""
        kind = ir.FunctionType(FLOATS, [FLOATS] * len(values))
        function = cgutils.get_or_insert_function(self.b.module, kind, f"llvm.{name}.v{LANES}f32")
        return self.b.call(function, values)

    def fold(self, vector: Any, join: Callable[[Any, Any], Any]) -> Any:
        """Join all lanes into a float, halves upon halves."""
        width = LANES
        while width > 1:
            width //= 2
            other = INTS([(i + width) % LANES for i in range(LANES)])
            vector = join(vector, self.b.shuffle_vector(vector, vector, other))
        return self.b.extract_element(vector, I32(0))

    def fold_all(self, vectors: Sequence[Any]) -> Any:
        """Sum the lanes of sixteen vectors into one; lane `i` has the bits of `fold(vectors[i])` by addition."""
        width = LANES
        while width > 1:
            width //= 2
            lows = INTS([i // width * 2 * width + i % width for i in range(LANES)])
            highs = INTS([i // width * 2 * width + i % width + width for i in range(LANES)])
            vectors = [
                self.b.fadd(self.b.shuffle_vector(a, b, lows), self.b.shuffle_vector(a, b, highs))
                for a, b in zip(vectors[0::2], vectors[1::2], strict=True)
            ]
        return vectors[0]

    def larger(self, left: Any, right: Any) -> Any:
        """Take the larger of each pair."""
        return self.b.select(self.b.fcmp_ordered(">", left, right), left, right)

    def exp(self, x: Any) -> Any:
        """Compute e**x to about one unit in the last place, for `x` held to [-87, 88]."""
        x = self.larger(x, self.splat(-87.0))
        x = self.b.select(self.b.fcmp_ordered("<", x, self.splat(88.0)), x, self.splat(88.0))
        # x = n ln 2 + r, with ln 2 in two parts; e**r by a minimax polynomial, 2**n through the exponent bits
        n = self.call("rint", self.b.fmul(x, self.splat(1.4426950408889634)))
        r = self.fma(n, self.splat(-0.693359375), x)
        r = self.fma(n, self.splat(2.12194440e-4), r)
        y = self.splat(1.9875691500e-4)
        for coefficient in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
            y = self.fma(y, r, self.splat(coefficient))
        y = self.fma(self.b.fmul(y, r), r, self.b.fadd(r, self.splat(1.0)))
        bits = self.b.add(self.b.fptosi(n, INTS), INTS([127] * LANES))
        return self.b.fmul(y, self.b.bitcast(self.b.shl(bits, INTS([23] * LANES)), FLOATS))

    @contextmanager
    def loop(self, count: Any) -> Iterator[Any]:
        """Count from 0 to `count`, giving the 64-bit index."""
        with cgutils.for_range(self.b, self.int(count)) as step:
            yield step.index

    def slot(self, initial: Any) -> Any:
        """Make room for a value that changes inside a loop."""
        room = cgutils.alloca_once(self.b, initial.type)
        self.b.store(initial, room)
        return room

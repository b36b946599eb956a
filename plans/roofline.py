"""What a pass takes, from what it reads and what it computes: a roofline (Williams, Waterman and Patterson 2009)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plans.hardware import Hardware, ModelShape

Rows = NDArray[np.float64]


class PassSeconds(NamedTuple):
    """The parts of passes; `total` is their sum."""

    overhead: float
    """Launches and the work between passes."""
    linear: Rows
    """The products with the weights: reading them, or the arithmetic, whichever takes longer."""
    attention: Rows
    """Reading the keys and values of every sequence once, or the arithmetic over them."""

    @property
    def total(self) -> Rows:
        """Seconds of the passes."""
        return self.overhead + self.linear + self.attention


class Roofline(NamedTuple):
    """A model on a processor."""

    hardware: Hardware
    model: ModelShape

    def parts(self, num_rows: Rows, batch: int, context: float) -> PassSeconds:
        """Give the parts of passes over `num_rows` rows in all, of `batch` sequences with `context` cached tokens each.

        overhead  = pass_us + layers * layer_us
        linear    = max(weight bytes / memory, 2 * params * rows / arithmetic)
        attention = max(batch * context * kv_bytes / memory, 2 * rows * context * kv_bytes / 2 / arithmetic)

        `memory` and `arithmetic` are the peaks times their efficiencies. The keys and values of a token are
        kv_bytes / 2 numbers of two bytes, and a row multiplies and adds each once; heads that share theirs do it
        again, which with the few rows of a draft stays below the time of reading.
        """
        hw, model = self.hardware, self.model
        memory = hw.memory_gb_s * 1e9 * hw.memory_efficiency
        arithmetic = hw.tflops * 1e12 * hw.arithmetic_efficiency
        params = model.params_b * 1e9
        return PassSeconds(
            overhead=(hw.pass_us + model.layers * hw.layer_us) * 1e-6,
            linear=np.maximum(params * model.bits / 8 / memory, 2 * params * num_rows / arithmetic),
            attention=np.maximum(
                batch * context * model.kv_bytes / memory, num_rows * context * model.kv_bytes / arithmetic
            ),
        )

    def pass_s(self, num_rows: Rows, batch: int, context: float) -> Rows:
        """Give the seconds of passes."""
        return self.parts(num_rows, batch, context).total

    def explain(self) -> list[str]:
        """Say what the cost rests on, with every constant."""
        hw, model = self.hardware, self.model
        return [
            f"roofline of {model.name} on {hw.name}",
            "a pass = overhead + linear + attention",
            f"overhead = pass_us {hw.pass_us:g} + layers {model.layers} x layer_us {hw.layer_us:g} us",
            f"linear = max(weights / memory, 2 x parameters x rows / arithmetic); {model.params_b:g} thousand million "
            f"parameters of {model.bits:g} bits",
            f"attention = max(batch x context x {model.kv_bytes:,} bytes / memory, rows x context x "
            f"{model.kv_bytes:,} / arithmetic)",
            f"memory = {hw.memory_gb_s:g} GB/s x memory_efficiency {hw.memory_efficiency:g}",
            f"arithmetic = {hw.tflops:g} Tflop/s x arithmetic_efficiency {hw.arithmetic_efficiency:g}",
            f"peaks: {hw.source or 'as given'}",
        ]

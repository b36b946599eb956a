"""What a pass takes, from what it reads and what it computes: a roofline (Williams, Waterman and Patterson 2009)."""

from typing import NamedTuple

from plans.hardware import Hardware, ModelShape


class PassSeconds(NamedTuple):
    """The parts of a pass; `total` is their sum."""

    overhead: float
    """Launches and the work between passes."""
    linear: float
    """The products with the weights: reading them, or the arithmetic, whichever takes longer."""
    attention: float
    """Reading the keys and values of every sequence once, or the arithmetic over them."""

    @property
    def total(self) -> float:
        """Seconds of the pass."""
        return self.overhead + self.linear + self.attention


class Roofline(NamedTuple):
    """A model on a processor."""

    hardware: Hardware
    model: ModelShape

    def seconds(self, num_rows: float, batch: int, context: float) -> PassSeconds:
        """Give the parts of a pass over `num_rows` rows in all, of `batch` sequences with `context` cached tokens each.

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
            linear=max(params * model.bits / 8 / memory, 2 * params * num_rows / arithmetic),
            attention=max(batch * context * model.kv_bytes / memory, num_rows * context * model.kv_bytes / arithmetic),
        )

"""Processors and models by name: the constants that the roofline is made of, as their makers publish them."""

from pathlib import Path
from typing import TypeVar

import msgspec

from plans.errors import PlanError

S = TypeVar("S", bound=msgspec.Struct)


class Hardware(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A processor: its two ceilings, the share of each that is reached, and what a pass costs before it does anything.

    `memory_gb_s` and `tflops` are the maker's peaks (dense, 16-bit, accumulated in 32); the efficiencies are shares of
    them that decoding kernels reach. `pass_us` is spent once a pass, `layer_us` once a layer: launches, small kernels,
    and the work between passes that an engine cannot hide.
    """

    name: str
    memory_gb_s: float
    tflops: float
    memory_efficiency: float = 0.8
    arithmetic_efficiency: float = 0.6
    pass_us: float = 500.0
    layer_us: float = 12.0
    source: str = ""

    def __post_init__(self) -> None:
        for field in ("memory_gb_s", "tflops", "memory_efficiency", "arithmetic_efficiency"):
            if not 0 < getattr(self, field) < float("inf"):
                raise PlanError(f"hardware {self.name}: {field} is {getattr(self, field)}: a finite number > 0")
        for field in ("pass_us", "layer_us"):
            if not 0 <= getattr(self, field) < float("inf"):
                raise PlanError(f"hardware {self.name}: {field} is {getattr(self, field)}: microseconds >= 0")


class ModelShape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A decoder as far as its cost goes.

    `params_b` is in thousands of millions and counts what a pass reads: the output matrix once, an untied embedding
    not. `bits` is what a weight takes, `kv_bytes` what a cached token takes over all layers.
    """

    name: str
    params_b: float
    layers: int
    kv_bytes: int
    bits: float = 16.0
    source: str = ""

    def __post_init__(self) -> None:
        for field in ("params_b", "layers", "bits"):
            if not 0 < getattr(self, field) < float("inf"):
                raise PlanError(f"model {self.name}: {field} is {getattr(self, field)}: a finite number > 0")
        if self.kv_bytes < 0:
            raise PlanError(f"model {self.name}: kv_bytes is {self.kv_bytes}: an integer >= 0")


def find(kind: type[S], known: dict[str, S], asked: str) -> S:
    """Give what is known by a name, or what a TOML file of the same fields says. PlanError for neither."""
    if asked in known:
        return known[asked]
    path = Path(asked)
    if path.suffix != ".toml":
        what = "hardware" if kind is Hardware else "model"
        raise PlanError(f"{what} {asked!r} is not known: {', '.join(sorted(known))}, or a file.toml")
    try:
        fields = {"name": path.stem} | msgspec.toml.decode(path.read_bytes())
        return msgspec.convert(fields, kind)
    except OSError as error:
        raise PlanError(f"{asked}: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise PlanError(f"{asked}: {error.__cause__ or error}") from None


HARDWARE = {
    hardware.name: hardware
    for hardware in (
        Hardware(name="h100", memory_gb_s=3350, tflops=989, source="NVIDIA H100 data sheet, SXM"),
        Hardware(name="h200", memory_gb_s=4800, tflops=989, source="NVIDIA H200 data sheet, SXM"),
        Hardware(name="a100", memory_gb_s=2039, tflops=312, source="NVIDIA A100 data sheet, 80 GB SXM"),
        Hardware(name="l40s", memory_gb_s=864, tflops=362, source="NVIDIA L40S data sheet"),
        Hardware(name="l4", memory_gb_s=300, tflops=121, source="NVIDIA L4 data sheet, half of the sparse figure"),
        Hardware(name="rtx4090", memory_gb_s=1008, tflops=165, source="NVIDIA Ada GPU architecture paper, appendix A"),
        Hardware(name="rtx3090", memory_gb_s=936, tflops=71, source="NVIDIA Ampere GA102 architecture paper"),
        Hardware(name="mi300x", memory_gb_s=5300, tflops=1307, source="AMD Instinct MI300X data sheet"),
        Hardware(
            name="cpu", memory_gb_s=60, tflops=1.5, pass_us=200, layer_us=5,
            source="a desktop processor with two channels of DDR5; measure your own with `outrider measure`",
        ),
    )
}  # fmt: skip

MODELS = {
    model.name: model
    for model in (
        # parameters of the checkpoint less an untied embedding; 2 (keys, values) x layers x KV heads x head size x 2
        ModelShape(name="llama-3.1-8b", params_b=7.50, layers=32, kv_bytes=2 * 32 * 8 * 128 * 2),
        ModelShape(name="llama-3.1-70b", params_b=69.5, layers=80, kv_bytes=2 * 80 * 8 * 128 * 2),
        ModelShape(name="llama-3.2-1b", params_b=1.24, layers=16, kv_bytes=2 * 16 * 8 * 64 * 2),
        ModelShape(name="llama-3.2-3b", params_b=3.21, layers=28, kv_bytes=2 * 28 * 8 * 128 * 2),
        ModelShape(name="llama-2-7b", params_b=6.61, layers=32, kv_bytes=2 * 32 * 32 * 128 * 2),
        ModelShape(name="llama-2-13b", params_b=12.85, layers=40, kv_bytes=2 * 40 * 40 * 128 * 2),
        ModelShape(name="vicuna-7b", params_b=6.61, layers=32, kv_bytes=2 * 32 * 32 * 128 * 2),
        ModelShape(name="mistral-7b", params_b=7.11, layers=32, kv_bytes=2 * 32 * 8 * 128 * 2),
        ModelShape(name="qwen2.5-7b", params_b=7.07, layers=28, kv_bytes=2 * 28 * 4 * 128 * 2),
        ModelShape(name="qwen3-8b", params_b=7.57, layers=36, kv_bytes=2 * 36 * 8 * 128 * 2),
        ModelShape(name="qwen3-32b", params_b=31.98, layers=64, kv_bytes=2 * 64 * 8 * 128 * 2),
        ModelShape(name="smollm2-135m", params_b=0.135, layers=30, kv_bytes=2 * 30 * 3 * 64 * 2),
    )
}

"""Which code runs a llama, or a product: compiled where it can be, numpy everywhere."""

import importlib.util
import logging
from collections.abc import Callable
from typing import Literal, get_args

from models.extras import need
from models.linear import RowLinear
from models.llama import Llama
from models.protocol import Model
from models.weights import F32, LlamaConfig, LlamaWeights, Matrix

Kernel = Literal["auto", "int8", "numba", "numpy"]

_log = logging.getLogger(__name__)


def build_llama(
    config: LlamaConfig, weights: LlamaWeights, kernel: Kernel = "auto", num_threads: int | None = None
) -> Model:
    """Build the model. "auto" is "int8" where the processor has its instructions, else "numba", else "numpy".

    `num_threads` is for the compiled kernel; None is one per processor. Raises ValueError for an unknown kernel,
    ImportError for "numba" without it. "int8" where it cannot run is "numba", and the log says so.
    """
    if not is_compiled(kernel):
        return Llama(config, weights)
    fast_llama = need("models.fast_llama", "fast")
    model: Model = fast_llama.FastLlama(config, weights, num_threads, is_int8=is_int8(kernel))
    return model


def is_int8(kernel: Kernel) -> bool:
    """Tell whether a compiled kernel rounds rows to 8 bits here."""
    if kernel == "numba":
        return False
    if need("models.kernels.int8", "fast").HAS_VNNI:
        if need("models.kernels.int8_check", "fast").is_right():
            return True
        _log.warning("this processor's 8-bit products are not what they should be: rows stay float32 (kernel numba)")
    else:
        _log.info("this processor has no avx512_vnni: rows stay float32 (kernel numba)")
    return False


def build_linear(matrix: Matrix, kernel: Kernel = "auto") -> Callable[[F32], F32]:
    """Build the product of rows with one matrix; raises as `build_llama` does."""
    if not is_compiled(kernel):
        return RowLinear(matrix.dense())
    packed_linear = need("models.kernels.packed_linear", "fast")
    product: Callable[[F32], F32] = packed_linear.PackedLinear(matrix, is_int8=is_int8(kernel))
    return product


def is_compiled(kernel: Kernel) -> bool:
    """Tell whether a kernel is compiled code here. Raises ValueError for an unknown one, ImportError for a missing."""
    if kernel not in get_args(Kernel):
        raise ValueError(f"kernel {kernel}: must be one of {', '.join(get_args(Kernel))}")
    if kernel == "numpy" or (kernel == "auto" and importlib.util.find_spec("numba") is None):
        return False
    need("numba", "fast")
    return True

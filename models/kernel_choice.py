"""Which code runs a llama, or a product: compiled where it can be, numpy everywhere."""

import importlib.util
from collections.abc import Callable
from typing import Literal, get_args

from models.extras import need
from models.linear import RowLinear
from models.llama import Llama
from models.protocol import Model
from models.weights import F32, LlamaConfig, LlamaWeights, Matrix

Kernel = Literal["auto", "numba", "numpy"]


def build_llama(
    config: LlamaConfig, weights: LlamaWeights, kernel: Kernel = "auto", num_threads: int | None = None
) -> Model:
    """Build the model. "auto" is "numba" where it is installed, else "numpy".

    `num_threads` is for the compiled kernel; None is one per processor. Raises ValueError for an unknown kernel,
    ImportError for "numba" without it.
    """
    if not is_compiled(kernel):
        return Llama(config, weights)
    model: Model = need("models.fast_llama", "fast").FastLlama(config, weights, num_threads)
    return model


def build_linear(matrix: Matrix, kernel: Kernel = "auto") -> Callable[[F32], F32]:
    """Build the product of rows with one matrix; raises as `build_llama` does."""
    if not is_compiled(kernel):
        return RowLinear(matrix.dense())
    product: Callable[[F32], F32] = need("models.kernels.packed_linear", "fast").PackedLinear(matrix)
    return product


def is_compiled(kernel: Kernel) -> bool:
    """Tell whether a kernel is compiled code here. Raises ValueError for an unknown one, ImportError for a missing."""
    if kernel not in get_args(Kernel):
        raise ValueError(f"kernel {kernel}: must be one of {', '.join(get_args(Kernel))}")
    if kernel == "numpy" or (kernel == "auto" and importlib.util.find_spec("numba") is None):
        return False
    need("numba", "fast")
    return True

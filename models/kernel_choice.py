"""Which code runs a llama: compiled where it can be, numpy everywhere."""

import importlib.util
from typing import Literal, get_args

from models.extras import need
from models.llama import Llama
from models.protocol import Model
from models.weights import LlamaConfig, LlamaWeights

Kernel = Literal["auto", "numba", "numpy"]


def build_llama(
    config: LlamaConfig, weights: LlamaWeights, kernel: Kernel = "auto", num_threads: int | None = None
) -> Model:
    """Build the model. "auto" is "numba" where it is installed, else "numpy".

    `num_threads` is for the compiled kernel; None is one per processor. Raises ValueError for an unknown kernel,
    ImportError for "numba" without it.
    """
    if kernel not in get_args(Kernel):
        raise ValueError(f"kernel {kernel}: must be one of {', '.join(get_args(Kernel))}")
    if kernel == "numpy" or (kernel == "auto" and importlib.util.find_spec("numba") is None):
        return Llama(config, weights)
    need("numba", "fast")
    model: Model = need("models.fast_llama", "fast").FastLlama(config, weights, num_threads)
    return model

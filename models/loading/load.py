"""From a name or a path to a model that runs, by the fastest code there is for it."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from models.llama import Llama
from models.loading.extras import need
from models.loading.tokenizer import Tokenizer
from models.protocol import Model

Kernel = Literal["auto", "numpy", "numba"]


class Loaded(NamedTuple):
    """A model, its tokenizer, and which kernel computes it."""

    model: Model
    tokenizer: Tokenizer
    kernel: Literal["numpy", "numba"]


def load(source: str | Path, kernel: Kernel = "auto", say: Callable[[str], None] = lambda _text: None) -> Loaded:
    """Load a pulled model by name, a GGUF file or a safetensors folder.

    `kernel` "auto" is numba where it is installed, else numpy; the two differ by rounding only. Raises what
    `open_model` raises, and ImportError for a kernel whose extra is missing.
    """
    from models.loading import open_model  # noqa: PLC0415  (this module is part of that package)

    opened = open_model(source)
    config = opened.config()
    say(f"reading {source}")
    weights = opened.weights(config)
    tokenizer = opened.tokenizer()
    if kernel == "numpy" or (kernel == "auto" and importlib.util.find_spec("numba") is None):
        return Loaded(Llama(config, weights), tokenizer, "numpy")
    need("numba", "fast")
    say("getting compiled code (the first time on a machine takes about half a minute)")
    from models.fast_llama import FastLlama  # noqa: PLC0415  (it needs numba to be imported)

    return Loaded(FastLlama(config, weights), tokenizer, "numba")

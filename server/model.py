"""The model to serve, with its tokenizer."""

import time
from typing import NamedTuple

from models import Model
from models.toy import ToyModel, ToyTokenizer
from scheduler import PassCost
from server.config import ConfigError, ModelConfig
from server.tokens import Tokenizer


class Served(NamedTuple):
    """A model, what clients call it, and what its passes cost where that was measured."""

    model: Model
    tokenizer: Tokenizer
    name: str
    pass_cost: PassCost | None


class Found(NamedTuple):
    """What can be said of a model without loading its weights."""

    name: str
    vocab_size: int
    max_model_len: int


def find_model(config: ModelConfig) -> Found:
    """Open a model and its tokenizer. Raises ConfigError for one that is not there or cannot be run."""
    if config.source == "fake":
        toy = ToyModel(config.seed, config.order, config.sharp)
        return Found(config.name or "fake", toy.vocab_size, toy.max_model_len)
    from models.loading import open_model  # noqa: PLC0415  # what it takes to read weights is an extra

    try:
        opened = open_model(config.source)
        read = opened.config()
        opened.tokenizer()
        opened.weights(read)
    except (OSError, ImportError, ValueError, RuntimeError) as error:
        raise ConfigError(f"model.source is {config.source!r}: {error}") from None
    return Found(config.name or config.source, read.vocab_size, read.max_model_len)


def load_model(config: ModelConfig, *, measures_passes: bool) -> Served:
    """Open a model. Raises ConfigError for one that is not there or cannot be run."""
    if config.source == "fake":
        toy = ToyModel(config.seed, config.order, config.sharp)
        return Served(toy, ToyTokenizer(), config.name or "fake", None)
    from models.calibration import ROWS, measure_pass  # noqa: PLC0415  # what it takes to load weights is an extra
    from models.loading import load  # noqa: PLC0415

    try:
        model, tokenizer = load(config.source, config.kernel, strftime_now=time.strftime)
    except (OSError, ImportError, ValueError, RuntimeError) as error:
        raise ConfigError(f"model.source is {config.source!r}: {error}") from None
    cost = PassCost(ROWS, tuple(measure_pass(model, time.perf_counter))) if measures_passes else None
    return Served(model, tokenizer, config.name or config.source, cost)

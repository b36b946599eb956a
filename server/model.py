"""The model to serve, with its tokenizer."""

import contextlib
import time
from collections.abc import Iterator
from typing import NamedTuple

from models import Model, Proposer
from models.toy import ToyModel, ToyTokenizer
from scheduler import NO_DRAFTS, PassCost
from server.config import ConfigError, ModelConfig
from server.tokens import Tokenizer
from spec import SpecConfig


class Served(NamedTuple):
    """A model, what clients call it, what its passes cost where that was measured, and what drafts for it."""

    model: Model
    tokenizer: Tokenizer
    name: str
    pass_cost: PassCost | None
    proposer: Proposer | None = None


class Found(NamedTuple):
    """What can be said of a model without loading its weights."""

    name: str
    vocab_size: int
    max_model_len: int


def find_model(config: ModelConfig, speculative: SpecConfig = NO_DRAFTS) -> Found:
    """Open a model and its tokenizer, and what drafts for it.

    Raises ConfigError for one that is not there or cannot be run.
    """
    if config.source == "fake":
        toy = ToyModel(config.seed, config.order, config.sharp)
        return Found(config.name or "fake", toy.vocab_size, toy.max_model_len)
    from models.loading import open_model  # noqa: PLC0415  # what it takes to read weights is an extra
    from models.proposers import check_drafts  # noqa: PLC0415

    with _told_as("model.source", config.source):
        opened = open_model(config.source)
        read = opened.config()
        opened.tokenizer()
        opened.weights(read)
    with _told_as("engine.speculative.model", speculative.model):
        check_drafts(config.source, speculative)
    return Found(config.name or config.source, read.vocab_size, read.max_model_len)


def load_model(config: ModelConfig, speculative: SpecConfig, *, measures_passes: bool) -> Served:
    """Open a model and what drafts for it. Raises ConfigError for one that is not there or cannot be run."""
    if config.source == "fake":
        toy = ToyModel(config.seed, config.order, config.sharp)
        return Served(toy, ToyTokenizer(), config.name or "fake", None)
    from models.calibration import measure_cost  # noqa: PLC0415  # what it takes to load weights is an extra
    from models.proposers import load_speculative  # noqa: PLC0415

    if speculative.draft.has_file:
        find_model(config, speculative)  # which tells what is wrong with which of the two files
    with _told_as("model.source", config.source):
        loaded = load_speculative(config.source, speculative, config.kernel, strftime_now=time.strftime)
    cost = PassCost(*measure_cost(loaded.model, loaded.proposer, time.perf_counter)) if measures_passes else None
    return Served(loaded.model, loaded.tokenizer, config.name or config.source, cost, loaded.proposer)


@contextlib.contextmanager
def _told_as(key: str, value: str) -> Iterator[None]:
    """Say of what key and value it is that something cannot be had."""
    try:
        yield
    except (OSError, ImportError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{key} is {value!r}: {error}") from None

"""The model to serve, with its tokenizer."""

from models import Model
from models.loading import load
from models.toy import ToyModel, ToyTokenizer
from server.config import ConfigError, ModelConfig
from server.tokens import Tokenizer


def load_model(config: ModelConfig) -> tuple[Model, Tokenizer, str]:
    """Open the model, its tokenizer and its name. Raises ConfigError for one that is not there or cannot be run."""
    if config.source == "fake":
        return ToyModel(config.seed, config.order, config.sharp), ToyTokenizer(), config.name or "fake"
    try:
        model, tokenizer = load(config.source)
    except (OSError, ImportError, ValueError) as error:
        raise ConfigError(f"model.source is {config.source!r}: {error}") from None
    return model, tokenizer, config.name or config.source

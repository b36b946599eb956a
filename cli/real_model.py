"""What the commands that run a real model share: loading it, the cost of its passes, and text as it comes."""

import codecs
import contextlib
import logging
import time
from collections.abc import Iterator

import click
from rich.console import Console
from rich.status import Status

import models
from models.calibration import ROWS, measure_pass
from models.kernel_choice import Kernel
from models.loading import RELEASES, Loaded, Tokenizer, load, locate, pull
from models.protocol import Model
from scheduler import PassCost

DEFAULT_MODEL = "smollm2-135m"


def load_model(source: str, kernel: Kernel, console: Console) -> Loaded:
    """Load a model, saying what is going on; a known one that is not here yet is pulled first."""
    with console.status(f"loading {source}") as status, _shown(status):
        try:
            if source in RELEASES and locate(source) is None:
                pull(source, status.update)
            return load(source, kernel, strftime_now=time.strftime)
        except (ImportError, FileNotFoundError, ValueError, RuntimeError) as error:
            raise click.ClickException(str(error)) from None


@contextlib.contextmanager
def _shown(status: Status) -> Iterator[None]:
    """Show in a status line what the models say they are doing."""
    handler = logging.Handler(logging.INFO)
    handler.emit = lambda record: status.update(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger(models.__name__)
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def pass_cost(model: Model, console: Console) -> PassCost:
    """Measure what a pass costs here."""
    with console.status("measuring the cost of a pass"):
        return PassCost(ROWS, tuple(measure_pass(model, time.perf_counter)))


class TextStream:
    """Ids to text, token by token: the bytes of an unfinished character wait for the rest."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def text(self, token: int) -> str:
        """Give the text that is complete with this token."""
        return self._decoder.decode(self._tokenizer.token_bytes(token))

    def rest(self) -> str:
        """Give what is left at the end: a character that never came whole."""
        return self._decoder.decode(b"", final=True)

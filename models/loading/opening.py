"""From a name or a path to a model that runs, and its tokenizer."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from models.kernel_choice import Kernel, build_llama
from models.loading.gguf_file import GgufFile
from models.loading.pull import RELEASES, locate
from models.loading.safetensors_folder import SafetensorsFolder
from models.loading.tokenizer import Tokenizer
from models.protocol import Model, Proposer


class Loaded(NamedTuple):
    """A model, its tokenizer, and what drafts for it where that was loaded too."""

    model: Model
    tokenizer: Tokenizer
    proposer: Proposer | None = None


def load(
    source: str | Path,
    kernel: Kernel = "auto",
    num_threads: int | None = None,
    strftime_now: Callable[[str], str] | None = None,
) -> Loaded:
    """Load a model for the fastest kernel there is, or for `kernel`; raises as `open_model` and `build_llama` do.

    `strftime_now` (`time.strftime`, say) tells a chat template that asks for it the date.
    """
    opened = open_model(source)
    config = opened.config()
    tokenizer = opened.tokenizer(strftime_now)  # first, since it takes least and is missing most often
    return Loaded(build_llama(config, opened.weights(config), kernel, num_threads), tokenizer)


def open_model(source: str | Path) -> GgufFile | SafetensorsFolder:
    """Open a pulled model by name, a GGUF file, or a safetensors folder.

    Raises FileNotFoundError where there is nothing (a known name that is not pulled yet included), ImportError for a
    missing extra, ValueError for a model this package cannot run.
    """
    kept = locate(str(source)) if str(source) in RELEASES else None
    path = kept or Path(source)
    if path.is_dir():
        return SafetensorsFolder(path)
    if path.is_file():
        return GgufFile(path)
    hint = f"; pull it first: outrider models pull {source}" if str(source) in RELEASES else ""
    raise FileNotFoundError(f"no model at {source}{hint}")

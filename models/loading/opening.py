"""From a name or a path to a model that runs, and its tokenizer."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from models.kernel_choice import Kernel, build_llama
from models.loading.gguf_file import GgufFile
from models.loading.proposers import build_draft_model, check_draft_model
from models.loading.pull import RELEASES, locate
from models.loading.safetensors_folder import SafetensorsFolder
from models.loading.tokenizer import Tokenizer
from models.protocol import Model, Proposer
from spec import SpecConfig


class Loaded(NamedTuple):
    """A model, its tokenizer, and what drafts for it where that comes from a file."""

    model: Model
    tokenizer: Tokenizer
    proposer: Proposer | None = None


def load(
    source: str | Path,
    kernel: Kernel = "auto",
    num_threads: int | None = None,
    strftime_now: Callable[[str], str] | None = None,
    speculative: SpecConfig | None = None,
) -> Loaded:
    """Load a model for the fastest kernel there is, or for `kernel`; raises as `open_model` and `build_llama` do.

    `strftime_now` (`time.strftime`, say) tells a chat template that asks for it the date. Drafts that come from a file
    are `speculative`: what drafts is loaded first, and raises ValueError where it does not fit the model.
    """
    opened = open_model(source)
    config = opened.config()
    tokenizer = opened.tokenizer(strftime_now)  # first, since it takes least and is missing most often
    weights = opened.weights(config)
    proposer = None
    if speculative is not None and speculative.draft.has_file:
        proposer = build_draft_model(open_model(speculative.model), tokenizer, kernel, num_threads)
    return Loaded(build_llama(config, weights, kernel, num_threads), tokenizer, proposer)


def check_drafts(speculative: SpecConfig, target: GgufFile | SafetensorsFolder) -> None:
    """Raise what `load` would for what drafts, without loading weights."""
    if speculative.draft.has_file:
        check_draft_model(open_model(speculative.model), target.tokenizer())


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

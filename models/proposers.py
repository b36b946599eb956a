"""A model from its files together with what drafts for it: a second model, or heads of its own."""

from collections.abc import Callable
from pathlib import Path

from models.draft_model import DraftModel
from models.heads import Heads, MedusaHeads, build_heads, default_heads, read_heads
from models.kernel_choice import Kernel, build_llama
from models.loading import GgufFile, Loaded, SafetensorsFolder, Tokenizer, load, open_model
from models.protocol import TappedModel
from models.weights import LlamaConfig
from spec import Draft, SpecConfig


def load_speculative(
    source: str | Path,
    speculative: SpecConfig,
    kernel: Kernel = "auto",
    num_threads: int | None = None,
    strftime_now: Callable[[str], str] | None = None,
) -> Loaded:
    """Load a model as `load` does, and what `speculative` says drafts for it, if that has a file.

    Where it names none, those heads draft that come with this package for a model known by name. Raises as `load` does,
    for either, and ValueError where they do not belong together.
    """
    if not speculative.draft.has_file:
        return load(source, kernel, num_threads, strftime_now)
    opened = open_model(source)
    config = opened.config()
    tokenizer = opened.tokenizer(strftime_now)
    found = _find(speculative, str(source), config, tokenizer)
    weights = opened.weights(config)
    model = build_llama(config, weights, kernel, num_threads)
    if isinstance(found, GgufFile | SafetensorsFolder):
        own = found.config()
        return Loaded(model, tokenizer, DraftModel(build_llama(own, found.weights(own), kernel, num_threads)))
    proposer = build_heads(found, config, weights, kernel)
    assert isinstance(model, TappedModel), "every llama is"
    return Loaded(model.with_taps(proposer.taps), tokenizer, proposer)


def check_drafts(source: str | Path, speculative: SpecConfig) -> None:
    """Raise what `load_speculative` would for what drafts, without building anything."""
    if speculative.draft.has_file:
        target = open_model(source)
        _find(speculative, str(source), target.config(), target.tokenizer())


def _find(
    speculative: SpecConfig, source: str, config: LlamaConfig, tokenizer: Tokenizer
) -> GgufFile | SafetensorsFolder | Heads:
    """Open the file, and see that it is of the kind that is to draft, and fits the target."""
    draft = speculative.draft
    path = Path(speculative.model) if speculative.model else default_heads(source)
    if path is None:
        raise ValueError(f"draft {draft.value!r} needs a file of what drafts: none comes along for {source}")
    if draft is Draft.MODEL or (draft is Draft.HYBRID and _is_model(path)):
        opened = open_model(path)
        check_vocabulary(opened, tokenizer)
        return opened
    heads = read_heads(path, config)
    if draft not in (heads.kind, Draft.HYBRID):
        raise ValueError(f"{path} has {heads.kind} heads: draft {draft.value!r} needs {draft.value} heads")
    layers = speculative.model_shape.max_depth
    if isinstance(heads, MedusaHeads) and layers > len(heads.blocks):
        raise ValueError(f"{path} has {len(heads.blocks)} heads, one a token ahead: drafts have {layers} layers")
    return heads


def _is_model(path: Path) -> bool:
    """Tell a model from heads by what lies there: heads come without a tokenizer."""
    return path.suffix == ".gguf" or (path / "tokenizer.json").exists()


def check_vocabulary(opened: GgufFile | SafetensorsFolder, tokenizer: Tokenizer) -> None:
    """Raise ValueError, naming the first token that differs, for a vocabulary that is not the target's."""
    config = opened.config()
    if config.vocab_size != tokenizer.vocab_size:
        raise ValueError(f"the draft model has {config.vocab_size} tokens: the target has {tokenizer.vocab_size}")
    own = opened.tokenizer()
    for token in range(tokenizer.vocab_size):
        if own.spelling(token) != tokenizer.spelling(token):
            raise ValueError(
                f"token {token} is {own.spelling(token)!r} to the draft model: "
                f"{tokenizer.spelling(token)!r} to the target, and a draft model has the target's vocabulary"
            )

"""A draft model from files, beside the target that it drafts for."""

from models.draft_model import DraftModel
from models.kernel_choice import Kernel, build_llama
from models.loading.gguf_file import GgufFile
from models.loading.safetensors_folder import SafetensorsFolder
from models.loading.tokenizer import Tokenizer
from models.protocol import Proposer


def build_draft_model(
    opened: GgufFile | SafetensorsFolder, tokenizer: Tokenizer, kernel: Kernel, num_threads: int | None
) -> Proposer:
    """Build the model that drafts for a target with this tokenizer; raises as `check_draft_model`."""
    check_draft_model(opened, tokenizer)
    config = opened.config()
    return DraftModel(build_llama(config, opened.weights(config), kernel, num_threads))


def check_draft_model(opened: GgufFile | SafetensorsFolder, tokenizer: Tokenizer) -> None:
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

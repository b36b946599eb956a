"""Models and tokenizers from files: GGUF, or a folder of safetensors."""

from models.loading.gguf_file import GgufFile
from models.loading.opening import Loaded, load, open_model
from models.loading.pull import RELEASES, cache_folder, locate, pull
from models.loading.safetensors_folder import SafetensorsFolder
from models.loading.tokenizer import Tokenizer

__all__ = [
    "RELEASES",
    "GgufFile",
    "Loaded",
    "SafetensorsFolder",
    "Tokenizer",
    "cache_folder",
    "load",
    "locate",
    "open_model",
    "pull",
]

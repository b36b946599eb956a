"""Models and tokenizers from files: GGUF, or a folder of safetensors."""

from pathlib import Path

from models.loading.gguf_file import GgufFile
from models.loading.pull import RELEASES, cache_folder, locate, pull
from models.loading.safetensors_folder import SafetensorsFolder
from models.loading.tokenizer import Tokenizer

__all__ = [
    "RELEASES",
    "GgufFile",
    "SafetensorsFolder",
    "Tokenizer",
    "cache_folder",
    "locate",
    "open_model",
    "pull",
]


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

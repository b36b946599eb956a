"""Draft heads from and to safetensors files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.heads.layouts import name_all, parse
from models.heads.tensors import Tensors, write_tensors
from models.heads.weights import Heads
from models.loading.config_keys import check_keys
from models.loading.safetensors_file import FLOATS, INTEGERS, read_metadata, read_tensors
from models.weights import LlamaConfig

_CONFIG = "config.json"
_METADATA_KEY = "config"  # what config.json would say, in a file that stands alone
_WEIGHTS = "model.safetensors"
_PREFIXES = ("model.", "medusa_head.", "medusa_heads.")
# Of the keys beside those of a llama: what is read, and what changes no law.
_READ = frozenset(["taps", "medusa_num_heads", "medusa_num_layers", "eagle_aux_hidden_state_layer_ids", "eagle_config"])
_HARMLESS = frozenset(
    ["draft_vocab_size", "target_hidden_size", "target_model_type", "base_model_name_or_path", "bias", "version"]
)
_IN_EAGLE_CONFIG = frozenset(["eagle_aux_hidden_state_layer_ids", "use_aux_hidden_state"])


def read_heads(path: str | Path, target: LlamaConfig) -> Heads:
    """Read heads for a target from a `*.safetensors` file, or a folder with one; the kind follows from its tensors.

    Settings are those of the `config.json` beside it, or of the file's own metadata. Weights are mapped, not read.
    Raises FileNotFoundError where there is nothing, and ValueError for a file that is broken or not of heads, for
    sizes that are not the target's, and for a setting that may change what the heads compute.
    """
    file = _find(Path(path))
    stored = read_tensors(file, {**FLOATS, **INTEGERS})
    shortened = {_without_prefix(name): tensor for name, tensor in stored.items()}
    if len(shortened) < len(stored):
        raise ValueError(f"{file}: has tensors whose names differ by a prefix alone")
    settings, source = _settings(file)
    try:
        check_keys({key: value for key, value in settings.items() if key not in _READ | _HARMLESS})
        if unknown := sorted((settings.get("eagle_config") or {}).keys() - _IN_EAGLE_CONFIG):
            raise ValueError(f"eagle_config.{unknown[0]} is not known here")
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None
    return parse(settings, Tensors(str(file), shortened), target)


def write_heads(path: str | Path, heads: Heads, target: LlamaConfig) -> None:
    """Write heads for a target: one file, where `path` ends in `.safetensors`, else a folder as model hubs have it."""
    path = Path(path)
    settings, tensors = name_all(heads, target.vocab_size)
    if path.suffix != ".safetensors":
        path.mkdir(parents=True, exist_ok=True)
        (path / _CONFIG).write_text(json.dumps(settings, indent=2) + "\n", "utf-8")
        path = path / _WEIGHTS
    write_tensors(path, tensors, {"format": "pt", _METADATA_KEY: json.dumps(settings)})


def _find(path: Path) -> Path:
    if path.is_dir():
        files = sorted(path.glob("*.safetensors"))
        if len(files) != 1:
            raise ValueError(f"{path}: {len(files)} *.safetensors files: draft heads are one")
        return files[0]
    if not path.is_file():
        raise FileNotFoundError(f"no draft heads at {path}")
    return path


def _settings(file: Path) -> tuple[Mapping[str, Any], Path]:
    """Give what is said of the heads, and where."""
    beside = file.parent / _CONFIG
    own = read_metadata(file).get(_METADATA_KEY)
    source = file if own is not None else beside
    if own is None and not beside.exists():
        return {}, file
    try:
        settings = json.loads(own if own is not None else beside.read_text("utf-8-sig"))
    except ValueError as error:
        raise ValueError(f"{source}: the settings are not JSON: {error}") from None
    if not isinstance(settings, dict):
        raise ValueError(f"{source}: the settings are not a JSON object")
    return settings, source


def _without_prefix(name: str) -> str:
    return next((name.removeprefix(prefix) for prefix in _PREFIXES if name.startswith(prefix)), name)

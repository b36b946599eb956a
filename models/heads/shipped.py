"""The heads that come with this package, for models known by name."""

from pathlib import Path

_FOLDER = Path(__file__).parent / "data"


def default_heads(name: str) -> Path | None:
    """Find the heads for a known model; None where there are none."""
    file = _FOLDER / f"{name}.safetensors"
    return file if name and file.is_file() else None

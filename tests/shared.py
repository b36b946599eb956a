"""The one way from the tests to the folder of vectors and traces that may lie beside a checkout."""

import os
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent


def shared_folder() -> Path:
    return Path(os.environ.get("OUTRIDER_SHARED") or CHECKOUT.parent / "shared")


def shared(name: str) -> Path:
    """The path of `name` in the shared folder; skips the calling test (or module) where it is not there."""
    path = shared_folder() / name
    if not path.exists():
        pytest.skip(f"{path} is not there: set OUTRIDER_SHARED to run this", allow_module_level=True)
    return path

"""Optional packages, imported when they are needed."""

import importlib
from typing import Any


def need(module: str, extra: str) -> Any:
    """Import `module`, or raise ImportError that names the extra it comes with."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(without(module, extra)) from error


def without(module: str, extra: str) -> str:
    """Say that a package is missing, and how to have it."""
    package = module.partition(".")[0]
    return f"{package} is not installed: it comes with the extra '{extra}', from a checkout pip install -e '.[{extra}]'"

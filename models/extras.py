"""Optional packages, imported when they are needed."""

import importlib
from typing import Any


def need(module: str, extra: str) -> Any:
    """Import `module`, or raise ImportError that names the extra it comes with."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{module} is not installed: pip install 'outrider[{extra}]'") from error

"""An LLM decoding engine of asyncio actors: speculation that changes speed only, and a KV pool that loses nothing.

The parts are `outrider.spec`, `.kvpool`, `.scheduler`, `.actors`, `.models`, `.server`, `.sims`, `.plans` and `.cli`.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actors import Engine, EngineConfig, EngineFailed, EngineFull, Request, RequestError, Stream, Token
    from models import FakeModel, Model, ReplayModel
    from spec import Draft, SamplingParams, SpecConfig, SpecError, generate

__all__ = [
    "Draft",
    "Engine",
    "EngineConfig",
    "EngineFailed",
    "EngineFull",
    "FakeModel",
    "Model",
    "ReplayModel",
    "Request",
    "RequestError",
    "SamplingParams",
    "SpecConfig",
    "SpecError",
    "Stream",
    "Token",
    "__version__",
    "generate",
]

try:
    __version__ = version("outrider")
except PackageNotFoundError:  # run from a checkout that is not installed
    __version__ = "0+checkout"

if find_spec("outrider.spec") is None:  # in a checkout the parts are its folders, packages of their own
    from outrider.checkout import give_folders_as_parts

    give_folders_as_parts()

_PARTS = ("spec", "kvpool", "scheduler", "actors", "models", "server", "sims", "plans", "cli")


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is: the command must be able to end before all of it is there."""
    if name in _PARTS:
        return import_module(f"outrider.{name}")
    if name in __all__:
        for part in ("spec", "models", "actors"):
            found = getattr(import_module(f"outrider.{part}"), name, None)
            if found is not None:
                return found
    raise AttributeError(f"module 'outrider' has no attribute {name!r}")

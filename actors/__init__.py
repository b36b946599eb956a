"""The engine: scheduler, block manager and model runner as actors, and the streams their clients read."""

from actors.actor import Tap
from actors.engine import Engine, EngineFailed, EngineFull
from actors.snapshot import EVICTABLE, FREE, LEAVING, SequenceView, Snapshot
from actors.stats import Counters, EngineStats
from actors.stream import Emitted, Speculation, Stream, Token
from scheduler import EngineConfig, Request, RequestError

__all__ = [
    "EVICTABLE",
    "FREE",
    "LEAVING",
    "Counters",
    "Emitted",
    "Engine",
    "EngineConfig",
    "EngineFailed",
    "EngineFull",
    "EngineStats",
    "Request",
    "RequestError",
    "SequenceView",
    "Snapshot",
    "Speculation",
    "Stream",
    "Tap",
    "Token",
]

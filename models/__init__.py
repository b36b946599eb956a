"""Targets: what the engine can drive. Nothing here loads weights or heavy packages when imported."""

from models.checked_kv import KvMismatch
from models.execution import execute
from models.fake import FakeModel, FakeTarget
from models.protocol import Chunk, Emission, Model, SelfVerifyingModel, SlotMove
from models.replay import ReplayModel
from models.runner_target import RunnerTarget

__all__ = [
    "Chunk",
    "Emission",
    "FakeModel",
    "FakeTarget",
    "KvMismatch",
    "Model",
    "ReplayModel",
    "RunnerTarget",
    "SelfVerifyingModel",
    "SlotMove",
    "execute",
]

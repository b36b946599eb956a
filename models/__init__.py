"""Targets: what the engine can drive. Nothing here loads weights or heavy packages when imported."""

from models.checked_kv import KvMismatch
from models.draft_model import DraftModel
from models.drafting import DraftOrder, draft
from models.execution import ModelError, execute
from models.fake import FakeModel, FakeTarget
from models.fake_proposer import FakeProposer, LoneFakeProposer
from models.laws import laws_of
from models.lone_proposer import LoneProposer
from models.paying_nodes import with_paying_nodes
from models.protocol import Ask, Chunk, Emission, Model, Proposer, SelfVerifyingModel, SlotMove, TappedModel
from models.replay import ReplayModel
from models.runner_target import RunnerTarget

__all__ = [
    "Ask",
    "Chunk",
    "DraftModel",
    "DraftOrder",
    "Emission",
    "FakeModel",
    "FakeProposer",
    "FakeTarget",
    "KvMismatch",
    "LoneFakeProposer",
    "LoneProposer",
    "Model",
    "ModelError",
    "Proposer",
    "ReplayModel",
    "RunnerTarget",
    "SelfVerifyingModel",
    "SlotMove",
    "TappedModel",
    "draft",
    "execute",
    "laws_of",
    "with_paying_nodes",
]

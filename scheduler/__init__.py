"""Who runs next and with how many tokens. Pure and synchronous: no loop, no clock, no pool of its own."""

from scheduler.adaptive import PassCost
from scheduler.config import NO_DRAFTS, EngineConfig
from scheduler.core import Scheduler
from scheduler.errors import RequestError
from scheduler.plan import Entry, Plan, Planned, Settled
from scheduler.proposal import NO_PROPOSAL, Proposal
from scheduler.request import Request, check_request, own_copy
from scheduler.sequence import FinishReason, Sequence
from scheduler.states import MOVES, State

__all__ = [
    "MOVES",
    "NO_DRAFTS",
    "NO_PROPOSAL",
    "EngineConfig",
    "Entry",
    "FinishReason",
    "PassCost",
    "Plan",
    "Planned",
    "Proposal",
    "Request",
    "RequestError",
    "Scheduler",
    "Sequence",
    "Settled",
    "State",
    "check_request",
    "own_copy",
]

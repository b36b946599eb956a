"""What the engine counts."""

import msgspec

from kvpool import PoolStats


class Counters(msgspec.Struct):
    """What has happened since the engine started. Token counts are of sequences that were admitted."""

    num_submitted: int = 0
    num_finished: dict[str, int] = msgspec.field(default_factory=lambda: {"stop": 0, "length": 0})
    num_failed: int = 0
    num_cancelled: int = 0
    cancels_by_phase: dict[str, int] = {}
    """By the state a cancel found the sequence in; `…_pass` where a pass over it was under way."""
    num_steps: int = 0
    num_preemptions: int = 0
    num_restarts: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    """Prompt tokens found in the prefix cache when a sequence was first admitted."""
    num_fed_tokens: int = 0
    num_emitted_tokens: int = 0
    num_wasted_tokens: int = 0
    """Fed in a pass whose result was dropped, because its sequence was cancelled or the pass failed."""
    num_rounds: int = 0
    num_drafts: int = 0
    """Rounds that had a draft."""
    num_drafted: int = 0
    num_accepted: int = 0
    accepted_by_position: list[int] = []
    drafted_by_position: list[int] = []


class EngineStats(msgspec.Struct, frozen=True):
    """The engine now: gauges, and a copy of the counters."""

    num_running: int
    num_waiting: int
    num_paused: int
    mailbox_depth: int
    blocks: PoolStats
    num_checks: int
    num_violations: int
    counters: Counters

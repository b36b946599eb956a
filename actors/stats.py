"""What the engine counts."""

from typing import NamedTuple

import msgspec

from kvpool import PoolStats
from scheduler import Proposal
from spec import MAX_NODES


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
    """Of the runner, idle or not: it counts them, and a copy of the counters has them from there."""
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    """Prompt tokens found in the prefix cache when a sequence was first admitted."""
    num_fed_tokens: int = 0
    num_emitted_tokens: int = 0
    num_wasted_tokens: int = 0
    """Fed in a pass whose result was dropped, because its sequence was cancelled or the pass failed."""
    num_rounds: int = 0
    rounds_by_drafted: list[int] = msgspec.field(default_factory=lambda: [0] * (MAX_NODES + 1))
    """How many rounds had a draft of 0, 1, 2, ... tokens: of a tree, nodes."""
    rounds_by_depth: list[int] = msgspec.field(default_factory=lambda: [0] * (MAX_NODES + 1))
    """How many rounds had a draft of 0, 1, 2, ... layers: of a chain, tokens."""
    rounds_by_accepted: list[int] = msgspec.field(default_factory=lambda: [0] * (MAX_NODES + 1))
    """How many rounds accepted 0, 1, 2, ... drafted tokens."""
    num_failed_proposals: int = 0
    """Times that the proposer failed, and the drafts that it was asked for were left out."""

    def add_round(self, draft: Proposal, num_accepted: int) -> None:
        """Count a round: its draft, and how many tokens of it were accepted."""
        self.num_rounds += 1
        self.rounds_by_drafted[draft.num_nodes] += 1
        self.rounds_by_depth[draft.num_nodes if draft.parents is None else draft.depth] += 1
        self.rounds_by_accepted[num_accepted] += 1

    def copied(self) -> "Counters":
        """Give a copy that stays as it is."""
        parts = {
            field: value.copy()
            for field in self.__struct_fields__
            if isinstance(value := getattr(self, field), dict | list)
        }
        return msgspec.structs.replace(self, **parts)

    @property
    def num_drafts(self) -> int:
        """Rounds that had a draft."""
        return self.num_rounds - self.rounds_by_drafted[0]

    @property
    def num_drafted(self) -> int:
        """Tokens drafted."""
        return sum(i * n for i, n in enumerate(self.rounds_by_drafted))

    @property
    def num_accepted(self) -> int:
        """Drafted tokens that the target accepted."""
        return sum(i * n for i, n in enumerate(self.rounds_by_accepted))

    @property
    def drafted_by_position(self) -> list[int]:
        """Drafts that had a first, second, third, ... token on a path."""
        return _at_least(self.rounds_by_depth)

    @property
    def accepted_by_position(self) -> list[int]:
        """Drafts whose first, second, third, ... token was accepted."""
        return _at_least(self.rounds_by_accepted)


def _at_least(rounds_by_count: list[int]) -> list[int]:
    return [sum(rounds_by_count[i:]) for i in range(1, len(rounds_by_count))]


class Load(NamedTuple):
    """The scheduler now: the sequences that run, that are paused, and of these the ones that were preempted."""

    num_running: int
    num_paused: int
    num_parked: int
    counters: Counters


class EngineStats(msgspec.Struct, frozen=True):
    """The engine now: gauges, and a copy of the counters."""

    num_running: int
    num_waiting: int
    num_paused: int
    num_parked: int
    """Of those that wait: the ones whose client does not read."""
    mailbox_depth: int
    blocks: PoolStats
    num_checks: int
    num_violations: int
    counters: Counters

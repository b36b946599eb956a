"""What the policy answers: who may come in, what the next pass feeds, and what a pass did."""

from typing import NamedTuple

import msgspec

from kvpool import Candidate, Victim
from scheduler.proposal import Proposal
from scheduler.sequence import FinishReason, Sequence


class Planned(msgspec.Struct, frozen=True, gc=False):
    """What one sequence feeds in the next pass.

        pending                                  draft
        |-- num_pending fed --|-- (the rest) --|-- m --|

    The draft is fed, and the round verified, only with the last of what is pending (`is_round`). One that a model is
    still to make counts as large as it may come to be.
    """

    sequence: Sequence
    num_pending: int
    draft: Proposal
    is_round: bool

    @property
    def num_tokens(self) -> int:
        """Tokens fed: what counts against the budget."""
        return self.num_pending + self.draft.num_nodes

    @property
    def ends_context(self) -> bool:
        """Nothing, or a last token alone, is left to feed after it."""
        return self.num_pending >= self.sequence.num_pending - 1

    def with_draft(self, draft: Proposal) -> "Planned":
        """Give the same with another draft."""
        return Planned(self.sequence, self.num_pending, draft, self.is_round)

    @property
    def ids(self) -> list[int]:
        """The ids to feed, from position `sequence.cached` on."""
        sequence = self.sequence
        start = sequence.cached
        return sequence.context[start : start + self.num_pending] + self.draft.tokens


class Entry(NamedTuple):
    """Who may come in, who would give way to them, and what the block manager needs to know to decide.

    `num_places` are free, and the running are still to take `num_promised` blocks.
    """

    candidates: list[Candidate]
    victims: list[Victim]
    num_places: int
    num_promised: int


class Plan(NamedTuple):
    """The next pass, or the sequences to preempt before there can be one.

    With neither, and `is_catching_up`, there is more to prepare: plan again.
    """

    feeds: list[Planned]
    victims: list[Sequence]
    is_catching_up: bool = False


class Settled(msgspec.Struct, frozen=True, gc=False):
    """What a pass did for a sequence.

    `verified` are the tokens now cached, `emitted` those for the client, of which the first `num_accepted` had been
    drafted.
    """

    verified: list[int]
    emitted: list[int]
    num_accepted: int
    finish_reason: FinishReason | None

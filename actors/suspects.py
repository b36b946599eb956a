"""Who may have made a pass raise: each of its sequences is tried alone, so that one can fail without the others."""

from collections.abc import Collection
from typing import NamedTuple

from scheduler import Plan, Planned, Sequence

_NUM_PROOFS = 4  # passes of its own that a sequence must make raise: fewer can be chance,
_NUM_LAST_PROOFS = 2  # and must do where one more would end the engine


class _Case(NamedTuple):
    """What is held against a sequence: `end` is the position it must come past, alone, to be cleared."""

    end: int
    num_alone: int


class Suspects:
    """After a pass has raised, all that it fed are suspects.

    Each gets passes of its own until it has come past where it stood, or has made too many of them raise; in between,
    those that are no suspects have theirs.
    """

    def __init__(self) -> None:
        self._cases: dict[int, _Case] = {}
        self._was_trial = False
        self._has_raised_alone = False  # since a pass last came back

    def narrow(self, plan: Plan) -> tuple[Plan, list[Planned]]:
        """Give the part of a plan that may run together, and what of it is put off."""
        if not self._cases:
            self._was_trial = False
            return plan, []
        suspects = [planned for planned in plan.feeds if planned.sequence.seq in self._cases]
        others = [planned for planned in plan.feeds if planned.sequence.seq not in self._cases]
        self._was_trial = bool(suspects) and not (others and self._was_trial)
        if not suspects:
            return plan, []
        if not self._was_trial:
            return Plan(others, []), suspects
        fewest = min(self._num_alone(planned.sequence.seq) for planned in suspects)
        least = [planned for planned in suspects if self._num_alone(planned.sequence.seq) == fewest]
        #   what one client sends comes in a row: after one that raised, look at the other end
        tried = least[-1 if self._has_raised_alone else 0]
        return Plan([tried], []), [planned for planned in plan.feeds if planned is not tried]

    def could_blame(self, seqs: Collection[int]) -> bool:
        """Tell whether it would be proof enough, in need, if a pass over these raised."""
        return len(seqs) == 1 and all(self._num_alone(seq) + 1 >= _NUM_LAST_PROOFS for seq in seqs)

    def raised(self, feeds: list[Planned], *, is_in_need: bool) -> Sequence | None:
        """Take in that a pass over these raised; the sequence that is found to be the cause, if one is.

        `is_in_need`: the engine would have ended, had it not been for `could_blame`.
        """
        for planned in feeds:
            sequence, case = planned.sequence, self._cases.get(planned.sequence.seq, _Case(0, 0))
            end = max(case.end, sequence.cached + planned.num_tokens)
            self._cases[sequence.seq] = _Case(end, case.num_alone + (len(feeds) == 1))
        if len(feeds) > 1:
            return None
        self._has_raised_alone = True
        alone = feeds[0].sequence
        return alone if self._num_alone(alone.seq) >= (_NUM_LAST_PROOFS if is_in_need else _NUM_PROOFS) else None

    def came_back(self, feeds: list[Planned]) -> bool:
        """Take in that a pass came back; True where ones of single sequences had raised since one last did.

        The model works, then, and they were to blame.
        """
        if len(feeds) == 1:
            alone = feeds[0]
            case = self._cases.get(alone.sequence.seq)
            if case is not None and (alone.is_round or alone.sequence.cached + alone.num_tokens >= case.end):
                del self._cases[alone.sequence.seq]
        had_raised, self._has_raised_alone = self._has_raised_alone, False
        return had_raised

    def forget(self, seq: int) -> None:
        """Drop the case of a sequence that has ended."""
        self._cases.pop(seq, None)

    def _num_alone(self, seq: int) -> int:
        return self._cases[seq].num_alone if seq in self._cases else 0

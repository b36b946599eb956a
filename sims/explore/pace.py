"""Who is fed how often: nobody waits too long for a round, and nobody who has left gets another."""

from collections.abc import Mapping

from actors.messages import Step
from scheduler import Sequence, State
from sims.explore.invariants import CANCEL, PROGRESS, Violation


class Pace:
    """Follows the passes of a run; at most `max_running` sequences can be ahead of one that waits."""

    def __init__(self, max_running: int) -> None:
        self._max_running = max_running
        self._gaps: dict[int, int] = {}
        self._num_steps_left: dict[int, int] = {}

    def leaves(self, seq: int, *, is_in_pass: bool) -> None:
        """Take in a cancel: a pass that is being planned may still feed the sequence, after a running one none."""
        self._num_steps_left[seq] = 0 if is_in_pass else 1

    def step(self, step: Step, running: Mapping[int, Sequence]) -> None:
        """Take in a pass as it is handed over. Raises Violation."""
        served = {feed.seq for feed in step.feeds}
        for seq in served & self._num_steps_left.keys():
            self._num_steps_left[seq] -= 1
            if self._num_steps_left[seq] < 0:
                raise Violation(CANCEL, f"pass {step.number} feeds sequence {seq}, whose client left before")
        gaps = {}
        for seq, sequence in running.items():
            if sequence.state is State.DECODE and not sequence.is_paused and seq not in served:
                gaps[seq] = self._gaps.get(seq, 0) + 1
                if gaps[seq] > self._max_running:
                    raise Violation(PROGRESS, f"sequence {seq} decodes and had no round in {gaps[seq]} passes")
        self._gaps = gaps

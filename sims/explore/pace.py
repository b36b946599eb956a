"""Who is fed how often: nobody waits too long for a round or a chunk, and nobody who has left gets another."""

from collections.abc import Mapping, Sequence

from kvpool import blocks_for
from scheduler import EngineConfig, Scheduler, State
from scheduler import Sequence as Served
from sims.explore.invariants import CANCEL, PROGRESS, Violation


class Pace:
    """Follows the passes of a run; what it allows, it works out from the sequences and not from the scheduler."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._gaps: dict[int, int] = {}
        self._held_back: int | None = None
        self._num_steps_left: dict[int, int] = {}

    def leaves(self, seq: int, *, is_in_pass: bool) -> None:
        """Take in a cancel: a pass that is being planned may still feed the sequence, after a running one none."""
        self._num_steps_left[seq] = 0 if is_in_pass else 1

    def admitted(self, came_in: Sequence[Served], gave_way: Sequence[Served]) -> None:
        """See that who gave way was paused, or less urgent than one who came in. Raises Violation."""
        for served in gave_way:
            if not came_in or not (served.is_paused or served.request.priority > came_in[0].request.priority):
                raise Violation(PROGRESS, f"sequence {served.seq} gave way to {[other.seq for other in came_in]}")

    def step(
        self, number: int, num_fed: Mapping[int, int], core: Scheduler, num_available: int, *, is_trial: bool = False
    ) -> None:
        """Take in a pass as it is handed over: tokens fed by sequence, and the blocks that are left. Raises Violation.

        At most `max_running` sequences are ahead of one that decodes, and prefill has every second pass; but for the
        while in which suspects of a crash are tried one by one.
        """
        for seq in num_fed.keys() & self._num_steps_left.keys():
            self._num_steps_left[seq] -= 1
            if self._num_steps_left[seq] < 0:
                raise Violation(CANCEL, f"pass {number} feeds sequence {seq}, whose client left before")
        if is_trial:
            self._gaps, self._held_back = {}, None
            return
        unpaused = [served for served in core.running.values() if not served.is_paused]
        self._check_rounds([served for served in unpaused if served.state is State.DECODE], num_fed)
        self._check_prefill(unpaused, num_fed, num_available)
        self._check_urgency(unpaused, core)

    def _check_rounds(self, decodes: list[Served], num_fed: Mapping[int, int]) -> None:
        self._gaps = {served.seq: self._gaps.get(served.seq, 0) + 1 for served in decodes if served.seq not in num_fed}
        for seq, gap in self._gaps.items():
            if gap > 2 * self._config.max_running:
                raise Violation(PROGRESS, f"sequence {seq} decodes and had no round in {gap} passes")

    def _check_prefill(self, unpaused: list[Served], num_fed: Mapping[int, int], num_available: int) -> None:
        """See that the first in prefill has half of what rounds without drafts would leave, in every second pass."""
        prefills = [served for served in unpaused if served.state is State.PREFILL]
        was_held_back, self._held_back = self._held_back, None
        if not prefills:
            return
        first = min(prefills, key=lambda served: served.rank)
        num_before = len([s for s in unpaused if s.state is State.DECODE and s.request.priority <= first.rank[0]])
        share = max(1, (self._config.max_batch_tokens - num_before) // 2)
        least = max(1, min(share, first.num_pending - 1))
        num_needed = 1 if first.num_pending > 1 else blocks_for(1 + first.most_drafted, self._config.block_tokens)
        if num_fed.get(first.seq, 0) < least and num_available >= num_needed:
            self._held_back = first.seq
            if was_held_back == first.seq:
                raise Violation(
                    PROGRESS, f"sequence {first.seq} in prefill got {num_fed.get(first.seq, 0)} tokens, {least} are due"
                )

    def _check_urgency(self, unpaused: list[Served], core: Scheduler) -> None:
        """See that nobody waits who would fit in the stead of the less urgent that run."""
        first = min(core.waiting, key=lambda served: served.rank, default=None)
        if first is None:
            return
        config = self._config
        before = [served for served in unpaused if served.request.priority <= first.request.priority]
        if len(before) == len(core.running) or len(before) >= config.max_running:
            return
        num_tokens = sum(1 if s.state is State.DECODE else len(s.context) for s in before)
        num_blocks = sum(map(self._num_blocks, [first, *before]))
        if num_tokens < config.max_batch_tokens and num_blocks <= config.num_blocks:
            less = sorted(core.running.keys() - {served.seq for served in before})
            raise Violation(PROGRESS, f"sequence {first.seq} waits for {less}, which are paused or less urgent")

    def _num_blocks(self, served: Served) -> int:
        """Blocks for a sequence's context, a draft, and a block to grow."""
        size = self._config.block_tokens
        return blocks_for(min(served.num_slots, len(served.context) + served.most_drafted + size), size)

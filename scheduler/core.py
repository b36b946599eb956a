"""Who runs next and with how many tokens: continuous batching with chunked prefill, as a pure state machine.

Every plan is made from scratch. If blocks are short, the plan names victims and nothing else; they are preempted
and planning starts again, so nothing that a victim was planned for can be left behind.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kvpool import blocks_for
from scheduler.adaptive import Acceptance, PassCost, share_rows
from scheduler.config import EngineConfig
from scheduler.sequence import FinishReason, Sequence
from scheduler.states import State
from scheduler.waiting import WaitingQueue


class Planned(NamedTuple):
    """What one sequence feeds in the next pass.

        pending                                  draft
        |-- num_pending fed --|-- (the rest) --|-- m --|

    The draft is fed, and the round verified, only with the last of what is pending (`is_round`).
    """

    sequence: Sequence
    num_pending: int
    draft: list[int]
    is_round: bool

    @property
    def num_tokens(self) -> int:
        """Tokens fed: what counts against the budget."""
        return self.num_pending + len(self.draft)

    @property
    def ids(self) -> list[int]:
        """The ids to feed, from position `sequence.cached` on."""
        start = self.sequence.cached
        return self.sequence.context[start : start + self.num_pending] + self.draft


class Plan(NamedTuple):
    """The next pass, or the sequences to preempt before there can be one."""

    feeds: list[Planned]
    victims: list[Sequence]


class Settled(NamedTuple):
    """What a pass did for a sequence.

    `verified` are the tokens now cached, `emitted` those for the client, of which the first `num_accepted` had been
    drafted.
    """

    verified: list[int]
    emitted: list[int]
    num_accepted: int
    finish_reason: FinishReason | None


class Scheduler:
    """Every live sequence, and the policy. `available` is always the blocks that the pool could hand out now."""

    def __init__(self, config: EngineConfig, pass_cost: PassCost | None = None) -> None:
        self.config = config
        self._pass_cost = pass_cost if config.adaptive else None
        self._acceptance = Acceptance()  # of all sequences
        self._is_crowded = False  # somebody waits for a place, not for the token budget
        self.waiting = WaitingQueue()
        self.running: dict[int, Sequence] = {}
        self.parked: dict[int, Sequence] = {}  # preempted while their clients do not read
        self._num_served = 0
        self.num_preemptions = 0

    def submit(self, sequence: Sequence) -> None:
        """Queue a new sequence."""
        self.waiting.push(sequence)

    def live(self) -> list[Sequence]:
        """List every sequence that has not ended."""
        return [*self.running.values(), *self.waiting, *self.parked.values()]

    # admission

    def candidates(self, available: int) -> list[Sequence]:
        """Name those to admit now, best rank first: none overtakes.

        One is admitted if the pool could hold its whole context and next round beside what each of the running
        needs for the same and a block to grow. Nobody running: the first always is.
        """
        self._is_crowded = False
        if not self.waiting:
            return []
        size, limit = self.config.block_tokens, self.config.max_running - len(self.running)
        budget = self.config.max_batch_tokens
        for running in self.running.values():
            available -= 1 + self._outstanding(running)
            if not running.is_paused:
                budget -= 1 if running.state is State.DECODE else running.num_pending
        chosen: list[Sequence] = []
        queue = self.waiting
        while len(chosen) < limit and budget > 0 and (sequence := queue.first()) is not None:
            available -= blocks_for(self._whole(sequence), size)
            if available < 0 and (self.running or chosen):
                self._is_crowded = True
                break
            queue.remove(sequence)
            chosen.append(sequence)
            budget -= sequence.num_pending
        self._is_crowded |= len(chosen) >= limit and bool(self.waiting)
        return chosen

    def admitted(self, sequence: Sequence, cached: int | None) -> None:
        """Start a candidate with what the prefix cache had of it; None sends it back to wait."""
        if cached is None:
            self.waiting.push(sequence)
            return
        sequence.move(State.PREFILL)
        sequence.cached = cached
        self.running[sequence.seq] = sequence

    def _outstanding(self, sequence: Sequence) -> int:
        size = self.config.block_tokens
        return blocks_for(self._whole(sequence), size) - blocks_for(sequence.cached, size)

    def _whole(self, sequence: Sequence) -> int:
        """Positions that a sequence's context and a draft can come to."""
        num_draft = max(0, min(sequence.speculative.k, sequence.room - sequence.num_emitted - 1))
        return len(sequence.context) + num_draft

    # planning

    def plan(self, available: int) -> Plan:
        """Plan the next pass: rounds first, prefill fills what the token budget leaves."""
        paused = [s for s in self.running.values() if s.is_paused]
        if paused and self._is_crowded:  # who does not read may hold no place that another waits for
            return Plan([], [max(paused, key=_rank)])
        decodes = [s for s in self.running.values() if s.state is State.DECODE and not s.is_paused]
        feeds, budget = self._rounds(decodes)
        needed = self._num_new_blocks(feeds)
        if needed > available:
            feeds, budget = self._without_droppable_drafts(feeds, budget)
            needed = self._num_new_blocks(feeds)
        if needed > available:
            return Plan([], self._victims(needed - available))
        available -= needed
        prefills = [s for s in self.running.values() if s.state is State.PREFILL and not s.is_paused]
        for sequence in sorted(prefills, key=_rank):
            chunk = self._chunk(sequence, budget, available)
            if chunk is None:
                continue
            feeds.append(chunk)
            budget -= chunk.num_tokens
            available -= sequence.num_new_blocks(chunk.num_tokens, self.config.block_tokens)
        if not feeds and (decodes or prefills):
            return Plan([], self._victims(1))
        for planned in feeds:
            self._num_served += 1
            planned.sequence.last_served = self._num_served
        return Plan(feeds, [])

    def _rounds(self, decodes: list[Sequence]) -> tuple[list[Planned], int]:
        """Give every sequence its round, or, where the budget is short, first to those served longest ago."""
        budget = self.config.max_batch_tokens
        feeds = [Planned(s, 1, s.propose(), True) for s in decodes]
        if self._pass_cost is not None:
            feeds = self._worth_feeding(feeds, self._pass_cost)
        total = len(feeds) + sum(len(planned.draft) for planned in feeds)
        if total <= budget:
            return feeds, budget - total
        feeds.sort(key=lambda planned: (planned.sequence.last_served, planned.sequence.rank))
        served = []
        for planned in feeds:
            if planned.num_tokens > budget:
                break
            budget -= planned.num_tokens
            served.append(planned)
        return served, budget

    def _worth_feeding(self, feeds: list[Planned], cost: PassCost) -> list[Planned]:
        """Cut the drafts that may be cut to what they are expected to gain."""
        open_ = [i for i, planned in enumerate(feeds) if planned.draft and planned.sequence.may_drop_draft]
        chances = [feeds[i].sequence.chances(self._acceptance) for i in open_]
        num_rows = sum(planned.num_tokens for planned in feeds) - sum(map(len, chances))
        for i, share in zip(open_, share_rows(cost, num_rows, len(feeds), chances), strict=True):
            feeds[i] = feeds[i]._replace(draft=feeds[i].draft[:share])
        return feeds

    def _without_droppable_drafts(self, feeds: list[Planned], budget: int) -> tuple[list[Planned], int]:
        kept = [planned._replace(draft=[]) if planned.sequence.may_drop_draft else planned for planned in feeds]
        return kept, budget + sum(len(p.draft) for p in feeds) - sum(len(p.draft) for p in kept)

    def _chunk(self, sequence: Sequence, budget: int, available: int) -> Planned | None:
        """Feed as much of the context as budget and blocks allow; the last token only together with the draft."""
        size = self.config.block_tokens
        #   positions that the held blocks and the available ones still have room for
        room = (blocks_for(sequence.cached, size) + available) * size - sequence.cached
        room = min(room, budget)
        num_pending = sequence.num_pending
        if num_pending <= room:
            draft = sequence.propose()
            if num_pending + len(draft) > room and sequence.may_drop_draft:
                draft = []
            if num_pending + len(draft) <= room:
                return Planned(sequence, num_pending, draft, True)
        num_fed = min(room, num_pending - 1)
        return Planned(sequence, num_fed, [], False) if num_fed > 0 else None

    def _num_new_blocks(self, feeds: Iterable[Planned]) -> int:
        size = self.config.block_tokens
        return sum(planned.sequence.num_new_blocks(planned.num_tokens, size) for planned in feeds)

    def _victims(self, num_blocks: int) -> list[Sequence]:
        """Name the paused, then the last in rank, until `num_blocks` would come back; the first to run never."""
        victims = []
        size = self.config.block_tokens
        in_order = sorted(self.running.values(), key=lambda s: (s.is_paused, s.rank), reverse=True)
        for sequence in in_order[:-1]:
            if num_blocks <= 0:
                break
            if sequence.cached:
                victims.append(sequence)
                num_blocks -= blocks_for(sequence.cached, size)
        assert victims, "a lone sequence always fits: larger ones are refused at submission"
        return victims

    # what happens to a sequence

    def preempt(self, sequence: Sequence) -> None:
        """Send a running sequence, whose blocks are given back, to wait and be computed again."""
        del self.running[sequence.seq]
        sequence.move(State.PREEMPTED)
        sequence.give_up_cache()
        sequence.num_preemptions += 1
        self.num_preemptions += 1
        if sequence.is_paused:
            self.parked[sequence.seq] = sequence
        else:
            self.waiting.push(sequence)

    def resume(self, sequence: Sequence) -> None:
        """Let a paused sequence run again: its client has caught up."""
        sequence.is_paused = False
        if self.parked.pop(sequence.seq, None) is not None:
            self.waiting.push(sequence)

    def settle(self, planned: Planned, tokens: list[int]) -> Settled:
        """Take in what a pass gave: `tokens` as verified, none where it was not a round."""
        sequence = planned.sequence
        start = sequence.cached
        if not planned.is_round:
            sequence.cached = start + planned.num_pending
            return Settled(sequence.context[start : sequence.cached], [], 0, None)
        emitted, reason = sequence.take(tokens)
        num_accepted = min(len(tokens) - 1, len(emitted))
        sequence.num_rounds += 1
        sequence.num_drafted += len(planned.draft)
        sequence.num_accepted += num_accepted
        verified = sequence.context[start : sequence.cached]
        if reason is not None:
            self.end(sequence, State.FINISHED)
        elif sequence.state is State.PREFILL:
            sequence.move(State.DECODE)
        return Settled(verified, emitted, num_accepted, reason)

    def end(self, sequence: Sequence, state: State) -> None:
        """Let a live sequence end, wherever it stands: the one exit. Its blocks are still to be given back."""
        if self.running.pop(sequence.seq, None) is None and self.parked.pop(sequence.seq, None) is None:
            self.waiting.remove(sequence)
        sequence.move(state)


def _rank(sequence: Sequence) -> tuple[int, int]:
    return sequence.rank

"""Who runs next and with how many tokens: continuous batching with chunked prefill, as a pure state machine.

Every plan is made from scratch. If blocks are short, the plan names victims and nothing else; they are preempted
and planning starts again, so nothing that a victim was planned for can be left behind.
"""

from collections.abc import Iterable
from itertools import accumulate, groupby

from kvpool import Candidate, Victim, blocks_for
from scheduler.adaptive import Acceptance, Lead, PassCost, Prices, share_rows
from scheduler.config import EngineConfig
from scheduler.plan import Entry, Plan, Planned, Settled
from scheduler.proposal import NO_PROPOSAL, Proposal
from scheduler.sequence import Sequence
from scheduler.states import State
from scheduler.waiting import WaitingQueue
from spec import Draft, FinishedRequests

NUM_CAUGHT_UP = 1024
"""Tokens found cached that drafters take in before a pass, beside those that it feeds: a few milliseconds' work."""

_DRAFTED_AHEAD_EVERY = 32  # steps, at least
_LEAST_LEAD = 0.05  # tokens that drafts ahead must gain: the estimates are rough


class Scheduler:
    """Every live sequence, and the policy. `available` is always the blocks that the pool could hand out now."""

    def __init__(self, config: EngineConfig, pass_cost: PassCost | None = None) -> None:
        self.config = config
        self._pass_cost = pass_cost if config.adaptive else None
        self._acceptance = Acceptance()  # of all sequences
        self._lead = Lead(config.speculative.model_shape.max_depth)
        self._num_steps_unasked = 0  # since a model last drafted ahead
        self.finished = FinishedRequests()
        self._are_rounds_due = False  # the last pass had room for none beside what prefill is owed
        self.waiting = WaitingQueue()
        self.running: dict[int, Sequence] = {}
        self.parked: dict[int, Sequence] = {}  # preempted while their clients do not read
        self._num_served = 0

    @property
    def is_adaptive(self) -> bool:
        """Whether drafts are held against what they cost."""
        return self._pass_cost is not None

    def submit(self, sequence: Sequence) -> None:
        """Queue a new sequence."""
        self.waiting.push(sequence)

    def live(self) -> list[Sequence]:
        """List every sequence that has not ended."""
        return [*self.running.values(), *self.waiting, *self.parked.values()]

    # admission

    def candidates(self, available: int) -> Entry | None:
        """Name those who may come in, best rank first, and who would give way to them; None where nobody could.

        As many as the token budget could feed beside those of their priority or better. Whoever is paused gives way to
        all, whoever else is less urgent to the more urgent, the last in rank first. The block manager, which knows what
        a candidate would find cached, admits as many as fit beside what the others are to come to: nobody overtakes.
        """
        first = self.waiting.first()
        if first is None:
            return None
        running = self.running.values()
        num_places = self.config.max_running - len(running)
        num_promised = sum(map(self._num_promised, running))
        may_go = sorted((s for s in running if _gives_way(s, first)), key=_last_to_run, reverse=True)
        #   each takes a block at least: the one for the token that is always left to feed
        most = min(num_places, available - num_promised) if not may_go else num_places + len(may_go)
        chosen: list[Candidate] = []
        priority, budget, num_victims = None, 0, 0
        num_pending = 0
        while len(chosen) < most and (sequence := self.waiting.first()) is not None:
            if sequence.request.priority != priority:
                priority = sequence.request.priority
                budget = self.config.max_batch_tokens - sum(
                    1 if s.state is State.DECODE else s.num_pending
                    for s in running
                    if not s.is_paused and s.request.priority <= priority
                )
                num_victims = sum(_gives_way(s, sequence) for s in may_go)
            if num_pending >= budget:
                break
            self.waiting.remove(sequence)
            asks_for = self._num_foreseen(sequence)
            chosen.append(Candidate(sequence.seq, sequence.context, sequence.salt, asks_for, num_victims))
            num_pending += sequence.num_pending
        if not chosen:
            return None
        victims = [Victim(s.seq, self._num_promised(s)) for s in may_go]
        return Entry(chosen, victims, num_places, num_promised)

    def admitted(self, sequence: Sequence, cached: int | None) -> None:
        """Start a candidate with what the prefix cache had of it; None sends it back to wait."""
        if cached is None:
            self.waiting.push(sequence)
            return
        sequence.admit(cached)
        self.running[sequence.seq] = sequence

    def _num_foreseen(self, sequence: Sequence) -> int:
        """Blocks for a sequence's context, a draft and a block to grow, never past its end."""
        size = self.config.block_tokens
        return blocks_for(min(len(sequence.context) + sequence.most_drafted + size, sequence.num_slots), size)

    def _num_promised(self, sequence: Sequence) -> int:
        """Blocks of those that a running sequence has yet to take."""
        return self._num_foreseen(sequence) - blocks_for(sequence.cached, self.config.block_tokens)

    # planning

    def plan(self, available: int) -> Plan:
        """Plan the next pass: a round for each, prefill in what the token budget leaves, and drafts in between.

        Drafts take no more of what plain rounds would leave than prefill gets, unless it can use no more. Rounds that
        do not fit beside what prefill is owed take turns, with each other and, where not one fits, with prefill, pass
        by pass.
        """
        decodes: list[Sequence] = []
        in_prefill: list[Sequence] = []
        behind: list[Sequence] = []
        decode = State.DECODE
        for sequence in self.running.values():
            if not sequence.is_paused:
                (decodes if sequence.state is decode else in_prefill).append(sequence)
                if sequence.is_behind:
                    behind.append(sequence)
        self._catch_up(behind)
        in_prefill.sort(key=_rank)
        prefills = [s for s in in_prefill if not s.waits_for_draft]
        if self._pass_cost is not None:
            self._choose(self._pass_cost, decodes, prefills)
        num_owed = 0 if self._are_rounds_due or not prefills else self._num_owed(decodes, prefills)
        plan = self._plan(decodes, prefills, num_owed, available)
        if num_owed and not plan.victims and not any(p.sequence.state is State.PREFILL for p in plan.feeds):
            plan = self._plan(decodes, prefills, 0, available)  # there is no block for it: its share is the rounds'
        if plan.feeds:
            self._are_rounds_due = bool(decodes) and plan.feeds[0].sequence.state is State.PREFILL
        for num_served, planned in enumerate(plan.feeds, self._num_served + 1):
            planned.sequence.last_served = num_served
        self._num_served += len(plan.feeds)
        return plan._replace(is_catching_up=len(prefills) < len(in_prefill))

    def _choose(self, cost: PassCost, decodes: list[Sequence], prefills: list[Sequence]) -> None:
        """Choose the drafts of rounds, and for whom a model drafts ahead: where it gains more than it costs them all.

        Every so often it drafts for all the same, for what it brings may change.
        """
        ahead = [sequence for sequence in (*decodes, *prefills) if sequence.drafts_ahead]
        if not ahead:
            return
        prices = Prices(cost, max(1, len(decodes)))
        for sequence in ahead:
            if sequence.num_pending == 1:
                sequence.choose(prices, self._acceptance, self._lead)
        promises = [sequence.promise(prices, self._lead) for sequence in ahead]
        num_layers = max(sequence.num_layers_ahead for sequence in ahead)
        is_worthwhile = sum(promise for promise in promises if promise > 0) > prices.layer * num_layers + _LEAST_LEAD
        is_long_ago = self._num_steps_unasked >= _DRAFTED_AHEAD_EVERY
        self._num_steps_unasked = 0 if is_worthwhile or is_long_ago else self._num_steps_unasked + 1
        for sequence, promise in zip(ahead, promises, strict=True):
            is_due = promise > 0 or sequence.num_unasked >= _DRAFTED_AHEAD_EVERY
            sequence.wants_ahead = is_long_ago or (is_worthwhile and is_due)

    def _catch_up(self, behind: list[Sequence]) -> None:
        """Let drafters take in what the prefix cache had of their contexts, and what finished requests said.

        A bounded part of each at a time.
        """
        left = NUM_CAUGHT_UP
        self.finished.take_in(left)
        for sequence in sorted(behind, key=_rank):
            left -= sequence.catch_up(left)

    def _num_owed(self, decodes: list[Sequence], prefills: list[Sequence]) -> int:
        """Tokens of the next pass that rounds leave to prefill: half of what they would without drafts, one at least.

        Rounds less urgent than the first in prefill count as part of what is halved. Of a context whose last token is
        left, it is that and the draft it is fed with, if they cannot do without each other.
        """
        budget, first = self.config.max_batch_tokens, prefills[0]
        num_before = sum(s.request.priority <= first.request.priority for s in decodes)
        share = max((budget - num_before + 1) // 2, first.num_least if first.num_pending == 1 else 1)
        return min(share, sum(s.num_pending + (0 if s.may_drop_draft else s.most_drafted) for s in prefills))

    def _plan(self, decodes: list[Sequence], prefills: list[Sequence], num_owed: int, available: int) -> Plan:
        """Plan a pass whose rounds leave prefill what it is owed."""
        feeds = self._rounds(decodes, self.config.max_batch_tokens - num_owed)
        needed = self._num_new_blocks(feeds)
        if needed > available:
            feeds = [p.with_draft(NO_PROPOSAL) if p.sequence.may_drop_draft else p for p in feeds]
            needed = self._num_new_blocks(feeds)
        if needed > available:
            return Plan([], self._victims(needed - available))
        for _, equals in groupby(prefills, key=lambda sequence: sequence.request.priority):
            budget = self.config.max_batch_tokens - sum(planned.num_tokens for planned in feeds)
            feeds += self._prefill(equals, budget, available - self._num_new_blocks(feeds))
        if not feeds and not num_owed and (decodes or prefills):
            return Plan([], self._victims(1))
        return Plan(feeds, [])

    def _rounds(self, decodes: list[Sequence], budget: int) -> list[Planned]:
        """Give every sequence its round: drafts that may be cut give way first, then those served last wait."""
        feeds = [Planned(s, 1, s.proposal or s.propose(), True) for s in decodes]
        total = len(feeds) + sum([planned.draft.num_nodes for planned in feeds])
        if total <= budget and (self._pass_cost is None or total == len(feeds)):
            return feeds
        num_least = sum(planned.sequence.num_least for planned in feeds)
        if num_least > budget:
            feeds.sort(key=lambda planned: (planned.sequence.last_served, planned.sequence.rank))
            sums = accumulate(planned.sequence.num_least for planned in feeds)
            feeds = [planned for planned, num_least in zip(feeds, sums, strict=True) if num_least <= budget]
            num_least = sum(planned.sequence.num_least for planned in feeds)
        left = budget - num_least - self._cut(feeds, num_least, budget - num_least)
        for i, planned in enumerate(feeds):  # what a model is to draft is asked for whole or not at all
            if planned.draft.is_due and planned.sequence.may_drop_draft:
                if planned.draft.num_nodes > left:
                    feeds[i] = planned.with_draft(NO_PROPOSAL)
                left -= feeds[i].draft.num_nodes
        return feeds

    def _prefill(self, equals: Iterable[Sequence], budget: int, available: int) -> list[Planned]:
        """Feed contexts by rank; when all have had some, the drafts they can do without get what is left."""
        size = self.config.block_tokens
        feeds = []
        for sequence in equals:
            chunk = self._chunk(sequence, budget, available)
            if chunk is not None:
                feeds.append(chunk)
                budget -= chunk.num_tokens
                available -= sequence.num_new_blocks(chunk.num_tokens, size)
        for i, planned in enumerate(feeds):
            sequence = planned.sequence
            if planned.is_round and sequence.may_drop_draft:
                whole = planned.with_draft(sequence.propose())
                needed = self._num_new_blocks([whole]) - self._num_new_blocks([planned])
                if whole.draft.num_nodes <= budget and needed <= available:
                    feeds[i] = whole
                    budget -= whole.draft.num_nodes
                    available -= needed
        return feeds

    def _cut(self, feeds: list[Planned], num_rows: int, most: int) -> int:
        """Cut the drafts that are there, and may be cut, to `most` nodes and to what pays; how many are left.

        `num_rows` are fed whatever becomes of these.
        """
        open_ = [i for i, p in enumerate(feeds) if p.draft.tokens and p.sequence.may_drop_draft]
        chances = [feeds[i].sequence.chances(feeds[i].sequence.propose(), self._acceptance) for i in open_]
        num_rounds = sum(planned.is_round for planned in feeds)
        shares = share_rows(self._pass_cost, num_rows, num_rounds, chances, most)
        for i, nodes in zip(open_, shares, strict=True):
            feeds[i] = feeds[i].with_draft(feeds[i].draft.cut(nodes))
        return sum(map(len, shares))

    def drafted(self, plan: Plan, proposals: dict[int, Proposal]) -> Plan:
        """Give the plan with the drafts that a model has made, by sequence; one that made none feeds none.

        They are as large as there was room for at the most. Those that may be cut are cut to what pays.
        """
        feeds = list(plan.feeds)
        num_rows = sum(planned.num_tokens for planned in feeds if not planned.draft.is_due)
        made = [i for i, planned in enumerate(feeds) if planned.draft.is_due]
        for i in made:
            sequence = feeds[i].sequence
            sequence.proposal = proposals.get(sequence.seq, NO_PROPOSAL)
            feeds[i] = feeds[i].with_draft(sequence.proposal)
            if sequence.seq in proposals:
                sequence.covered = len(sequence.context)
            num_rows += feeds[i].num_pending if sequence.may_drop_draft else feeds[i].num_tokens
        if self._pass_cost is not None:
            drafts = [feeds[i] for i in made]
            self._cut(drafts, num_rows, sum(planned.draft.num_nodes for planned in drafts))
            for i, planned in zip(made, drafts, strict=True):
                feeds[i] = planned
        return Plan(feeds, [])

    def _chunk(self, sequence: Sequence, budget: int, available: int) -> Planned | None:
        """Feed as much of the context as budget and blocks allow; the last token only with a draft that it needs."""
        size = self.config.block_tokens
        #   positions that the held blocks and the available ones still have room for
        room = (blocks_for(sequence.cached, size) + available) * size - sequence.cached
        room = min(room, budget)
        num_pending = sequence.num_pending
        if num_pending <= room and (sequence.may_drop_draft or not sequence.is_behind):
            draft = NO_PROPOSAL if sequence.may_drop_draft else sequence.propose()
            if num_pending + draft.num_nodes <= room and (num_pending == 1 or not sequence.has_proposer):
                return Planned(sequence, num_pending, draft, True)
        num_fed = min(room, num_pending - 1)
        return Planned(sequence, num_fed, NO_PROPOSAL, False) if num_fed > 0 else None

    def _num_new_blocks(self, feeds: Iterable[Planned]) -> int:
        size, num_new = self.config.block_tokens, 0
        for planned in feeds:  # as sequence.num_new_blocks does
            cached = planned.sequence.cached
            num_new += cached // -size - (cached + planned.num_pending + planned.draft.num_nodes) // -size
        return num_new

    def _victims(self, num_blocks: int) -> list[Sequence]:
        """Name the paused, then the last in rank, until `num_blocks` would come back; the first to run never.

        A lone sequence always fits, for larger ones are refused at submission. If it does not, the count of blocks was
        wrong, and it starts over with a new one.
        """
        victims = []
        size = self.config.block_tokens
        *others, first = sorted(self.running.values(), key=_last_to_run, reverse=True)
        for sequence in others:
            if num_blocks <= 0:
                break
            if sequence.cached:
                victims.append(sequence)
                num_blocks -= blocks_for(sequence.cached, size)
        return victims or [first]

    # what happens to a sequence

    def put_off(self, feeds: Iterable[Planned]) -> None:
        """Let those that were planned and are not fed go first when rounds next take turns."""
        for planned in feeds:
            planned.sequence.last_served = -1

    def preempt(self, sequence: Sequence) -> None:
        """Send a running sequence, whose blocks are given back, to wait and be computed again."""
        del self.running[sequence.seq]
        sequence.move(State.PREEMPTED)
        sequence.give_up_cache()
        sequence.num_preemptions += 1
        if sequence.is_paused:
            self.parked[sequence.seq] = sequence
        else:
            self.waiting.push(sequence)

    def resume(self, sequence: Sequence) -> None:
        """Let a paused sequence run again: its client has caught up."""
        sequence.is_paused = False
        if self.parked.pop(sequence.seq, None) is not None:
            self.waiting.push(sequence)

    def settle(
        self, planned: Planned, tokens: list[int], ahead: Proposal | None = None, *, has_fed_proposer: bool = True
    ) -> Settled:
        """Take in what a pass gave: `tokens` as verified, none where it was not a round, and what was drafted ahead."""
        sequence = planned.sequence
        start = sequence.cached
        if not planned.is_round:
            if sequence.covered == start and has_fed_proposer:
                sequence.covered = start + planned.num_pending
            chunk = sequence.settle_chunk(planned.num_pending)
            if ahead is not None:
                sequence.take_ahead(ahead)
            return Settled(chunk, [], 0, None)
        draft = planned.draft
        if draft.rng_state is not None:
            sequence.draft_rng.state = draft.rng_state
        emitted, reason = sequence.take(tokens)
        if ahead is not None:
            sequence.take_ahead(ahead)
        num_accepted = min(len(tokens) - 1, len(emitted))
        sequence.num_rounds += 1
        sequence.num_drafted += draft.num_nodes
        sequence.num_accepted += num_accepted
        verified = sequence.context[start : sequence.cached]
        if reason is not None:
            if sequence.speculative.draft is Draft.SUFFIX:
                self.finished.add(sequence.request.cache_salt, sequence.words)
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


def _last_to_run(sequence: Sequence) -> tuple[bool, tuple[int, int]]:
    return (sequence.is_paused, sequence.rank)


def _gives_way(sequence: Sequence, other: Sequence) -> bool:
    """Whether a running sequence has to give way to one that waits."""
    return sequence.is_paused or sequence.request.priority > other.request.priority

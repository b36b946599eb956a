"""One request on its way through the engine."""

from collections.abc import Sequence as SequenceOf
from typing import Literal

import msgspec

from kvpool import Salt
from scheduler.adaptive import Acceptance, Lead, Prices
from scheduler.proposal import NO_PROPOSAL, Proposal
from scheduler.request import Request, most_slots, num_new_tokens
from scheduler.states import MOVES, State
from spec import Draft, Drafter, FinishedRequests, Pcg32, SpecConfig, draft_stream, max_nodes, stream

FinishReason = Literal["stop", "length", "cancelled", "error"]


class Sequence:
    """What the scheduler knows of a request: its tokens, how far they are cached, its draft and its generator.

    `seq` is the engine's own number of it, never used twice; it is also the order of arrival.

        prompt + output
        0 ............ cached ............... len(context)
                       |------ pending ------|--- draft --->

    A proposer's own state covers the first `covered` positions of it.
    """

    __slots__ = (
        "acceptance",
        "ahead",
        "cached",
        "context",
        "covered",
        "draft_params",
        "draft_rng",
        "drafter",
        "drafts_ahead",
        "had_text",
        "has_draft_state",
        "has_proposer",
        "is_behind",
        "is_paused",
        "last_served",
        "lead",
        "looks_back",
        "may_drop_draft",
        "most_drafted",
        "most_drafted_ahead",
        "num_accepted",
        "num_drafted",
        "num_preemptions",
        "num_rounds",
        "num_slots",
        "num_unasked",
        "params",
        "prompt_len",
        "proposal",
        "request",
        "rng",
        "room",
        "seq",
        "set_aside",
        "speculative",
        "state",
        "stops",
        "wants_ahead",
    )

    def __init__(
        self,
        seq: int,
        request: Request,
        speculative: SpecConfig,
        max_model_len: int,
        finished: FinishedRequests | None = None,
        *,
        keeps_draft_state: bool = True,
        is_adaptive: bool = False,
    ) -> None:
        self.seq = seq
        self.request = request
        self.state = State.WAITING
        self.context = list(request.prompt)
        self.prompt_len = len(request.prompt)
        self.cached = 0
        self.room = num_new_tokens(request, max_model_len)
        self.stops = frozenset(request.eos).union(request.params.stop_token_ids)
        stops = tuple(sorted(self.stops))
        params = request.params
        self.params = (
            params if params.stop_token_ids == stops else msgspec.structs.replace(params, stop_token_ids=stops)
        )
        #   most sampling looks at no token that came before, and then none need be carried to the verifier
        self.looks_back = self.params.has_penalties or self.params.min_tokens > 0
        self.speculative = speculative.for_request(self.params, request.verify)
        self.draft_params = self.speculative.draft_params(self.params)
        self.most_drafted = 0 if self.speculative.draft is Draft.NONE else self.speculative.k
        self.may_drop_draft = self.speculative.rule == "match"  # the text depends on no draft
        self.num_slots = most_slots(request, self.speculative, max_model_len)
        self.rng: Pcg32 = stream(request.seed, request.choice)
        self.draft_rng: Pcg32 = draft_stream(request.seed, request.choice)
        self.has_proposer = speculative.draft.needs_proposer  # a model drafts for it
        self.has_draft_state = self.has_proposer and keeps_draft_state  # and keeps state beside the KV
        self.covered = 0
        self.drafts_ahead = self.has_proposer and self.may_drop_draft and is_adaptive  # with a pass, for the next
        self.most_drafted_ahead = self.speculative.model_shape.max_depth if self.drafts_ahead else 0  # layers
        self.wants_ahead = self.drafts_ahead  # with this pass
        self.ahead: Proposal | None = None  # what was drafted with the last
        self.lead: Lead | None = None
        self.had_text = False  # text had a draft in the last round
        self.num_unasked = 0  # rounds since a model last drafted
        #   a text that depends on drafts may not depend on what others have said
        others = finished if self.may_drop_draft else None
        is_text = speculative.draft.is_text or speculative.draft.looks_up
        self.drafter = Drafter(self.speculative, (), others, request.cache_salt) if is_text else None
        self.proposal: Proposal | None = None
        self.acceptance: Acceptance | None = None
        self.set_aside: Proposal | None = None  # the draft that promised less
        self.is_behind = False  # the drafter has yet to take in what was found cached: until then there is no draft
        self.is_paused = False
        self.last_served = -1
        self.num_rounds = 0
        self.num_drafted = 0
        self.num_accepted = 0
        self.num_preemptions = 0

    @property
    def rank(self) -> tuple[int, int]:
        """Who goes first: the lower priority number, then the earlier arrival."""
        return (self.request.priority, self.seq)

    @property
    def num_pending(self) -> int:
        """Tokens of the context that are not cached yet: at least one."""
        return len(self.context) - self.cached

    @property
    def num_emitted(self) -> int:
        """Tokens generated so far."""
        return len(self.context) - self.prompt_len

    @property
    def num_least(self) -> int:
        """Tokens that the next round cannot do without, when all but one of the context are cached."""
        return 1 if self.may_drop_draft else 1 + self.propose().num_nodes

    @property
    def looked_back_at(self) -> tuple[SequenceOf[int], SequenceOf[int]]:
        """The prompt and the output, where sampling looks at them."""
        return (self.request.prompt, self.context[self.prompt_len :]) if self.looks_back else ((), ())

    @property
    def waits_for_draft(self) -> bool:
        """All that is left to feed is a round whose text depends on a draft that is not there yet."""
        return self.num_pending == 1 and self.is_behind and not self.may_drop_draft

    def catch_up(self, most: int) -> int:
        """Let a drafter that is behind take in at most so many of the tokens before its draft; how many it took."""
        assert self.drafter is not None, "it is behind"
        start = len(self.drafter)
        known = len(self.context) if self.state is State.DECODE else self.cached
        end = min(known, start + most)
        self.drafter.append(self.context[start:end])
        self.is_behind = end < known
        return end - start

    def move(self, state: State) -> None:
        """Go to another state by a legal move."""
        assert state in MOVES[self.state], f"sequence {self.seq}: {self.state} -> {state}"
        self.state = state

    @property
    def most_layers(self) -> int:
        """Layers that a draft may have: the token after its deepest node is the last that there is room for."""
        return self.room + self.prompt_len - len(self.context) - 1

    @property
    def salt(self) -> Salt:
        """Whom it shares prefixes with: a proposer's state is there only where the proposer was fed."""
        return (self.request.cache_salt, "proposer") if self.has_draft_state else self.request.cache_salt

    def propose(self) -> Proposal:
        """Give this round's draft; the same until the round is settled, whenever and however often it is planned."""
        if self.proposal is None:
            if self.is_behind:
                assert self.may_drop_draft, f"sequence {self.seq} needs its draft"
                return NO_PROPOSAL
            self.proposal = self._propose(self.most_layers)
        return self.proposal

    def _propose(self, most_layers: int) -> Proposal:
        """Draft from text; where there is none, leave room for the draft of a model that has not drafted ahead."""
        text = NO_PROPOSAL if self.drafter is None else self._propose_text(self.drafter, most_layers)
        return text if text.tokens or not self.has_proposer or self.drafts_ahead else self._due(most_layers)

    def _propose_text(self, drafter: Drafter, most_layers: int) -> Proposal:
        if self.state is not State.DECODE and len(drafter) < len(self.context):
            drafter.append(self.context[len(drafter) :])
        if self.speculative.draft is not Draft.SUFFIX:
            return Proposal.chain(drafter.propose(min(self.speculative.k, most_layers)))
        drafted = drafter.draft(self.speculative.k, most_layers)
        return Proposal.tree(drafted.tree, drafted.values)

    def choose(self, prices: Prices, of_all: Acceptance, lead_of_all: Lead) -> None:
        """Choose between what text promises and what a model has drafted ahead; nothing more is asked for."""
        if self.proposal is not None or self.is_behind:
            return
        if self.lead is None:
            self.lead = Lead(self.most_drafted_ahead, lead_of_all)
        text, ahead = self.propose(), self.ahead
        had_text, self.had_text = self.had_text, bool(text.tokens)
        self.num_unasked += 1
        if ahead is not None:
            self.num_unasked = 0
            lead = prices.gain(self.chances(ahead, of_all)) - prices.gain(self.chances(text, of_all))
            self.lead.learn(had_text, max(0.0, lead))
            self.proposal, self.set_aside = (ahead, text) if lead > 0 else (text, ahead)

    def promise(self, prices: Prices, lead_of_all: Lead) -> float:
        """Tokens that it promises to have a model draft ahead for it too, where it drafts for others."""
        lead = lead_of_all if self.lead is None else self.lead
        return lead.value(self.had_text) - prices.layer_row * self.num_layers_ahead

    @property
    def num_layers_ahead(self) -> int:
        """Layers that a draft has which is made with this pass."""
        return max(0, min(self.most_drafted_ahead, self.most_layers - 1))

    def _due(self, most_layers: int) -> Proposal:
        return Proposal.due(max_nodes(self.speculative.model_shape, most_layers))

    def chances(self, draft: Proposal, of_all: Acceptance) -> list[float]:
        """Estimate, for each node of a draft of this round, the chance that the round emits it."""
        if self.acceptance is None:
            self.acceptance = Acceptance(of_all)
        return self.acceptance.chances(draft, self._strength)

    @property
    def _strength(self) -> int:
        return 0 if self.drafter is None else self.drafter.strength

    def num_new_blocks(self, num_tokens: int, block_tokens: int) -> int:
        """Blocks needed to cache `num_tokens` more positions."""
        #   blocks_for of the length to be, less blocks_for of the cached one
        return self.cached // -block_tokens - (self.cached + num_tokens) // -block_tokens

    def give_up_cache(self) -> None:
        """Forget what was cached and planned; the tokens, the drafter and the generator stay."""
        self.cached = 0
        self.proposal = self.set_aside = self.ahead = None

    def admit(self, cached: int) -> None:
        """Start, or start over, with so many positions found cached."""
        self.move(State.PREFILL)
        self.cached = self.covered = cached  # a block is shared with all that is kept of it
        self.is_behind = self.drafter is not None and len(self.drafter) < cached

    def settle_chunk(self, num_tokens: int) -> list[int]:
        """Take in that so many tokens more of the context are cached; those tokens."""
        start = self.cached
        self.cached += num_tokens
        chunk = self.context[start : self.cached]
        if self.drafter is not None and len(self.drafter) == start:
            self.drafter.append(chunk)
        return chunk

    def take_ahead(self, ahead: Proposal) -> None:
        """Keep what a model has drafted, for which it was fed all that is cached."""
        self.ahead = ahead
        if self.has_draft_state:
            self.covered = self.cached

    @property
    def words(self) -> list[int]:
        """What drafts of others may be made of when it has finished."""
        return self.context if self.speculative.prompts else self.context[self.prompt_len :]

    def take(self, tokens: list[int]) -> tuple[list[int], FinishReason | None]:
        """Emit a round's tokens up to the end of the request; those kept, and why it ended there.

        The tokens before the last kept one are in the cache, and no others past the context.
        """
        left = self.room - self.num_emitted
        kept = tokens if len(tokens) <= left else tokens[:left]
        reason: FinishReason | None = "length" if len(kept) == left else None
        if not self.stops.isdisjoint(kept):
            end = next(i for i, token in enumerate(kept) if token in self.stops)
            kept = kept[: end + 1]
            reason = "stop"
        if self.acceptance is not None and self.proposal is not None:
            for proposal in (self.proposal, self.set_aside or NO_PROPOSAL):
                self.acceptance.learn(proposal, self._strength, kept)
        if self.drafter is not None and not self.is_behind:
            self.drafter.append(kept)
        self.context += kept
        self.cached = len(self.context) - 1
        self.proposal = self.set_aside = self.ahead = None
        return kept, reason

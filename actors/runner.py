"""The model runner: the one owner of the model. A step is one pass, and its verification, off the event loop."""

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import anyio
import anyio.to_thread

from actors.actor import Actor, Tap, told
from actors.messages import (
    DraftAsk,
    Feed,
    Message,
    Outcome,
    Propose,
    Proposed,
    ProposedTree,
    RoundSpec,
    Step,
    StepDone,
)
from models import Chunk, DraftOrder, Emission, Model, ModelError, Proposer, draft, execute
from scheduler import EngineConfig
from spec import Drafted, DraftTree, Pcg32, Round, Row, SpecError

T = TypeVar("T")


class RunPass(Protocol):
    """How a pass is carried out: `work` is called once, somewhere, and its result comes back."""

    def __call__(self, work: Callable[[], T], num_tokens: int, num_layers: int = 0) -> Awaitable[T]:
        """Carry out a pass over `num_tokens` tokens, if any, and the drafting of `num_layers` layers, if any."""


async def in_thread(work: Callable[[], T], num_tokens: int, num_layers: int = 0) -> T:
    """Carry out a pass in a worker thread; given up, it may go on there, on memory that is nobody's.

    There is a thread for it at once, however many of the process's own wait for theirs.
    """
    del num_tokens, num_layers
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))


class ModelRunner(Actor):
    """Answers Propose and Step. Logits and laws stay here; tokens and generator states leave.

    It works on a copy of the model (the weights are shared) bound to memory of its own. A pass that raises or takes
    too long is a crash; the runner then goes on with another copy, so that nobody reads what a late pass still writes.
    """

    def __init__(
        self, model: Model, proposer: Proposer | None, config: EngineConfig, tap: Tap | None, run_pass: RunPass
    ) -> None:
        super().__init__("runner", tap)
        self._model = model
        self._proposer = proposer
        self._config = config
        self._run_pass = run_pass
        self.num_restarts = 0
        self._laws: dict[int, list[Row]] = {}  # by sequence, what the nodes of its next round were drawn from
        self._bind_copy()

    @property
    def has_proposer(self) -> bool:
        """Whether a model drafts."""
        return self._proposer is not None

    @property
    def keeps_draft_state(self) -> bool:
        """Whether it has state of its own beside the target's."""
        return self._proposer is not None and self._proposer.keeps_state

    def restart(self) -> None:
        """Go on with fresh memory."""
        self._bind_copy()
        self.num_restarts += 1

    def _bind_copy(self) -> None:
        self._laws = {}
        self._model, self._proposer = copy.copy(self._model), copy.copy(self._proposer)
        self._model.bind(self._config.num_blocks, self._config.block_tokens)
        if self._proposer is not None:
            self._proposer.bind(self._config.num_blocks, self._config.block_tokens, self._model)

    async def handle(self, message: Message) -> Message:
        """Draft for a step, or carry it out."""
        match message:
            case Propose():
                return await self._propose(message)
            case Step():
                return await self._step(message)
            case _:
                return await super().handle(message)

    async def _carry_out(self, work: Callable[[], T], num_tokens: int, num_layers: int) -> T:
        measures = (num_tokens, num_layers) if num_layers else (num_tokens,)
        async with asyncio.timeout(self._config.pass_timeout_s):
            return await self._run_pass(work, *measures)

    async def _propose(self, message: Propose) -> Message:
        """Draft for all that ask; where the proposer fails, for none, unless a text depends on its draft."""
        proposer, block_tokens = self._proposer, self._config.block_tokens
        assert proposer is not None, "a request that needs one is refused where there is none"
        orders = [_order(ask) for ask in message.asks]

        def work() -> list[Drafted] | str:
            try:
                return draft(proposer, orders, block_tokens)
            except Exception as error:
                if any(ask.is_needed for ask in message.asks):
                    raise
                return told(error)

        drafts = await self._carry_out(work, 0, num_layers(message.asks))
        if isinstance(drafts, str):
            return Proposed(message.number, [], drafts)
        self._laws = {
            ask.seq: drafted.draft_probs
            for ask, drafted in zip(message.asks, drafts, strict=True)
            if drafted.draft_probs is not None
        }
        return Proposed(message.number, [_tree(*each) for each in zip(message.asks, orders, drafts, strict=True)])

    async def _step(self, step: Step) -> Message:
        chunks = [_chunk(feed) for feed in step.feeds]
        laws, self._laws = self._laws, {}
        rounds = [_round(feed.round, laws.get(feed.seq)) for feed in step.feeds if feed.round is not None]
        wants_logprobs = any(feed.round is not None and feed.round.logprobs for feed in step.feeds)
        model, proposer = self._model, self._proposer
        beside = {
            feed.seq: chunk
            for chunk, feed in zip(chunks, step.feeds, strict=True)
            if feed.is_proposed_for and feed.round is None
        }
        seqs = [feed.seq for feed in step.feeds if feed.round is not None]

        def work() -> tuple[list[tuple[Emission | SpecError, list[float] | None]], "_Proposed"]:
            #   log-probabilities are read here, where they are computed: off the event loop
            results = execute(model, chunks, rounds)
            logprobs = [_logprobs(result) if wants_logprobs else None for result in results]
            verified = list(zip(results, logprobs, strict=True))
            if proposer is None or not (beside or step.ahead):
                return verified, ([], None)
            return verified, self._draft_beside(proposer, beside, step.ahead, dict(zip(seqs, results, strict=True)))

        num_tokens = sum(len(chunk.ids) for chunk in chunks)
        results, (trees, proposer_error) = await self._carry_out(work, num_tokens, num_layers(step.ahead))
        verified = iter(zip(rounds, results, strict=True))
        outcomes = [
            Outcome(feed.seq, [], None, 0) if feed.round is None else _outcome(feed, *next(verified))
            for feed in step.feeds
        ]
        return StepDone(step.number, outcomes, proposer_error, trees)

    def _draft_beside(
        self,
        proposer: Proposer,
        beside: dict[int, Chunk],
        asks: list[DraftAsk],
        results: dict[int, Emission | SpecError],
    ) -> "_Proposed":
        """Draft after what rounds have just emitted, and let the proposer write what else prefill has just fed.

        What it fails with costs longer drafts later.
        """
        size = self._config.block_tokens
        orders: list[tuple[DraftAsk, DraftOrder]] = []
        for ask in asks:
            result = results.get(ask.seq)
            if not isinstance(result, SpecError):
                order = _order(ask, [] if result is None else result.tokens)
                #   there may be no block for the last token, which the pass has not fed
                has_room = not proposer.keeps_state or order.start + len(order.ids) <= len(order.table) * size
                if has_room and order.max_depth > 0:
                    orders.append((ask, order))
                    beside.pop(ask.seq, None)  # drafting feeds all of its context
        try:
            if beside:
                proposer.feed(list(beside.values()))
            drafts = draft(proposer, [order for _, order in orders], size) if orders else []
        except Exception as error:
            return [], told(error)
        return [_tree(*each, drafted) for each, drafted in zip(orders, drafts, strict=True)], None


_Proposed = tuple[list[ProposedTree], str | None]
"""Drafts, or none and why."""


def num_layers(asks: Sequence[DraftAsk]) -> int:
    """Count the layers of the deepest of these drafts, at the most."""
    return max((min(ask.max_depth, ask.shape.max_depth) for ask in asks), default=0)


def _order(ask: DraftAsk, emitted: Sequence[int] = ()) -> DraftOrder:
    """Say what is asked for, after tokens that have been emitted since."""
    rng = Pcg32.at(ask.rng_state, ask.rng_inc)
    return DraftOrder(
        [*ask.ids, *emitted],
        ask.start,
        ask.table,
        ask.shape,
        ask.children,
        ask.max_depth - len(emitted),
        rng,
        ask.params,
        ask.prompt,
        [*ask.output, *emitted] if ask.prompt else (),
    )


def _tree(ask: DraftAsk, order: DraftOrder, drafted: Drafted) -> ProposedTree:
    tokens, parents = list(drafted.tree.tokens), list(drafted.tree.parents)
    return ProposedTree(ask.seq, tokens, parents, drafted.values, order.rng.state)


def _logprobs(result: Emission | SpecError) -> list[float] | None:
    if isinstance(result, SpecError):
        return None
    if len(result.logprobs) != len(result.tokens):
        raise ModelError(f"{len(result.logprobs)} log-probabilities were given for {len(result.tokens)} tokens")
    return result.logprobs


def _chunk(feed: Feed) -> Chunk:
    if feed.round is None:
        return Chunk(feed.ids, feed.start, feed.table, 0)
    num_drafted = len(feed.round.draft)
    parents = None
    if feed.round.parents is not None:
        num_pending = len(feed.ids) - num_drafted
        parents = DraftTree(feed.round.draft, feed.round.parents).fed_after(num_pending)
    return Chunk(feed.ids, feed.start, feed.table, num_drafted + 1, parents)


def _round(spec: RoundSpec, laws: list[Row] | None) -> Round:
    rng = Pcg32.at(spec.rng_state, spec.rng_inc)
    return Round(
        spec.draft,
        spec.params,
        spec.prompt,
        spec.output,
        rng,
        spec.verify,
        draft_probs=laws,
        parents=spec.parents,
        children=spec.children,
    )


def _outcome(feed: Feed, round_: Round, result: tuple[Emission | SpecError, list[float] | None]) -> Outcome:
    emission, logprobs = result
    if isinstance(emission, SpecError):
        return Outcome(feed.seq, [], None, round_.rng.state, str(emission))
    wanted = logprobs if feed.round is not None and feed.round.logprobs else None
    return Outcome(feed.seq, emission.tokens, wanted, round_.rng.state)

"""The model runner: the one owner of the model. A step is one pass, and its verification, off the event loop."""

import asyncio
import copy
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import anyio
import anyio.to_thread

from actors.actor import Actor, Tap
from actors.messages import Feed, Message, Outcome, RoundSpec, Step, StepDone
from models import Chunk, Emission, Model, ModelError, execute
from scheduler import EngineConfig
from spec import Pcg32, Round, SpecError

T = TypeVar("T")


class RunPass(Protocol):
    """How a pass is carried out: `work` is called once, somewhere, and its result comes back."""

    def __call__(self, work: Callable[[], T], num_tokens: int) -> Awaitable[T]:
        """Carry out a pass over `num_tokens` tokens."""


async def in_thread(work: Callable[[], T], num_tokens: int) -> T:
    """Carry out a pass in a worker thread; given up, it may go on there, on memory that is nobody's.

    There is a thread for it at once, however many of the process's own wait for theirs.
    """
    del num_tokens
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))


class ModelRunner(Actor):
    """Answers Step. Logits stay here; tokens and generator states leave.

    It works on a copy of the model (the weights are shared) bound to memory of its own. A pass that raises or takes
    too long is a crash; the runner then goes on with another copy, so that nobody reads what a late pass still writes.
    """

    def __init__(self, model: Model, config: EngineConfig, tap: Tap | None, run_pass: RunPass) -> None:
        super().__init__("runner", tap)
        self._model = model
        self._config = config
        self._run_pass = run_pass
        self._bind_copy()

    def restart(self) -> None:
        """Go on with fresh memory."""
        self._bind_copy()

    def _bind_copy(self) -> None:
        self._model = copy.copy(self._model)
        self._model.bind(self._config.num_blocks, self._config.block_tokens)

    async def handle(self, message: Message) -> Message:
        """Carry out a step."""
        match message:
            case Step():
                return await self._step(message)
            case _:
                return await super().handle(message)

    async def _step(self, step: Step) -> Message:
        chunks = [_chunk(feed) for feed in step.feeds]
        rounds = [_round(feed.round) for feed in step.feeds if feed.round is not None]
        wants_logprobs = any(feed.round is not None and feed.round.logprobs for feed in step.feeds)
        model = self._model

        def work() -> list[tuple[Emission | SpecError, list[float] | None]]:
            #   log-probabilities are read here, where they are computed: off the event loop
            results = execute(model, chunks, rounds)
            return [(result, _logprobs(result) if wants_logprobs else None) for result in results]

        async with asyncio.timeout(self._config.pass_timeout_s):
            results = await self._run_pass(work, sum(len(chunk.ids) for chunk in chunks))
        verified = iter(zip(rounds, results, strict=True))
        outcomes = [
            Outcome(feed.seq, [], None, 0) if feed.round is None else _outcome(feed, *next(verified))
            for feed in step.feeds
        ]
        return StepDone(step.number, outcomes)


def _logprobs(result: Emission | SpecError) -> list[float] | None:
    if isinstance(result, SpecError):
        return None
    if len(result.logprobs) != len(result.tokens):
        raise ModelError(f"{len(result.logprobs)} log-probabilities were given for {len(result.tokens)} tokens")
    return result.logprobs


def _chunk(feed: Feed) -> Chunk:
    num_rows = 0 if feed.round is None else len(feed.round.draft) + 1
    return Chunk(feed.ids, feed.start, feed.table, num_rows)


def _round(spec: RoundSpec) -> Round:
    rng = Pcg32.at(spec.rng_state, spec.rng_inc)
    return Round(spec.draft, spec.params, spec.prompt, spec.output, rng, spec.verify)


def _outcome(feed: Feed, round_: Round, result: tuple[Emission | SpecError, list[float] | None]) -> Outcome:
    emission, logprobs = result
    if isinstance(emission, SpecError):
        return Outcome(feed.seq, [], None, round_.rng.state, str(emission))
    wanted = logprobs if feed.round is not None and feed.round.logprobs else None
    return Outcome(feed.seq, emission.tokens, wanted, round_.rng.state)

"""What rounds take in the engine: their passes, verification, and all that lies between one pass and the next."""

import asyncio
import copy
import statistics
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Self, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from actors import Engine, EngineConfig, Request
from actors.runner import in_thread
from kvpool import blocks_for
from models.protocol import Chunk, Ints, Model, Proposer, SlotMove, TappedModel
from scheduler import NO_DRAFTS
from spec import SamplingParams, SpecConfig
from spec.config import MAX_DRAFT_TOKENS

T = TypeVar("T")

MAX_ROWS = MAX_DRAFT_TOKENS + 1
"""Rows of a round: the longest draft of text, and one."""
NUM_WARM, NUM_TIMED = 6, 6
NUM_ROUNDS = NUM_WARM + NUM_TIMED + 2
"""Of a stretch: those that are not timed, those that are, and those in which sequences come and go."""

_BLOCK_TOKENS = 16
_CHOSEN = 0


async def measure_rounds(
    model: Model,
    now: Callable[[], float],
    *,
    context: int,
    rows: Sequence[int],
    batch: int = 1,
    repeat: int = 1,
) -> list[float]:
    """Time rounds of `rows` rows for each of `batch` sequences with `context` tokens in an engine; median seconds.

    From the beginning of a pass to that of the next, both of the same rows: with the hand-over to the thread, a greedy
    verification that rejects the draft, the roll-back, the reading client and the next draft. A stretch of rounds of
    one size has its first few left out, for passes grow faster until the caches have seen a few alike; the sizes
    take turns, `repeat` times. `context` is no less than any of `rows`, and the model has room for
    `context + max(rows) + NUM_ROUNDS` positions. `now` is a clock in seconds.
    """
    drafts = [_text(n - 1) for n in rows]
    return await _time(model, None, now, context=context, drafts=drafts, batch=batch, repeat=repeat)


async def measure_layers(
    model: Model,
    proposer: Proposer,
    speculative: SpecConfig,
    now: Callable[[], float],
    *,
    context: int,
    batch: int = 1,
    repeat: int = 1,
) -> tuple[float, float]:
    """Time what the first layer of chains by a proposer adds to the rounds of a batch, and a later one; median seconds.

    Rounds with its chains, of one token and as long as `speculative` says, are held against rounds with as many tokens
    of text, in turns, as `measure_rounds` takes them. The first layer takes more: the question and the answer, and what
    was kept since. `model` keeps the hidden states that the proposer reads.
    """
    k = speculative.k
    one = msgspec.structs.replace(speculative, k=1)
    drafts = [_text(1), one, _text(k), speculative]
    times = await _time(model, proposer, now, context=context, drafts=drafts, batch=batch, repeat=repeat)
    first, all_ = max(0.0, times[1] - times[0]), max(0.0, times[3] - times[2])
    return first, max(0.0, all_ - first) / (k - 1) if k > 1 else first


async def _time(
    model: Model,
    proposer: Proposer | None,
    now: Callable[[], float],
    *,
    context: int,
    drafts: Sequence[SpecConfig],
    batch: int,
    repeat: int,
) -> list[float]:
    rows = [1 if draft is NO_DRAFTS else draft.k + 1 for draft in drafts]
    begun: list[tuple[float, int]] = []

    async def run_pass(work: Callable[[], T], num_tokens: int, num_layers: int = 0) -> T:
        if num_tokens:  # else only a proposer is run
            begun.append((now(), num_tokens))
        return await in_thread(work, num_tokens, num_layers)

    prompts = [_prompt(i, context, model.vocab_size) for i in range(batch)]
    length = context + max(rows) + NUM_ROUNDS
    config = EngineConfig(
        num_blocks=batch * (blocks_for(length, _BLOCK_TOKENS) + 1),
        block_tokens=_BLOCK_TOKENS,
        #   sequences begin together: what the cache does not have of their prompts is less than a block of each
        max_batch_tokens=max(2048, batch * max(*rows, _BLOCK_TOKENS)),
        max_running=batch,
        max_model_len=length,
        speculative=drafts[-1],
    )
    taken: list[list[float]] = [[] for _ in drafts]
    async with Engine(_Stubborn(model), config, proposer=proposer, run_pass=run_pass) as engine:
        await _read_all(engine, prompts, NO_DRAFTS, 1)
        for _ in range(repeat):
            for draft, n, times in zip(drafts, rows, taken, strict=True):
                begun.clear()
                await _read_all(engine, prompts, draft, NUM_ROUNDS)
                between = [b - a for (a, first), (b, second) in pairwise(begun) if first == second == n * batch]
                times.append(statistics.median(between[NUM_WARM:]))
    return [statistics.median(times) for times in taken]


class _Stubborn:
    """A model that chooses the same token whatever it computes: drafts of others are rejected, and always made."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.vocab_size = model.vocab_size
        self.max_model_len = model.max_model_len

    def __copy__(self) -> Self:
        return type(self)(copy.copy(self._model))

    def bind(self, num_blocks: int, block_tokens: int) -> None:
        self._model.bind(num_blocks, block_tokens)

    def forward(self, chunks: Sequence[Chunk]) -> NDArray[np.float32]:
        rows = self._model.forward(chunks)
        rows[:, _CHOSEN] = np.finfo(np.float32).max
        return rows

    def move_slots(self, moves: Sequence[SlotMove]) -> None:
        self._model.move_slots(moves)

    def with_taps(self, taps: Sequence[int]) -> Self:
        return type(self)(self._tapped.with_taps(taps))

    def features(self, blocks: Ints, slots: Ints) -> NDArray[np.float32]:
        return self._tapped.features(blocks, slots)

    @property
    def _tapped(self) -> TappedModel:
        assert isinstance(self._model, TappedModel), "heads are for such"
        return self._model


def _prompt(number: int, context: int, vocab_size: int) -> list[int]:
    """Give a prompt that has the chosen token once, in front, so that a lookup drafts what follows it there."""
    return [_CHOSEN, *((number + i) % (vocab_size - 1) + 1 for i in range(context - 1))]


def _text(k: int) -> SpecConfig:
    if k == 0:
        return NO_DRAFTS
    return SpecConfig(
        "prompt_lookup",  # type: ignore[arg-type]  # the constructor turns a draft's name into a Draft
        k,
        max_ngram=1,
        min_ngram=1,
        occurrence="earliest",
        rule="match",
    )


def _read_all(engine: Engine, prompts: Sequence[list[int]], drafts: SpecConfig, num_tokens: int) -> Awaitable[None]:
    """Read so many tokens of an answer to each prompt, side by side."""

    async def read(prompt: list[int]) -> None:
        #   more is asked for than is read: the last rounds of an answer have room for shorter drafts only
        request = Request(
            prompt=prompt,
            params=SamplingParams(temperature=0),
            max_tokens=num_tokens + drafts.k,
            speculative=drafts,
            logprobs=False,
        )
        stream = engine.submit(request)
        async for token in stream:
            if token.index + 1 == num_tokens:
                break
        await stream.cancel()

    async def read_all() -> None:
        async with asyncio.TaskGroup() as clients:
            for prompt in prompts:
                clients.create_task(read(prompt))

    return read_all()

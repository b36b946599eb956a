"""Recorded requests served by the real engine in virtual time, on a machine whose passes take what they are said to."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from actors import Engine, Request
from actors.messages import Message, Step
from models.replay import ReplayModel
from scheduler import EngineConfig, PassCost
from sims.clients import Measures
from sims.clock import run
from spec import SamplingParams, SpecConfig

T = TypeVar("T")

_GREEDY = SamplingParams(temperature=0)

PassSeconds = Callable[[int, int, float], float]
"""Seconds of a pass by its rows, its sequences and the mean of the tokens that these have cached."""


class Arrival(NamedTuple):
    """A request that comes at a time, with the answer that was recorded for it."""

    at_s: float
    prompt: list[int]
    completion: list[int]


class Targets(NamedTuple):
    """By when a request should be answered."""

    ttft_ms: float
    """To the first token,"""
    tpot_ms: float
    """and per token after it."""


class Speculating(NamedTuple):
    """How an engine speculates."""

    speculative: SpecConfig
    is_adaptive: bool
    draft_s: float
    """Of one sequence's draft; a pass's are made one after the other."""


class Percentiles(msgspec.Struct, frozen=True):
    """Milliseconds; None where nothing was measured."""

    p50: float | None
    p90: float | None
    p99: float | None


class Service(msgspec.Struct, frozen=True):
    """What clients get."""

    ttft_ms: Percentiles
    """Time to first token, from when a request came."""
    tpot_ms: Percentiles
    """Time per output token after the first, of answers of two tokens or more."""
    itl_ms: Percentiles
    """Between two arrivals of tokens; those of one round arrive together."""
    e2e_ms: Percentiles
    """From when a request came to its last token."""
    mean_e2e_ms: float
    tokens_per_s: float
    """Of answers, from the first arrival to the last token."""
    goodput_per_s: float
    """Requests a second that were answered within both targets."""
    good_share: float
    """Share of requests that were."""
    mean_batch: float
    """Sequences of a pass, by time."""


def serve(
    arriving: Sequence[Arrival],
    how: Speculating,
    pass_s: PassSeconds,
    known_cost: PassCost,
    targets: Targets,
    watch: Callable[[int], None],
) -> Service:
    """Serve requests, in order of arrival; `watch` is told how many have been.

    `known_cost` is what an adaptive engine knows of its passes. Recordings with equal prompts say the same: ValueError.
    """
    records = [(arrival.prompt, arrival.completion) for arrival in arriving]
    vocab_size = 2 + max(max(*prompt, *completion) for prompt, completion in records)
    machine = _Machine(pass_s, how.draft_s)
    engine = Engine(
        ReplayModel(records, vocab_size, vocab_size - 1),
        _config(arriving, how),
        tap=machine.hear,
        run_pass=machine.run_pass,
        pass_cost=known_cost,
    )
    return run(_serve(engine, machine, arriving, targets, watch))


def _config(arriving: Sequence[Arrival], how: Speculating) -> EngineConfig:
    """Give an engine that all requests have room in: what memory a machine has left for them is not known."""
    usual = EngineConfig()
    lengths = [len(arrival.prompt) + len(arrival.completion) for arrival in arriving]
    blocks = sorted(-(-(length + how.speculative.k) // usual.block_tokens) + 2 for length in lengths)
    num_blocks = sum(blocks[-usual.max_running :])
    return EngineConfig(
        num_blocks=num_blocks, max_model_len=max(lengths), speculative=how.speculative, adaptive=how.is_adaptive
    )


class _Machine:
    """Lets the time go by that the cost says of each pass."""

    def __init__(self, pass_s: PassSeconds, draft_s: float) -> None:
        self._pass_s_of = pass_s
        self._draft_s = draft_s
        self._pass_s = 0.0
        self._busy_s = self._batch_s = 0.0

    @property
    def mean_batch(self) -> float:
        """Sequences of a pass, by time."""
        return self._batch_s / self._busy_s

    def hear(self, time_s: float, sender: str, receiver: str, message: Message) -> None:
        """Work out what the pass takes that a step asks for."""
        del time_s, sender, receiver
        if isinstance(message, Step):
            feeds = message.feeds
            num_rows = sum(len(feed.ids) for feed in feeds)
            context = sum(feed.start for feed in feeds) / len(feeds)
            num_rounds = sum(feed.round is not None for feed in feeds)
            self._pass_s = self._pass_s_of(num_rows, len(feeds), context) + num_rounds * self._draft_s
            self._busy_s += self._pass_s
            self._batch_s += self._pass_s * len(feeds)

    async def run_pass(self, work: Callable[[], T], num_tokens: int, num_layers: int = 0) -> T:
        """Do the work here and now, then let its time go by."""
        del num_tokens, num_layers
        result = work()
        await asyncio.sleep(self._pass_s)
        return result


async def _serve(
    engine: Engine, machine: _Machine, arriving: Sequence[Arrival], targets: Targets, watch: Callable[[int], None]
) -> Service:
    """Let every client come at its time, and answer them all."""
    loop = asyncio.get_running_loop()
    measures = Measures()
    num_good = num_gone = 0
    last_s = 0.0

    async def come(arrival: Arrival) -> None:
        nonlocal num_good, num_gone, last_s
        await asyncio.sleep(arrival.at_s - loop.time())
        request = Request(prompt=arrival.prompt, params=_GREEDY, max_tokens=len(arrival.completion))
        said: list[int] = []
        first_s = before_s = 0.0
        async for token in engine.submit(request):
            now_s = loop.time()
            if not said:
                first_s = now_s
                measures.ttft_s.append(now_s - arrival.at_s)
            elif now_s > before_s:
                measures.itl_s.append(now_s - before_s)
            before_s = now_s
            said.append(token.id)
        assert said == arrival.completion, "the recording is what the target says"
        tpot_s = (before_s - first_s) / max(1, len(said) - 1)
        if len(said) > 1:
            measures.tpot_s.append(tpot_s)
        measures.e2e_s.append(before_s - arrival.at_s)
        num_good += first_s - arrival.at_s <= targets.ttft_ms / 1e3 and tpot_s <= targets.tpot_ms / 1e3
        last_s = max(last_s, before_s)
        num_gone += 1
        watch(num_gone)

    async with engine, asyncio.TaskGroup() as clients:
        for arrival in arriving:
            clients.create_task(come(arrival))
    engine.check()
    spent_s = last_s - arriving[0].at_s
    return Service(
        _percentiles(measures.ttft_s),
        _percentiles(measures.tpot_s),
        _percentiles(measures.itl_s),
        _percentiles(measures.e2e_s),
        float(np.mean(measures.e2e_s)) * 1e3,
        sum(len(arrival.completion) for arrival in arriving) / spent_s,
        num_good / spent_s,
        num_good / len(arriving),
        machine.mean_batch,
    )


def _percentiles(seconds: Sequence[float]) -> Percentiles:
    """Take them, linear between ranks."""
    if not seconds:
        return Percentiles(None, None, None)
    return Percentiles(*(np.percentile(seconds, [50, 90, 99]) * 1e3).tolist())

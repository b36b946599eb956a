"""An engine in virtual time over a target that checks its memory, and what its clients must see.

In virtual time a wait that can never end is a Deadlock at once, and so a failure instead of a hang.
"""

import asyncio
from typing import NamedTuple

import msgspec

from actors import Engine, EngineConfig, Request
from actors.mailbox import Envelope
from kvpool import blocks_for
from models import FakeModel, RunnerTarget
from sims.clock import run
from spec import SamplingParams, SpecConfig, generate

__all__ = ["run"]

GREEDY = SamplingParams(temperature=0)
SAMPLED = SamplingParams(temperature=0.8)
VOCAB = 8
MAX_MESSAGES = 100_000  # an engine that spins fails its test instead of spinning on
PASS_S = 1.0


class Seen(NamedTuple):
    """What a client saw, or was to see."""

    tokens: list
    logprobs: list
    reason: str | None


def lookup(k=4):
    return SpecConfig.parse("prompt_lookup", k)


def fake(seed=1, vocab=VOCAB, order=1, sharp=4.0, max_model_len=1 << 20):
    return FakeModel(seed, vocab, order, sharp, max_model_len)


def config(**changes):
    """A small engine that checks everything after every message."""
    fields = {
        "num_blocks": 64,
        "block_tokens": 4,
        "max_batch_tokens": 64,
        "max_running": 16,
        "max_model_len": 200,
        "speculative": lookup(),
        "audit_every": 1,
    }
    return EngineConfig(**{**fields, **changes})


def request(prompt=(1, 2, 3, 1, 2), **changes):
    fields = {"prompt": list(prompt), "params": GREEDY, "max_tokens": 12}
    return Request(**{**fields, **changes})


def prompts(num, length=12, seed=0):
    """Different prompts with repetition in them, so that lookup finds something."""
    return [[(seed + i + j * (1 + i % 3)) % VOCAB for j in range(length)] for i in range(num)]


async def inline(work, num_tokens, num_layers=0):
    """A pass on the loop itself; others have one turn before it."""
    await asyncio.sleep(0)
    return work()


async def lasting(work, num_tokens, num_layers=0):
    """A pass that takes a second, and reads and writes memory at the end of it."""
    await asyncio.sleep(PASS_S)
    return work()


class Log:
    """A tap that keeps the messages and does not let an engine spin for ever."""

    def __init__(self):
        self.messages = []
        self.num = 0

    def __call__(self, time_s, sender, receiver, message):
        self.num += 1
        if self.num > MAX_MESSAGES:
            raise RuntimeError(f"{self.num} messages: the engine goes round in circles")
        self.messages.append((sender, receiver, message))

    def of(self, kind):
        return [message for _, _, message in self.messages if isinstance(message, kind)]


def post(actor, message):
    """Put a message into an actor's mailbox past everybody, with nobody waiting for an answer."""
    actor.mailbox.post(Envelope("test", message))


def engine(model=None, run_pass=inline, tap=None, pass_cost=None, proposer=None, **changes):
    model = model or fake()
    tap = tap or Log()
    return Engine(model, config(**changes), tap=tap, run_pass=run_pass, pass_cost=pass_cost, proposer=proposer)


async def read(stream):
    tokens = [token async for token in stream]
    assert [token.index for token in tokens] == list(range(len(tokens)))
    return Seen([token.id for token in tokens], [token.logprob for token in tokens], stream.finish_reason)


async def read_all(streams):
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(read(stream)) for stream in streams]
    return [task.result() for task in tasks]


def expected(request, config, model=None):
    """What the one-sequence loop gives for a request; `model` must be a fresh one like the engine's."""
    if model is not None:
        return generated(request, config, model)
    key = msgspec.msgpack.encode((request, config))
    if key not in _known:
        _known[key] = generated(request, config, fake())
    return _known[key]


_known = {}


def generated(request, config, model):
    limit = min(config.max_model_len, model.max_model_len)
    num_blocks = blocks_for(limit, config.block_tokens)
    target = RunnerTarget(model, num_blocks, config.block_tokens)
    target.max_model_len = limit
    result = generate(
        target,
        request.speculative or config.speculative,
        request.prompt,
        request.params,
        request.seed,
        request.max_tokens,
        request.eos,
        choice=request.choice,
        verify=request.verify,
    )
    logprobs = result.logprobs if request.logprobs else [None] * len(result.tokens)
    return Seen(result.tokens, logprobs, result.finish_reason)


def some_requests():
    """Greedy and sampled ones, verified by both rules."""
    return [
        request(prompt, max_tokens=20, seed=i, params=[SAMPLED, GREEDY][i % 2], verify=verify)
        for i, (prompt, verify) in enumerate(zip(prompts(6), ["resample", "match"] * 3, strict=True))
    ]


def wholes(running):
    """What `some_requests` must give."""
    return [expected(request, running.config) for request in some_requests()]


def is_prefix(seen, whole):
    n = len(seen.tokens)
    return seen.tokens == whole.tokens[:n] and seen.logprobs == whole.logprobs[:n]


def assert_all_back(engine):
    """Nothing is open, no block is held, and every count adds up."""
    engine.check()
    stats = engine.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_paused) == (0, 0, 0)
    assert stats.blocks.held == 0
    assert stats.blocks.free + stats.blocks.evictable == stats.blocks.total
    assert stats.num_violations == 0


async def until(condition, turns=10_000):
    """Give others turns, and a little time now and then, until something holds."""
    for turn in range(turns):
        if condition():
            return
        await asyncio.sleep(0.3 if turn % 100 == 99 else 0)
    raise AssertionError("it never came to hold")

"""Where passes run: in a worker thread, but for those that are over sooner than it would be at them."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import anyio

from actors.runner import RunPass, in_thread
from server.config import ModelConfig

T = TypeVar("T")

_MAX_SHORT_TOKENS = 16  # 1 ms at most, sampled: what handing it over and back may cost on a busy machine


def passes_of(config: ModelConfig) -> RunPass:
    """Say where a model's passes run; none is shorter than `min_pass_s`."""
    if config.min_pass_s:
        return _at_least(config.min_pass_s)
    return _in_place_if_short if config.source == "fake" else in_thread


async def _in_place_if_short(work: Callable[[], T], num_tokens: int, num_layers: int = 0) -> T:
    """Run a short pass on the event loop, after whoever has been told of the one before.

    A thread would want the interpreter's lock for nearly all of the pass, and take turns at it with the loop.
    """
    if num_tokens > _MAX_SHORT_TOKENS:
        return await in_thread(work, num_tokens, num_layers)
    await asyncio.sleep(0)
    return work()


def _at_least(min_pass_s: float) -> RunPass:
    async def run_pass(work: Callable[[], T], num_tokens: int, num_layers: int = 0) -> T:
        end_s = anyio.current_time() + min_pass_s
        result = await in_thread(work, num_tokens, num_layers)
        await anyio.sleep_until(end_s)
        return result

    return run_pass

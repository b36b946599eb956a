"""Where passes run: what is long must not hold up the event loop."""

import threading

import anyio
import pytest

from server.config import ModelConfig
from server.passes import passes_of


@pytest.mark.parametrize(
    ("config", "num_tokens", "is_in_place"),
    [
        (ModelConfig(), 1, True),
        (ModelConfig(), 16, True),
        (ModelConfig(), 17, False),
        (ModelConfig(source="some-model.gguf"), 1, False),
        (ModelConfig(min_pass_s=0.001), 1, False),
    ],
)
async def test_only_short_passes_of_the_fake_model_run_on_the_event_loop(config, num_tokens, is_in_place):
    thread = await passes_of(config)(threading.get_ident, num_tokens)
    assert (thread == threading.get_ident()) == is_in_place


async def test_whoever_has_been_told_of_a_pass_goes_before_the_next():
    done = []

    async def reader():
        done.append("read")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reader)
        await passes_of(ModelConfig())(lambda: done.append("pass"), 1)
    assert done == ["read", "pass"]


async def test_a_pass_takes_as_long_as_is_said_and_gives_its_result():
    start_s = anyio.current_time()
    assert await passes_of(ModelConfig(min_pass_s=0.02))(lambda: 7, 1) == 7
    assert anyio.current_time() - start_s >= 0.02

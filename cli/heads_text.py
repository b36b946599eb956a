"""The text that heads learn from and are judged by: from logs, or as the model writes it itself."""

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from actors import Engine, EngineConfig, Request
from cli.progress import Progress
from models.heads.features import Text
from models.loading import Tokenizer
from models.protocol import TappedModel
from models.weights import LlamaConfig, LlamaWeights
from plans.logs import Log
from plans.tokens import encoder
from scheduler import NO_DRAFTS
from spec import SamplingParams

_OWN_TEXT_TOKENS = 384
_ANSWER_TOKENS = 128
_AT_ONCE = 16
_BLOCK_TOKENS = 16


class Target(NamedTuple):
    """The model that heads are for, opened and built."""

    source: str
    config: LlamaConfig
    weights: LlamaWeights
    tokenizer: Tokenizer
    model: TappedModel


class Asked(NamedTuple):
    """What text is wanted; one of `held_out` is for judging, all where that is None."""

    logs: tuple[Path, ...]
    layout: str | None
    answers: int | None
    tokens: int
    held_out: int | None
    seed: int


def texts_of(target: Target, asked: Asked, progress: Progress) -> Iterator[Text]:
    """Give texts one by one: those that the model writes itself first."""

    def is_held_out(i: int) -> bool:
        return asked.held_out is None or i % asked.held_out == 0

    if not asked.logs:
        sampled = SamplingParams(temperature=0.8, top_p=0.95)
        openings = [_opening(target.tokenizer)] * -(-asked.tokens // _OWN_TEXT_TOKENS)
        written = asyncio.run(_written(target, openings, _OWN_TEXT_TOKENS, sampled, asked.seed, progress))
        for i, (ids, num_prompt) in enumerate(written):
            yield Text(ids, num_prompt, is_held_out(i))
        return
    log = Log(asked.logs, asked.layout, encoder(target.source))
    if asked.answers is not None:
        most = target.config.max_model_len - _ANSWER_TOKENS
        #   what a prompt is held out for holds for every answer to it
        taken = [
            (i, recording)
            for i, recording in enumerate(itertools.islice(log, asked.answers))
            if 0 < recording.num_prompt <= most
        ]
        prompts = [recording.tokens[: recording.num_prompt].tolist() for _, recording in taken]
        greedy = SamplingParams(temperature=0.0, stop_token_ids=tuple(sorted(target.tokenizer.eos_ids)))
        written = asyncio.run(_written(target, prompts, _ANSWER_TOKENS, greedy, asked.seed, progress))
        for (i, recording), (ids, num_prompt) in zip(taken, written, strict=True):
            yield Text(ids, num_prompt, is_held_out(i), recording.category or "")
        if asked.held_out is None:
            return
    for i, recording in enumerate(log):
        yield Text(recording.tokens.tolist(), recording.num_prompt, is_held_out(i), recording.category or "")


async def _written(
    target: Target,
    prompts: Sequence[list[int]],
    num_tokens: int,
    params: SamplingParams,
    seed: int,
    progress: Progress,
) -> list[tuple[list[int], int]]:
    """Let the model write on from prompts, up to so many tokens each; texts with the length of their prompts."""
    longest = max(map(len, prompts), default=0) + num_tokens
    config = EngineConfig(
        num_blocks=_AT_ONCE * (-(-longest // _BLOCK_TOKENS) + 1),
        block_tokens=_BLOCK_TOKENS,
        max_running=_AT_ONCE,
        max_model_len=target.config.max_model_len,
        speculative=NO_DRAFTS,
    )
    texts: list[tuple[list[int], int]] = [([], 0)] * len(prompts)
    num_written = 0
    async with Engine(target.model, config) as engine, asyncio.TaskGroup() as writers:

        async def write(i: int, prompt: list[int]) -> None:  # all are read at once: who is not read does not run
            nonlocal num_written
            stream = engine.submit(
                Request(prompt=prompt, params=params, max_tokens=num_tokens, seed=seed + i, logprobs=False)
            )
            texts[i] = ([*prompt, *[token.id async for token in stream]], len(prompt))
            num_written += 1
            progress.show("texts written", num_written, len(prompts))

        for i, prompt in enumerate(prompts):
            writers.create_task(write(i, prompt))
    return texts


def _opening(tokenizer: Tokenizer) -> list[int]:
    """Give what stands before the words of a user, or else the token that texts begin after."""
    try:
        first, second = (tokenizer.chat([{"role": "user", "content": text}]) for text in ("a", "b"))
        same = next(i for i, (one, other) in enumerate(zip(first, second, strict=False)) if one != other)
        if same:
            return first[:same]
    except (ValueError, ImportError, StopIteration):
        pass
    return [min(tokenizer.eos_ids, default=0)]

"""The one-sequence loop: what every engine's output for a request must equal."""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from spec.choices import Rule
from spec.config import SpecConfig
from spec.drafter import Drafter
from spec.errors import SpecError, refuse
from spec.params import SamplingParams
from spec.rng import stream
from spec.verify import verify_draft

FinishReason = Literal["stop", "length", "cancelled"]


class Target(Protocol):
    """A model with the cache of one sequence."""

    def cached(self) -> int:
        """Positions in the cache."""

    def extend(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """Feed ids after what is cached; one row of logits per id, float32 `[len(ids), V]`."""

    def truncate(self, length: int) -> None:
        """Forget all but the first `length` positions."""


@runtime_checkable
class BoundedTarget(Target, Protocol):
    """A target that can hold only so many positions."""

    @property
    def max_model_len(self) -> int:
        """Positions the cache can hold."""


class SpecStats(msgspec.Struct):
    """What speculation did: tokens drafted, those of them accepted and delivered, and forward passes."""

    drafted: int = 0
    accepted: int = 0
    target_calls: int = 0

    @property
    def accept_rate(self) -> float:
        """Accepted over drafted; 0.0 where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else 0.0


class Generated(msgspec.Struct, frozen=True):
    """A finished generation: tokens, one raw log-probability per token, why it ended, and what it took."""

    tokens: list[int]
    logprobs: list[float]
    finish_reason: FinishReason
    stats: SpecStats


def generate(
    target: Target,
    cfg: SpecConfig,
    prompt: Sequence[int],
    params: SamplingParams,
    seed: int,
    max_new: int,
    eos: Sequence[int],
    *,
    choice: int = 0,
    verify: Rule = "resample",
) -> Generated:
    """Generate up to `max_new` tokens after `prompt`, in rounds of draft, one pass, verify, roll back.

    Ends with the first id of `eos` or `params.stop_token_ids` ("stop"), or with `max_new` tokens or a full cache
    ("length"). Raises SpecError for an empty prompt, one longer than the target can hold, or `max_new < 1`, before
    anything is cached.
    """
    return generate_stream(
        target,
        cfg,
        prompt,
        params,
        seed,
        max_new,
        eos,
        lambda _token, _logprob: True,
        choice=choice,
        verify=verify,
    )


def generate_stream(
    target: Target,
    cfg: SpecConfig,
    prompt: Sequence[int],
    params: SamplingParams,
    seed: int,
    max_new: int,
    eos: Sequence[int],
    on_token: Callable[[int, float], bool],
    *,
    choice: int = 0,
    verify: Rule = "resample",
) -> Generated:
    """Generate like `generate`, handing over each token and its log-probability as it is kept.

    A listener that answers false ends it right there ("cancelled"), the token it was told of included.
    """
    prompt = list(prompt)
    room = _room(target, prompt, max_new)
    stops = frozenset(eos).union(params.stop_token_ids)
    params = msgspec.structs.replace(params, stop_token_ids=tuple(sorted(stops)))
    rng = stream(seed, choice)
    drafter = Drafter(cfg, prompt)
    output: list[int] = []
    logprobs: list[float] = []
    stats = SpecStats()
    pending = prompt
    while True:
        draft = drafter.propose(min(cfg.k, room - len(output) - 1))
        rows = target.extend(pending + draft)
        stats.target_calls += 1
        stats.drafted += len(draft)
        #   rows:  0 ....... len(pending) - 1 ....... len(pending) + m - 1
        #                    |------ verified: m + 1 rows ------|
        rows = rows[len(pending) - 1 :]
        kept = 0
        reason: FinishReason | None = None
        try:
            verified = verify_draft(rows, draft, None, params, prompt, output, rng, verify=verify)
            for token, logprob in zip(verified.tokens, verified.logprobs, strict=True):
                output.append(token)
                logprobs.append(logprob)
                kept += 1
                if not on_token(token, logprob):
                    reason = "cancelled"
                elif token in stops:
                    reason = "stop"
                elif len(output) == room:
                    reason = "length"
                if reason:
                    break
        finally:  # whatever the verifier or the listener raised, nothing stays cached that was not kept
            target.truncate(len(prompt) + len(output) - 1 if output else 0)
        stats.accepted += min(verified.n_accepted, kept)
        if reason:
            return Generated(output, logprobs, reason, stats)
        drafter.append(verified.tokens)
        pending = output[-1:]


def _room(target: Target, prompt: list[int], max_new: int) -> int:
    """How many tokens can be emitted: the last one is never fed, so it needs no position."""
    if not prompt:
        raise refuse("prompt", prompt, "at least one token")
    if max_new < 1:
        raise refuse("max_new", max_new, "an integer >= 1")
    if target.cached() != 0:
        raise SpecError(f"the target holds {target.cached()} positions: an empty one")
    if not isinstance(target, BoundedTarget):
        return max_new
    if len(prompt) > target.max_model_len:
        raise refuse("prompt", f"{len(prompt)} tokens", f"at most max_model_len ({target.max_model_len})")
    return min(max_new, target.max_model_len - len(prompt) + 1)

"""The one-sequence loop: what every engine's output for a request must equal."""

from collections.abc import Callable, Hashable, Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from spec.choices import Rule
from spec.config import SpecConfig
from spec.drafter import Drafter
from spec.errors import SpecError, refuse
from spec.finished import FinishedRequests
from spec.growth import grow
from spec.params import SamplingParams
from spec.rng import draft_stream, stream
from spec.shapes import Chain
from spec.target import BoundedTarget, Proposer, Target, TargetReader, TreeTarget
from spec.tree import DraftTree, compaction
from spec.verify_tree import verify_tree

FinishReason = Literal["stop", "length", "cancelled"]


class SpecStats(msgspec.Struct):
    """What speculation did.

    `drafted` counts nodes, `accepted` those accepted and delivered, `target_calls` forward passes; in
    `accepted_by_depth[d]` rounds a node at depth `d + 1` was accepted and delivered.
    """

    drafted: int = 0
    accepted: int = 0
    target_calls: int = 0
    rounds: int = 0
    accepted_by_depth: list[int] = msgspec.field(default_factory=list)

    def count(self, num_drafted: int, num_accepted: int) -> None:
        """Count a round and its pass."""
        self.target_calls += 1
        self.rounds += 1
        self.drafted += num_drafted
        self.accepted += num_accepted
        self.accepted_by_depth += [0] * (num_accepted - len(self.accepted_by_depth))
        for depth in range(num_accepted):
            self.accepted_by_depth[depth] += 1

    @property
    def accept_rate(self) -> float:
        """Accepted over drafted; 0.0 where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def acceptance_length(self) -> float:
        """Tokens per round: those accepted and the target's own; 0.0 before the first round."""
        return 1 + self.accepted / self.rounds if self.rounds else 0.0


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
    verify: Rule | None = None,
    proposer: Proposer | None = None,
    finished: FinishedRequests | None = None,
    cache_salt: Hashable = None,
) -> Generated:
    """Generate up to `max_new` tokens after `prompt`, in rounds of draft, one pass, verify, roll back.

    `verify` overrides the rule of `cfg`. A kind of draft that a model proposes takes a `proposer`, a shape other than
    a chain a `TreeTarget`; suffix drafts come from `finished` requests of the same `cache_salt` too. Ends with the
    first id of `eos` or `params.stop_token_ids` ("stop"), or with `max_new` tokens or a full cache ("length"). Raises
    SpecError for an empty prompt, one longer than the target can hold, `max_new < 1`, or drafts that cannot be made
    or fed, before anything is cached.
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
        proposer=proposer,
        finished=finished,
        cache_salt=cache_salt,
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
    verify: Rule | None = None,
    proposer: Proposer | None = None,
    finished: FinishedRequests | None = None,
    cache_salt: Hashable = None,
) -> Generated:
    """Generate like `generate`, handing over each token and its log-probability as it is kept.

    A listener that answers false ends it right there ("cancelled"), the token it was told of included.
    """
    prompt = list(prompt)
    room = _room(target, prompt, max_new)
    cfg = _configuration(cfg, params, verify, target, proposer)
    stops = frozenset(eos).union(params.stop_token_ids)
    params = msgspec.structs.replace(params, stop_token_ids=tuple(sorted(stops)))
    rng, draft_rng = stream(seed, choice), draft_stream(seed, choice)
    drafter = Drafter(cfg, prompt, finished, cache_salt)
    output: list[int] = []
    logprobs: list[float] = []
    stats = SpecStats()
    pending = prompt
    while True:
        max_depth = room - len(output) - 1
        if len(pending) > 1 and isinstance(proposer, TargetReader) and proposer.reads_target:
            target.extend(pending[:-1])
            pending = pending[-1:]
        drafted = drafter.draft(cfg.k, max_depth)
        if proposer is not None and not drafted.tree.tokens:
            growth = grow(cfg.model_shape, cfg.children, max_depth, draft_rng)
            if growth.frontier:
                proposer.begin(prompt, output, cfg.draft_params(params))
            while growth.frontier:
                growth.feed(proposer.laws(growth.tokens, growth.parents, growth.frontier))
            drafted = growth.result()
        tree = drafted.tree
        cached = target.cached()
        rows = _feed(target, pending, tree)
        #   rows:  0 ....... len(pending) - 1 ....... len(pending) + n - 1
        #                    |------ verified: n + 1 rows ------|
        rows = rows[len(pending) - 1 :]
        path: Sequence[int] = ()
        kept = 0
        reason: FinishReason | None = None
        try:
            verified = verify_tree(
                rows,
                tree,
                drafted.draft_probs,
                params,
                prompt,
                output,
                rng,
                rule=cfg.rule,
                children=cfg.children,
            )
            path = verified.path
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
            _keep(target, cached, len(pending), path, kept)
        stats.count(len(tree), min(len(path), kept))
        if reason:
            return Generated(output, logprobs, reason, stats)
        drafter.append(verified.tokens)
        pending = output[-1:]


def _feed(target: Target, pending: Sequence[int], tree: DraftTree) -> NDArray[np.float32]:
    """Feed the pending tokens and the draft in one pass."""
    ids = [*pending, *tree.tokens]
    if tree.is_chain:
        return target.extend(ids)
    assert isinstance(target, TreeTarget), "checked before the first round"
    return target.extend(ids, tree.fed_after(len(pending)))


def _keep(target: Target, cached: int, num_pending: int, path: Sequence[int], num_kept: int) -> None:
    """Leave in the cache what a round kept, but for the last token, which is pending; all that was fed if none was."""
    if not num_kept:
        target.truncate(cached)
        return
    moves, cached = compaction(cached, num_pending, path, num_kept)
    if moves:
        assert isinstance(target, TreeTarget), "only a tree leaves gaps"
        target.move_slots(moves)
    target.truncate(cached)


def _configuration(
    cfg: SpecConfig, params: SamplingParams, verify: Rule | None, target: Target, proposer: Proposer | None
) -> SpecConfig:
    """Give the configuration that this request is drafted and judged by, or refuse it."""
    if cfg.draft.needs_proposer != (proposer is not None):
        raise refuse("draft", cfg.draft.value, "a kind that a model proposes, exactly where a proposer is given")
    if cfg.is_auto:
        raise refuse("nodes", "auto", "a number by the time that a tree is made")
    if not isinstance(cfg.tree_shape, Chain) and not isinstance(target, TreeTarget):
        raise refuse("shape", cfg.tree_shape.kind, "'chain', for a target that cannot be fed trees")
    return cfg.for_request(params, verify)


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

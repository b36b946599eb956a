"""One round's verification: which drafted tokens the target keeps, and the token it adds.

Speculative sampling after Leviathan et al. 2023 (algorithm 1) and Chen et al. 2023 (algorithm 2).
"""

import math
from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spec.choices import RULES, Rule
from spec.distribution import (
    Generator,
    Row,
    TokenCounts,
    argmax,
    best_id,
    check_row,
    law,
    log_softmax_at,
    penalise,
    sample_dense,
)
from spec.errors import SpecError, refuse
from spec.params import SamplingParams


class Scores:
    """Log-softmax of raw rows at emitted tokens, computed when first read and kept."""

    __slots__ = ("_of_rows", "_rows", "_tokens", "_values")

    def __init__(self, rows: NDArray[np.floating], tokens: Sequence[int], of_rows: Sequence[int] | None = None) -> None:
        self._rows = rows
        self._tokens = tokens
        self._of_rows = of_rows
        self._values: list[float] | None = None

    def __getitem__(self, span: slice) -> list[float]:
        if self._values is None:
            self._values = log_softmax_at(self._rows, self._tokens, self._of_rows).tolist()
        return self._values[span]


class Verified:
    """What a round emits: `tokens` is the accepted run of the draft and one token of the target's own.

    `path` holds the accepted nodes of the draft, from the root down: of a chain, its first `n_accepted` tokens.
    `logprobs`, one per token, are those of the raw rows; they are computed when first read, from the rows that were
    verified: whoever reuses that memory reads them before.
    """

    __slots__ = ("_scores", "_span", "n_accepted", "path", "tokens")

    def __init__(
        self, tokens: list[int], n_accepted: int, scores: Scores, start: int = 0, path: Sequence[int] | None = None
    ) -> None:
        self.tokens = tokens
        self.n_accepted = n_accepted
        self.path: Sequence[int] = range(n_accepted) if path is None else path
        self._scores = scores
        self._span = slice(start, start + len(tokens))

    @property
    def logprobs(self) -> list[float]:
        """Float64 log-softmax of each token's raw row."""
        return self._scores[self._span]

    def __repr__(self) -> str:
        return f"Verified(tokens={self.tokens}, n_accepted={self.n_accepted})"


def residual(p: Row, q: Row) -> Row:
    """Give what a rejection draws from: `max(0, p - q)`, normalised; `p` itself where no mass is left."""
    r = np.maximum(p - q, 0.0)
    mass = r.sum()
    return cast(Row, r / mass) if mass > 0 else p


def speculative_step(p: ArrayLike, q: ArrayLike, x: int, u_accept: float, u_resample: float) -> tuple[int, bool]:
    """Accept or replace one drafted token `x` drawn from `q` when the target's law is `p`.

    `p` and `q` are `[V]`. Returns the token and whether it is the drafted one. Raises SpecError for unequal or empty
    laws, an id out of range, `q[x] == 0`, or a uniform outside [0, 1).
    """
    p, q = np.asarray(p, np.float64), np.asarray(q, np.float64)
    if p.ndim != 1 or p.shape != q.shape or p.size == 0:
        raise SpecError(f"p has shape {p.shape} and q {q.shape}: one dimension, equal, at least one entry")
    if not 0 <= x < len(p):
        raise refuse("x", x, f"an id in [0, {len(p)})")
    for field, u in (("u_accept", u_accept), ("u_resample", u_resample)):
        if not 0 <= u < 1:
            raise refuse(field, u, "a uniform in [0, 1)")
    if not q[x] > 0:
        raise refuse(f"q[{x}]", float(q[x]), "above 0 for the drafted id")
    if u_accept < p[x] / q[x]:
        return x, True
    return sample_dense(residual(p, q), u_resample), False


def verify_draft(
    rows: ArrayLike,
    draft: Sequence[int],
    draft_probs: ArrayLike | None,
    params: SamplingParams,
    prompt: Sequence[int],
    output: Sequence[int],
    rng: Generator,
    *,
    verify: Rule = "resample",
) -> Verified:
    """Verify a draft of `m` tokens against the target's `m + 1` rows, float32 `[m + 1, V]`.

    `draft_probs` is `[m, V]` for a stochastic draft and None for a deterministic one; `output` is what was emitted
    before this round. `"resample"` is the rejection rule; `"match"` draws from the target and goes on while that is the
    drafted token, so that the text does not depend on the drafts. Rows are looked at in order and only as far as
    needed. Raises SpecError (shapes, ids, laws, rows, parameters); the generator has then not moved.
    """
    rows = as_rows(rows)
    num_rows, vocab_size = rows.shape
    check_round(num_rows, vocab_size, draft, draft_probs, params, verify)
    state = rng.state
    try:
        if params.is_greedy:
            tokens = _greedy(rows, draft, params, prompt, output)
        else:
            q = None if draft_probs is None else np.asarray(draft_probs, np.float64)
            counts = TokenCounts.needed_by(params, prompt, output)
            tokens = _sampled(rows, draft, q, params, counts, rng, verify)
    except SpecError:
        rng.state = state
        raise
    num_accepted = len(tokens) - 1
    return Verified(tokens, num_accepted, Scores(rows[: len(tokens)], tokens))


def _greedy(
    rows: NDArray[np.floating],
    draft: Sequence[int],
    params: SamplingParams,
    prompt: Sequence[int],
    output: Sequence[int],
) -> list[int]:
    if params.leaves_logits_alone:
        return _run_of_best(rows, draft)
    counts = TokenCounts.needed_by(params, prompt, output)
    tokens: list[int] = []
    for i, row in enumerate(rows):
        best = argmax(penalise(row.astype(np.float64), params, counts))
        tokens.append(best)
        if i == len(draft) or best != draft[i]:
            break
        counts.add(best)
    return tokens


def _run_of_best(rows: NDArray[np.floating], draft: Sequence[int]) -> list[int]:
    best = rows.argmax(axis=1)
    tokens: list[int] = best.tolist()
    values: list[float] = rows[np.arange(len(best)), best].tolist()
    for i, token in enumerate(tokens):
        if not math.isfinite(values[i]):
            check_row(rows[i], token)
        if i == len(draft) or token != draft[i]:
            return tokens[: i + 1]
    raise AssertionError("the last row has no draft to agree with")


def _sampled(
    rows: NDArray[np.floating],
    draft: Sequence[int],
    q: Row | None,
    params: SamplingParams,
    counts: TokenCounts,
    rng: Generator,
    verify: Rule,
) -> list[int]:
    tokens: list[int] = []
    for i, drafted in enumerate(draft):
        p = law_of(rows[i], params, counts)
        if verify == "match":
            token = sample_dense(p, rng.next_f64())
            is_accepted = token == drafted
        else:
            u_resample = resampled_with(p[drafted] if q is None else p[drafted] / q[i, drafted], rng)
            is_accepted = u_resample is None
            if u_resample is None:
                token = drafted
            else:
                token = sample_dense(drop(p, drafted) if q is None else residual(p, q[i]), u_resample)
        tokens.append(token)
        if not is_accepted:
            return tokens
        counts.add(token)
    tokens.append(sample_dense(law_of(rows[len(draft)], params, counts), rng.next_f64()))
    return tokens


def resampled_with(chance: float, rng: Generator) -> float | None:
    """Judge a drafted token that is accepted with this chance: None, or the uniform to draw another one with.

    Both uniforms are drawn whatever comes of it: positions alone move the stream.
    """
    u_accept, u_resample = rng.next_f64(), rng.next_f64()
    return None if u_accept < chance else u_resample


def drop(p: Row, token: int) -> Row:
    """Give the residual of `p`, which is overwritten, and a one-hot draft law."""
    drop_each(p[None], [token])
    return p


def drop_each(laws: Row, tokens: Sequence[int]) -> None:
    """Take from each of the laws `[n, V]` a token of its own, and normalise; one without another keeps it."""
    at = range(len(tokens)), tokens
    kept = laws[at]
    laws[at] = 0.0
    mass = laws.sum(axis=1)
    is_empty = mass == 0
    if is_empty.any():
        mass[is_empty] = 1.0
        laws[at] = np.where(is_empty, kept, 0.0)
    laws /= mass[:, None] if len(mass) > 1 else mass[0]  # by a scalar it goes faster


def law_of(row: NDArray[np.floating], params: SamplingParams, counts: TokenCounts) -> Row:
    """Give the target's law after a context whose tokens are counted."""
    x = row.astype(np.float64)
    if params.leaves_logits_alone:
        return law(x, params, best_id(row))  # the raw row is half as wide to search
    return law(penalise(x, params, counts), params, best_id(x))


def check_round(
    num_rows: int,
    vocab_size: int,
    draft: Sequence[int],
    draft_probs: ArrayLike | None,
    params: SamplingParams,
    verify: Rule,
) -> None:
    """Refuse with SpecError a round that `num_rows` rows of `vocab_size` logits cannot verify."""
    if verify not in RULES:
        raise refuse("verify", verify, f"one of {', '.join(map(repr, RULES))}")
    if verify == "traversal":
        raise refuse("verify", verify, "'resample' or 'match' here: verify_tree goes through a chain from its end, too")
    if num_rows != len(draft) + 1:
        raise SpecError(f"{num_rows} rows for a draft of {len(draft)}: one row more than drafted tokens")
    for drafted in draft:
        if not 0 <= drafted < vocab_size:
            raise refuse("draft", drafted, f"ids in [0, {vocab_size})")
    params.check_vocabulary(vocab_size)
    if draft_probs is not None:
        if verify == "match":
            raise refuse("verify", verify, "'resample' with draft_probs: matching is for deterministic drafts")
        _check_laws(draft_probs, draft, vocab_size)


def as_rows(rows: ArrayLike) -> NDArray[np.floating]:
    """Give rows as a float array `[n, V]`, or refuse them with SpecError."""
    try:
        array = np.asarray(rows)
    except ValueError:  # a ragged list
        raise SpecError("rows have unequal lengths: all of one length") from None
    if array.ndim != 2 or array.shape[1] == 0:
        raise SpecError(f"rows have shape {array.shape}: [m + 1, V] with V >= 1")
    if array.dtype.char in "fd" and array.flags.c_contiguous:
        return array
    dtype = array.dtype if array.dtype.char in "fd" else np.float64  # float32 and float64 stay as they are
    return np.ascontiguousarray(array, dtype)  # sums then run along a row alike, whoever laid the rows out


def _check_laws(draft_probs: ArrayLike, draft: Sequence[int], vocab_size: int) -> None:
    try:
        q = np.asarray(draft_probs, np.float64)
    except ValueError:
        raise SpecError("draft_probs have unequal lengths: all of one length") from None
    if not draft and q.size == 0:
        return
    if q.shape != (len(draft), vocab_size):
        raise SpecError(f"draft_probs have shape {q.shape}: [{len(draft)}, {vocab_size}]")
    for i, (law_, drafted) in enumerate(zip(q, draft, strict=True)):
        check_law(law_, f"draft_probs[{i}]")
        if law_[drafted] == 0:
            raise refuse(f"draft_probs[{i}][{drafted}]", 0.0, "above 0 for the drafted id")


def check_law(q: Row, field: str) -> None:
    """Refuse with SpecError what is no law: a negative or non-finite entry, a sum away from 1 by over 1e-6."""
    total = float(q.sum())
    if not (q.min() >= 0 and math.isfinite(total)):  # the least of a NaN is one
        raise SpecError(f"{field} has a negative or non-finite entry")
    if abs(total - 1) > 1e-6:
        raise refuse(f"sum of {field}", total, "1 within 1e-6")

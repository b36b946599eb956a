"""From a logits row to a distribution, and from a distribution to a token."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spec.errors import SpecError, refuse
from spec.params import SamplingParams

Row = NDArray[np.float64]

_FAR = 2.0**960  # a float64 above it can differ from another by more than the largest float64


class Generator(Protocol):
    """What a draw is taken from; `Pcg32` is one."""

    state: int

    def next_f64(self) -> float:
        """Draw a uniform in `[0, 1)`."""


class TokenCounts:
    """What the penalties look at: the ids that occurred, and how often each was emitted."""

    __slots__ = ("emitted", "num_emitted", "seen")

    def __init__(self, prompt: Iterable[int], output: Sequence[int]) -> None:
        self.seen = set(prompt)
        self.emitted: dict[int, int] = {}
        self.num_emitted = 0
        for token in output:
            self.add(token)

    @classmethod
    def needed_by(cls, params: SamplingParams, prompt: Sequence[int], output: Sequence[int]) -> "TokenCounts":
        """Count what these parameters look at: the tokens themselves cost a pass over the context."""
        if params.has_penalties:
            return cls(prompt, output)
        counts = cls((), ())
        counts.num_emitted = len(output)
        return counts

    def add(self, token: int) -> None:
        """Count one more emitted token."""
        self.seen.add(token)
        self.emitted[token] = self.emitted.get(token, 0) + 1
        self.num_emitted += 1

    @contextmanager
    def counting(self, token: int) -> Iterator[None]:
        """Count one more emitted token, for a while."""
        is_known = token in self.seen
        self.add(token)
        yield
        self.num_emitted -= 1
        self.emitted[token] -= 1
        if not self.emitted[token]:
            del self.emitted[token]
        if not is_known:
            self.seen.remove(token)


def apply_penalties(row: ArrayLike, params: SamplingParams, prompt: Sequence[int], output: Sequence[int]) -> Row:
    """Bias, mask and penalise a logits row: everything that comes before the temperature.

    `row` is `[V]`; `output` holds the tokens emitted so far, those accepted earlier in this round included.
    Returns a float64 copy. Raises SpecError for a row with NaN, +inf or no finite entry, and for a bias or stop id
    out of the vocabulary.
    """
    return penalise(as_row(row), params, TokenCounts(prompt, output))


def penalise(x: Row, params: SamplingParams, counts: TokenCounts) -> Row:
    """Do what `apply_penalties` does, in place, for a row of one's own and counts that are kept."""
    params.check_vocabulary(len(x))
    check_row(x, best_id(x))
    for token, bias in params.logit_bias.items():
        x[token] += bias
    if params.stop_token_ids and counts.num_emitted < params.min_tokens:
        x[list(params.stop_token_ids)] = -np.inf
    if params.repetition_penalty != 1 and counts.seen:
        seen = _ids(counts.seen, len(x))
        at = x[seen]
        with np.errstate(over="ignore"):  # past the largest number there is nothing to tell apart
            at = np.where(at > 0, at / params.repetition_penalty, at * params.repetition_penalty)
        x[seen] = np.minimum(at, np.finfo(np.float64).max)
    if counts.emitted and (params.frequency_penalty or params.presence_penalty):
        emitted = _ids(counts.emitted, len(x))
        times = np.fromiter(counts.emitted.values(), np.float64, len(emitted))
        x[emitted] -= params.frequency_penalty * times + params.presence_penalty
    return x


def _ids(tokens: Iterable[int], vocab_size: int) -> NDArray[np.intp]:
    ids = np.array(list(tokens), np.intp)
    if ids.min() < 0 or ids.max() >= vocab_size:
        raise refuse("prompt or output", int(ids[(ids < 0) | (ids >= vocab_size)][0]), f"ids in [0, {vocab_size})")
    return ids


def as_row(row: ArrayLike) -> Row:
    """Copy a row to float64 `[V]`, V >= 1."""
    x = np.array(row, np.float64)
    if x.ndim != 1 or x.size == 0:
        raise SpecError(f"a logits row has shape {x.shape}: one dimension, at least one entry")
    return x


def best_id(row: NDArray[np.floating]) -> int:
    """Give the argmax without a check: a NaN anywhere wins, so that `check_row` at this id sees every fault."""
    return int(row.argmax())


def check_row(row: NDArray[np.floating], best: int) -> None:
    """Raise SpecError if the greatest entry, at `best`, shows that the row holds NaN, +inf or nothing finite."""
    if not np.isfinite(row[best]):
        raise SpecError(f"a logits row has {row[best]} at id {best}: no NaN, no +inf, at least one finite entry")


def argmax(row: ArrayLike) -> int:
    """Give the best id; ties go to the lowest. Raises SpecError like `apply_penalties`."""
    x = as_row(row)
    best = best_id(x)
    check_row(x, best)
    return best


def dense_distribution(row: ArrayLike, params: SamplingParams, prompt: Sequence[int], output: Sequence[int]) -> Row:
    """Give the distribution the next token is drawn from, float64 `[V]`.

    Penalties, temperature, softmax, then min-p, top-k and top-p in this order. One-hot at temperature 0.
    Raises SpecError like `apply_penalties`.
    """
    x = apply_penalties(row, params, prompt, output)
    return law(x, params, best_id(x))


def law(x: Row, params: SamplingParams, best: int) -> Row:
    """Turn a penalised row (its own copy, overwritten) into the distribution; `best` is its `best_id`."""
    check_row(x, best)
    if params.is_greedy:
        p = np.zeros_like(x)
        p[best] = 1.0
        return p
    if params.leaves_tail_alone:
        return softmax(x, x[best], params.temperature)
    p = softmax(x.copy(), x[best], params.temperature)
    if params.min_p > 0:
        p[p < params.min_p * p.max()] = 0.0
    if params.top_k > 0 or params.top_p < 1:
        _keep_best(p, x, params)  # by `x` itself: less its best, or over the temperature, what differed may be equal
    p /= p.sum()
    return p


def softmax(x: Row, best: np.float64, temperature: float) -> Row:
    """Turn `x` into its softmax at a temperature above 0, in place; `best` is its greatest entry."""
    exponentials(x, best, temperature)
    x /= x.sum()
    return x


def exponentials(x: Row, best: Row | np.float64, temperature: Row | float) -> Row:
    """Turn logits into their laws before these are normalised, in place.

    One row `[V]`, with its greatest entry and its temperature; or many, `[n, V]`, with columns `[n, 1]` of them. What
    comes of a row does not depend on the others.
    """
    is_far = best > _FAR
    if is_far.any():  # what lies below `best` may be further than a float64 goes
        scale = np.where(is_far & (np.asarray(temperature) > 1), 0.25, 1.0)
        x *= scale
        best = best * scale
        temperature = temperature * scale
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the best to -inf
        x -= best
        if isinstance(temperature, np.ndarray) or temperature != 1:  # dividing by 1 changes no bit
            x /= temperature
    return np.exp(x, out=x)


def _keep_best(p: Row, x: Row, params: SamplingParams) -> None:
    """Zero in `p` what top-k and top-p leave out; the order is by `x` descending, then id ascending."""
    alive = np.flatnonzero(p)
    if 0 < params.top_k < len(alive):
        alive = np.sort(_best_first(x, alive, params.top_k)[: params.top_k])
    if params.top_p < 1:
        alive = _nucleus(p, x, alive, params.top_p)
    kept = p[alive]
    p[:] = 0.0
    p[alive] = kept


def _nucleus(p: Row, x: Row, alive: NDArray[np.intp], top_p: float) -> NDArray[np.intp]:
    total = p[alive].sum()
    num_tried = 512  # a nucleus is small: sorting the whole vocabulary is the last resort
    while True:
        order = _best_first(x, alive, num_tried)
        mass = np.cumsum(p[order] / total)
        if len(order) == len(alive) or mass[-1] >= top_p:
            #   mass before the i-th of the order: 0, mass[0], mass[1], ...
            return order[: 1 + int(np.count_nonzero(mass[:-1] < top_p))]
        num_tried *= 8


def _best_first(x: Row, alive: NDArray[np.intp], num_best: int) -> NDArray[np.intp]:
    """Give the `num_best` ids with the greatest `x`, and all that tie with the last of them, in order."""
    if num_best < len(alive):
        at = x[alive]
        alive = alive[at >= np.partition(at, -num_best)[-num_best]]
    return alive[np.argsort(-x[alive], kind="stable")]


def sample_dense(p: Row, u: float) -> int:
    """Give the smallest id with `u < running sum`; the largest id with mass where rounding leaves none."""
    first, end, before = 0, len(p), 0.0
    if len(p) > _WIDE:  # a running sum is slow and a sum is not: those of blocks say which block to run through
        num_blocks = len(p) // _BLOCK
        of_blocks = np.cumsum(p[: num_blocks * _BLOCK].reshape(num_blocks, _BLOCK).sum(axis=1))
        block = _first_above(of_blocks, u)
        first = block * _BLOCK
        end = first + _BLOCK if block < num_blocks else len(p)
        before = of_blocks[block - 1] if block else 0.0
    token = first + _first_above(before + np.cumsum(p[first:end]), u)
    return token if token < end else _last_with_mass(p[:end])


_WIDE = 4096
_BLOCK = 512


def sample_each(laws: Row, uniforms: Sequence[float]) -> list[int]:
    """Sample from laws `[n, V]`, each with a uniform of its own."""
    if laws.shape[1] > _WIDE:
        return [sample_dense(p, u) for p, u in zip(laws, uniforms, strict=True)]
    tokens = [_first_above(*of_law) for of_law in zip(np.cumsum(laws, axis=1), uniforms, strict=True)]
    return [token if token < len(p) else _last_with_mass(p) for token, p in zip(tokens, laws, strict=True)]


def _first_above(running_sum: Row, u: float) -> int:
    return int(running_sum.searchsorted(u, side="right"))


def _last_with_mass(p: Row) -> int:
    return int(np.flatnonzero(p)[-1])


def sample(row: ArrayLike, params: SamplingParams, prompt: Sequence[int], output: Sequence[int], rng: Generator) -> int:
    """Take one token from a logits row: the argmax with no draw at temperature 0, else with one draw."""
    x = apply_penalties(row, params, prompt, output)
    if params.is_greedy:
        return argmax(x)
    return sample_dense(law(x, params, best_id(x)), rng.next_f64())


def log_softmax_at(
    rows: NDArray[np.floating], tokens: Sequence[int], of_rows: Sequence[int] | None
) -> NDArray[np.float64]:
    """Give log-softmax of raw rows `[n, V]` in float64, each at its token: `[n]`.

    With `of_rows`, of the row of that number for each token. So many rows at a time as a cache holds.
    """
    at = np.empty(len(tokens))
    num_rows = max(1, _CACHED // rows.shape[1])
    for first in range(0, len(tokens), num_rows):
        part = slice(first, first + num_rows)
        x = rows[part if of_rows is None else of_rows[part]].astype(np.float64)
        x -= x.max(axis=1, keepdims=True)
        chosen = x[np.arange(len(x)), tokens[part]]
        np.exp(x, out=x)
        np.subtract(chosen, np.log(x.sum(axis=1)), out=at[part])
    return at


_CACHED = 1 << 15

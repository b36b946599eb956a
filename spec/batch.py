"""Verification of many sequences in one call: the rounds of `spec.verify`, taken position by position across them."""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from spec.distribution import Generator, Row, check_row, softmax
from spec.errors import SpecError
from spec.params import SamplingParams
from spec.verify import Rule, Scores, Verified, check_shapes, verify_draft


class Round(msgspec.Struct, frozen=True):
    """One sequence's part of a batch: the arguments of `verify_draft` but for the rows."""

    draft: Sequence[int]
    params: SamplingParams
    prompt: Sequence[int]
    output: Sequence[int]
    rng: Generator
    verify: Rule = "resample"
    draft_probs: ArrayLike | None = None


def verify_batch(rows: NDArray[np.floating], rounds: Sequence[Round]) -> list[Verified]:
    """Verify every round against its own rows; equal to a loop of `verify_draft`, bit for bit.

    `rows` is `[sum(m_i + 1), V]`: the rows of the first round, then those of the second, and so on. Plain greedy and
    plain sampled rounds (no penalty, no top-k, top-p or min-p, a deterministic draft) are taken together; the others
    one by one. Raises SpecError like `verify_draft`, naming the round; no generator has then moved.
    """
    firsts = _first_rows(rows, rounds)
    states = [round_.rng.state for round_ in rounds]
    tokens: list[list[int]] = [[] for _ in rounds]
    greedy, sampled = [], []
    try:
        for i, round_ in enumerate(rounds):
            params = round_.params
            if not params.leaves_logits_alone or round_.draft_probs is not None:
                tokens[i] = _alone(rows, firsts[i], round_)
            elif params.is_greedy:
                greedy.append(i)
            elif params.leaves_tail_alone:
                sampled.append(i)
            else:
                tokens[i] = _alone(rows, firsts[i], round_)
        if greedy:
            _take_best(rows, rounds, firsts, greedy, tokens)
        if sampled:
            _draw(rows, rounds, firsts, sampled, tokens)
    except SpecError:
        for round_, state in zip(rounds, states, strict=True):
            round_.rng.state = state
        raise
    return _with_scores(rows, firsts, tokens)


def _first_rows(rows: NDArray[np.floating], rounds: Sequence[Round]) -> list[int]:
    firsts = []
    at = 0
    for i, round_ in enumerate(rounds):
        firsts.append(at)
        end = at + len(round_.draft) + 1
        try:
            check_shapes(rows[at:end], round_.draft, round_.draft_probs, round_.params, round_.verify)
        except SpecError as error:
            raise SpecError(f"round {i}: {error}") from None
        at = end
    if at != len(rows):
        raise SpecError(f"{len(rows)} rows for {len(rounds)} rounds: {at}, one more than drafted tokens for each")
    return firsts


def _alone(rows: NDArray[np.floating], first: int, round_: Round) -> list[int]:
    return verify_draft(
        rows[first : first + len(round_.draft) + 1],
        round_.draft,
        round_.draft_probs,
        round_.params,
        round_.prompt,
        round_.output,
        round_.rng,
        verify=round_.verify,
    ).tokens


def _take_best(
    rows: NDArray[np.floating],
    rounds: Sequence[Round],
    firsts: list[int],
    greedy: list[int],
    tokens: list[list[int]],
) -> None:
    best: list[int] = rows.argmax(axis=1).tolist()
    has_value = np.isfinite(rows[np.arange(len(rows)), best])
    all_have_values = bool(has_value.all())
    for i in greedy:
        at = firsts[i]
        emitted = tokens[i]
        for drafted in rounds[i].draft:
            emitted.append(best[at])
            at += 1
            if emitted[-1] != drafted:
                break
        else:
            emitted.append(best[at])
        if not all_have_values:
            for row in range(firsts[i], firsts[i] + len(emitted)):
                check_row(rows[row], best[row])


def _draw(
    rows: NDArray[np.floating],
    rounds: Sequence[Round],
    firsts: list[int],
    sampled: list[int],
    tokens: list[list[int]],
) -> None:
    """Take position after position, at each all the rounds that have come so far."""
    live = sampled
    position = 0
    while live:
        at = [firsts[i] + position for i in live]
        laws = _laws(rows[at], [rounds[i].params.temperature for i in live])
        uniforms = np.empty(len(live))  # of the draws that pick from a law
        picks: list[int] = []  # the rows of `laws` that a token is picked from
        accepted: list[int] = []
        for row, i in enumerate(live):
            round_ = rounds[i]
            if position == len(round_.draft) or round_.verify == "match":
                uniforms[len(picks)] = round_.rng.next_f64()
                picks.append(row)
                continue
            drafted = round_.draft[position]
            u_accept, u_resample = round_.rng.next_f64(), round_.rng.next_f64()
            if u_accept < laws[row, drafted]:
                tokens[i].append(drafted)
                accepted.append(i)
                continue
            _leave_out(laws[row], drafted)
            uniforms[len(picks)] = u_resample
            picks.append(row)
        for row, token in zip(picks, _pick(laws, picks, uniforms), strict=True):
            i = live[row]
            round_ = rounds[i]
            tokens[i].append(token)
            if round_.verify == "match" and position < len(round_.draft) and token == round_.draft[position]:
                accepted.append(i)
        live = accepted
        position += 1


def _laws(rows: NDArray[np.floating], temperatures: list[float]) -> Row:
    x = rows.astype(np.float64)
    best = x.max(axis=1)
    if not np.isfinite(best).all():
        for row in x:
            check_row(row, int(row.argmax()))
    t = np.array(temperatures)
    hot = np.flatnonzero(t != 1)
    if len(hot):
        with np.errstate(over="ignore"):
            x[hot] = (x[hot] - best[hot, None]) / t[hot, None]
    return softmax(x)


def _leave_out(law: Row, token: int) -> None:
    kept = law[token]
    law[token] = 0.0
    mass = law.sum()
    if mass > 0:
        law /= mass
    else:
        law[token] = kept


def _pick(laws: Row, picks: list[int], uniforms: Row) -> list[int]:
    if not picks:
        return []
    running = np.cumsum(laws[picks], axis=1)
    tokens = (running <= uniforms[: len(picks), None]).sum(axis=1)
    for j in np.flatnonzero(tokens == laws.shape[1]):
        tokens[j] = np.flatnonzero(laws[picks[j]])[-1]
    result: list[int] = tokens.tolist()
    return result


def _with_scores(rows: NDArray[np.floating], firsts: list[int], tokens: list[list[int]]) -> list[Verified]:
    of_rows: list[int] = []
    flat: list[int] = []
    starts: list[int] = []
    for first, emitted in zip(firsts, tokens, strict=True):
        starts.append(len(flat))
        of_rows.extend(range(first, first + len(emitted)))
        flat.extend(emitted)
    scores = Scores(rows, flat, of_rows)
    return [Verified(emitted, len(emitted) - 1, scores, start) for emitted, start in zip(tokens, starts, strict=True)]

"""Verification of many sequences in one call: the rounds of `spec.verify`, taken position by position across them."""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from spec.choices import Children, Rule
from spec.distribution import Row, check_row, exponentials, sample_each
from spec.errors import SpecError
from spec.params import SamplingParams
from spec.rng import Pcg32, draws_ahead
from spec.tree import DraftTree
from spec.tree_batch import follow_best
from spec.verify import Scores, Verified, as_rows, check_round, drop_each, verify_draft
from spec.verify_tree import check_tree, verify_tree


class Round(msgspec.Struct, frozen=True, gc=False):
    """One sequence's part of a batch: the arguments of `verify_draft` but for the rows.

    `parents` makes the draft a tree, as those of a `DraftTree`; None is a chain. `children` says how it was drafted;
    None: by independent draws where there are `draft_probs`, and from the top else.
    """

    draft: Sequence[int]
    params: SamplingParams
    prompt: Sequence[int]
    output: Sequence[int]
    rng: Pcg32
    verify: Rule = "resample"
    draft_probs: ArrayLike | None = None
    parents: Sequence[int] | None = None
    children: Children | None = None

    @property
    def is_tree(self) -> bool:
        """It takes `verify_tree` to verify it: a tree, or a chain from its end up."""
        return self.parents is not None or self.verify == "traversal"

    @property
    def tree(self) -> DraftTree:
        """The draft as a tree. Raises SpecError for parents that make none."""
        return DraftTree.chain(self.draft) if self.parents is None else DraftTree(self.draft, self.parents)

    @property
    def drawn(self) -> Children:
        """How the children of the draft's nodes were taken."""
        return self.children or ("top" if self.draft_probs is None else "iid")


def verify_batch(rows: NDArray[np.floating], rounds: Sequence[Round]) -> list[Verified]:
    """Verify every round against its own rows; equal to a loop of `verify_round`, bit for bit.

    `rows` is `[sum(m_i + 1), V]`: the rows of the first round, then those of the second, and so on. Plain greedy and
    plain sampled chains (no penalty, no top-k, top-p or min-p, a deterministic draft) are taken together, and so are
    plain greedy trees; the others one by one. Raises SpecError like `verify_round`, naming the round; no generator
    has then moved.
    """
    rows = as_rows(rows)
    firsts = _first_rows(rows, rounds)
    states = [round_.rng.state for round_ in rounds]
    tokens: list[list[int]] = [[] for _ in rounds]
    paths: dict[int, Sequence[int]] = {}  # of trees; a chain's is as long as what it emits
    greedy: list[int] = []
    sampled: list[int] = []
    trees: list[int] = []
    try:
        for i, round_ in enumerate(rounds):
            params = round_.params
            is_plain = params.leaves_logits_alone and round_.draft_probs is None
            if is_plain and params.is_greedy:
                (trees if round_.is_tree else greedy).append(i)
            elif is_plain and params.leaves_tail_alone and not round_.is_tree:
                sampled.append(i)
            else:
                own = rows[firsts[i] : firsts[i] + len(round_.draft) + 1]
                verified = verify_round(own, round_)
                tokens[i] = verified.tokens
                if round_.is_tree:
                    paths[i] = verified.path
        if greedy:
            _take_best(rows, rounds, firsts, greedy, tokens)
        if sampled:
            _draw(rows, rounds, firsts, sampled, tokens)
        if trees:
            found = follow_best(rows, [firsts[i] for i in trees], [rounds[i].tree for i in trees])
            for i, (path, emitted) in zip(trees, found, strict=True):
                paths[i], tokens[i] = path, emitted
    except SpecError:
        for round_, state in zip(rounds, states, strict=True):
            round_.rng.state = state
        raise
    return _with_scores(rows, firsts, tokens, paths)


def _first_rows(rows: NDArray[np.floating], rounds: Sequence[Round]) -> list[int]:
    firsts = []
    at = 0
    for i, round_ in enumerate(rounds):
        firsts.append(at)
        num_rows = min(len(round_.draft) + 1, len(rows) - at)
        try:
            _check(round_, num_rows, rows.shape[1])
        except SpecError as error:
            raise SpecError(f"round {i}: {error}") from None
        at += num_rows
    if at != len(rows):
        raise SpecError(f"{len(rows)} rows for {len(rounds)} rounds: {at}, one more than drafted tokens for each")
    return firsts


def _check(round_: Round, num_rows: int, vocab_size: int) -> None:
    if round_.is_tree:
        shape = num_rows, vocab_size
        check_tree(shape, round_.tree, round_.draft_probs, round_.params, round_.verify, round_.drawn)
        return
    check_round(num_rows, vocab_size, round_.draft, round_.draft_probs, round_.params, round_.verify)


def verify_round(rows: NDArray[np.floating], round_: Round) -> Verified:
    """Verify one round against its own rows, float `[m + 1, V]`: `verify_draft` or `verify_tree`."""
    if round_.is_tree:
        return verify_tree(
            rows,
            round_.tree,
            round_.draft_probs,
            round_.params,
            round_.prompt,
            round_.output,
            round_.rng,
            rule=round_.verify,
            children=round_.drawn,
        )
    return verify_draft(
        rows,
        round_.draft,
        round_.draft_probs,
        round_.params,
        round_.prompt,
        round_.output,
        round_.rng,
        verify=round_.verify,
    )


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
    """Take position after position, at each all the rounds that have come so far.

    A position takes two draws of a round's generator, whatever comes of them (`verify.resampled_with`), or one where
    the token is to be matched, and the last one takes one: from the position it is known which draws to look at.
    """
    drafts = [rounds[i].draft for i in sampled]
    rngs = [rounds[i].rng for i in sampled]
    emitted = [tokens[i] for i in sampled]
    is_match = [rounds[i].verify == "match" for i in sampled]
    temperatures = np.array([rounds[i].params.temperature for i in sampled])
    are_alike = bool((temperatures == temperatures[0]).all())
    first = np.array([firsts[i] for i in sampled])
    ahead, states = draws_ahead(rngs, 2 * max(map(len, drafts)) + 1)
    draws: list[list[float]] = ahead.tolist()
    num_drawn = [0] * len(sampled)
    live = list(range(len(sampled)))
    position = 0
    while live:
        #   by a scalar it goes faster
        x = _exponentials(rows[first[live] + position], temperatures[0] if are_alike else temperatures[live][:, None])
        mass = x.sum(axis=1)
        drafted = [drafts[j][position] if position < len(drafts[j]) else -1 for j in live]
        p_drafted: list[float] = (x[np.arange(len(live)), drafted] / mass).tolist()
        picks: list[int] = []  # the rows of `x` that a token is picked from,
        uniforms: list[float] = []  # with what,
        rejected: list[int] = []  # and which of the picks must not be the drafted token
        accepted: list[int] = []
        for row, (j, token) in enumerate(zip(live, drafted, strict=True)):
            if is_match[j]:
                uniforms.append(draws[j][position])
                num_drawn[j] = position + 1
            elif token < 0:
                uniforms.append(draws[j][2 * position])
                num_drawn[j] = 2 * position + 1
            elif draws[j][2 * position] < p_drafted[row]:
                emitted[j].append(token)
                accepted.append(j)
                continue
            else:
                uniforms.append(draws[j][2 * position + 1])
                num_drawn[j] = 2 * position + 2
                rejected.append(len(picks))
            picks.append(row)
        if picks:
            laws = x[picks]
            laws /= mass[picks, None]
            if rejected:
                residuals = laws[rejected]
                drop_each(residuals, [drafted[picks[i]] for i in rejected])
                laws[rejected] = residuals
            for row, token in zip(picks, sample_each(laws, uniforms), strict=True):
                j = live[row]
                emitted[j].append(token)
                if is_match[j] and token == drafted[row]:
                    accepted.append(j)
        live = accepted
        position += 1
    for rng, state in zip(rngs, states[np.arange(len(rngs)), num_drawn].tolist(), strict=True):
        rng.state = state


def _exponentials(rows: NDArray[np.floating], temperatures: Row | float) -> Row:
    """Give the laws of raw rows before they are normalised."""
    best = rows.max(axis=1, keepdims=True).astype(np.float64)
    if not np.isfinite(best).all():
        for row in rows:
            check_row(row, int(row.argmax()))
    return exponentials(rows.astype(np.float64), best, temperatures)


def _with_scores(
    rows: NDArray[np.floating], firsts: list[int], tokens: list[list[int]], paths: dict[int, Sequence[int]]
) -> list[Verified]:
    of_rows: list[int] = []
    flat: list[int] = []
    starts: list[int] = []
    for i, (first, emitted) in enumerate(zip(firsts, tokens, strict=True)):
        starts.append(len(flat))
        if i in paths:
            of_rows += (first, *(first + node + 1 for node in paths[i]))
        else:
            of_rows.extend(range(first, first + len(emitted)))
        flat.extend(emitted)
    scores = Scores(rows, flat, of_rows)
    return [
        Verified(emitted, len(emitted) - 1, scores, start, paths.get(i))
        for i, (emitted, start) in enumerate(zip(tokens, starts, strict=True))
    ]

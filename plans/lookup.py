"""What prompt lookup would draft at every position of a recorded text, all at once.

A recorded text is its own oracle: the draft at a position depends on what came before it only, and is accepted as far
as it equals what was recorded after it. So neither depends on where the rounds of a replay fall, and one pass over the
arrays serves every k.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spec.config import Occurrence

Ids = NDArray[np.int64]


class Drafts(NamedTuple):
    """For each position of a completion, the draft that a round beginning there would make.

    `[n]`, `n` the length of the completion: tokens drafted, how many of them the recorded text goes on with, and the
    length of the match. Cut to `k` tokens, a draft has `min(k, drafted)` and `min(k, accepted)`.
    """

    drafted: Ids
    accepted: Ids
    strength: Ids


def lookup_drafts(
    tokens: Ids, num_prompt: int, k: int, max_ngram: int, min_ngram: int, occurrence: Occurrence = "latest"
) -> Drafts:
    """Draft at most `k` tokens after each prefix `tokens[:t]`, `num_prompt <= t < len(tokens)`, by prompt lookup.

    `tokens`, ids >= 0, is prompt and completion. Costs a sort for each n of the places that can match, which a long
    prompt has few of, and `k` comparisons a position.
    """
    ends = np.arange(num_prompt, len(tokens))
    sources = np.full(len(ends), -1)
    strength = np.zeros(len(ends), np.int64)
    before = _before(tokens, max(0, num_prompt - max_ngram), max_ngram, occurrence)
    for n in range(max_ngram, min_ngram - 1, -1):
        #   0 .... start .. source ......... end - n ...... end
        #          |-match-|--copied-->      |---suffix----|
        unset = np.flatnonzero((sources < 0) & (ends > n))
        starts = before[n - 1][ends[unset] - n]
        sources[unset] = np.where(starts >= 0, starts + n, -1)
        strength[unset] = np.where(starts >= 0, n, 0)
    drafted, accepted = _compare(tokens, ends, sources, k)
    return Drafts(drafted, accepted, strength)


def _before(tokens: Ids, first: int, max_ngram: int, occurrence: Occurrence) -> list[Ids]:
    """Give for n = 1, 2, ... and each place the latest or earliest one before it with the same n tokens, else -1.

    Only what is said of places from `first` on holds: tokens that are not there again match nothing.
    """
    numbers = np.zeros(int(tokens.max(initial=0)) + 1, np.int64)
    seen = np.unique(tokens[first:])
    numbers[seen] = np.arange(1, len(seen) + 1)
    singles = numbers[tokens]
    grams = singles  # equal numbers where, and only where, the n tokens are equal; 0 where they do not matter
    found = []
    for n in range(1, max_ngram + 1):
        if n > 1:
            last = singles[n - 1 :]
            grams = np.where((grams[: len(last)] > 0) & (last > 0), grams[: len(last)] * (len(seen) + 1) + last, 0)
        places = np.flatnonzero(grams)
        order = places[np.argsort(grams[places], kind="stable")]
        is_again = np.zeros(len(order), bool)
        is_again[1:] = grams[order[1:]] == grams[order[:-1]]
        before = np.full(len(tokens), -1)
        if occurrence == "latest":
            before[order[is_again]] = order[np.flatnonzero(is_again) - 1]
        else:
            firsts = order[np.maximum.accumulate(np.where(is_again, 0, np.arange(len(order))))]
            before[order[is_again]] = firsts[is_again]
        found.append(before)
        grams[order] = np.cumsum(~is_again)
    return found


def _compare(tokens: Ids, ends: Ids, sources: Ids, k: int) -> tuple[Ids, Ids]:
    found = np.flatnonzero(sources >= 0)
    drafted = np.zeros(len(ends), np.int64)
    accepted = np.zeros(len(ends), np.int64)
    drafted[found] = np.minimum(k, ends[found] - sources[found])
    going = found
    for i in range(k):
        at = ends[going] + i
        is_alike = (i < drafted[going]) & (at < len(tokens))
        is_alike &= tokens[np.minimum(at, len(tokens) - 1)] == tokens[np.minimum(sources[going] + i, len(tokens) - 1)]
        going = going[is_alike]
        accepted[going] += 1
    return drafted, accepted

"""What prompt lookup would draft at every position of a recorded text, all at once.

A recorded text is its own oracle: the draft at a position depends on what came before it only, and is accepted as far
as it equals what was recorded after it. So neither depends on where the rounds of a replay fall, and one pass over the
arrays serves every k.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spec.config import Occurrence

Ids = NDArray[np.int64]
Grams = NDArray[np.signedinteger[Any]]

_MOST_SLOTS = 1 << 22


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

    `tokens`, ids >= 0, is prompt and completion. Costs a sort of the completion for each n, a few looks at the prompt,
    and `k` comparisons a position.
    """
    ends = np.arange(num_prompt, len(tokens))
    sources = np.full(len(ends), -1)
    strength = np.zeros(len(ends), np.int64)
    first = max(0, num_prompt - max_ngram)
    before = _before(tokens, first, max_ngram, occurrence)
    for n in range(max_ngram, min_ngram - 1, -1):
        #   0 .... start .. source ......... end - n ...... end
        #          |-match-|--copied-->      |---suffix----|
        unset = np.flatnonzero((sources < 0) & (ends > n))
        starts = before[n - 1][ends[unset] - n - first]
        sources[unset] = np.where(starts >= 0, starts + n, -1)
        strength[unset] = np.where(starts >= 0, n, 0)
    drafted, accepted = _compare(tokens, ends, sources, k)
    return Drafts(drafted, accepted, strength)


def _before(tokens: Ids, first: int, max_ngram: int, occurrence: Occurrence) -> list[Ids]:
    """Give for n = 1, 2, ... and each place from `first` on the latest or earliest one before with the same n tokens.

    -1 stands for none. Before `first` there are `max_ngram` tokens or more that nothing is asked of.
    """
    #   0 .............. first ................ len(tokens)
    #   |-----head------||--------tail---------|     grams of the tail are numbered, and found in the head
    tail = tokens[first:]
    seen = np.unique(tail)
    width = len(seen) + 1  # a gram is numbered by that which it continues, and its last token
    size = int(tokens.max(initial=0)) + 1
    are_few = (len(tail) + 1) * width < _MOST_SLOTS
    numbers: Grams = np.zeros(size, np.int32) if are_few else np.zeros(size, np.int64)
    numbers[seen] = np.arange(1, width)
    singles: Grams = numbers[tokens]
    places: Ids = np.arange(first)
    in_head: Grams = singles[:first]
    in_tail: Grams = singles[first:]
    num_grams = len(seen)
    found = []
    for n in range(1, max_ngram + 1):
        if n > 1:
            last = singles[first + n - 1 :]
            known, in_tail = np.unique(in_tail[: len(last)] * width + last, return_inverse=True)
            in_tail = in_tail + 1
            num_grams = len(known)
            next_ = singles[1 : first + 1] if n == 2 else singles[places + n - 1]
            places, in_head = _among(known, places, in_head * width + next_, (len(tail) + 1) * width)
        before = _before_in(in_tail, first, occurrence)
        of_head = np.full(num_grams + 1, -1)
        #   of several places of a gram, the last that is assigned stays
        if occurrence == "latest":
            of_head[in_head] = places
            before = np.where(before >= 0, before, of_head[in_tail])
        else:
            of_head[in_head[::-1]] = places[::-1]
            before = np.where(of_head[in_tail] >= 0, of_head[in_tail], before)
        found.append(before)
    return found


def _among(known: Grams, places: Ids, grams: Grams, num_grams: int) -> tuple[Ids, Grams]:
    """Give of places those whose gram, one of `num_grams`, is one of the `known`, sorted, and its number there, from 1.

    Where a table of them all is too large, one of slots tells of most at once, and those are searched for whose slot
    another gram has.
    """
    is_whole = num_grams < _MOST_SLOTS
    mask = num_grams if is_whole else (1 << max(16, (8 * len(known)).bit_length())) - 1
    slots = np.zeros(mask + 1, grams.dtype)
    slots[known if is_whole else known & mask] = np.arange(1, len(known) + 1)
    numbers = slots[grams if is_whole else grams & mask]
    left = np.flatnonzero(numbers != 0)  # of truth values it is found sooner
    numbers = numbers[left]
    if not is_whole:
        grams = grams[left]
        others = np.flatnonzero(known[numbers - 1] != grams)
        at = np.searchsorted(known, grams[others])
        numbers[others] = np.where(known[np.minimum(at, len(known) - 1)] == grams[others], at + 1, 0)
        is_known = numbers > 0
        left, numbers = left[is_known], numbers[is_known]
    return places[left], numbers


def _before_in(grams: Grams, first: int, occurrence: Occurrence) -> Ids:
    """Give for each place of a text from `first` on the latest or earliest one before it with its gram, or -1."""
    order = np.argsort(grams, kind="stable")
    is_again = np.zeros(len(order), bool)
    is_again[1:] = grams[order[1:]] == grams[order[:-1]]
    before = np.full(len(grams), -1)
    if occurrence == "latest":
        before[order[is_again]] = first + order[np.flatnonzero(is_again) - 1]
    else:
        firsts = order[np.maximum.accumulate(np.where(is_again, 0, np.arange(len(order))))]
        before[order[is_again]] = first + firsts[is_again]
    return before


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

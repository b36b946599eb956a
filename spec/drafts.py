"""Drafts taken from the context itself, as plain scans: the definition that `Drafter` is held to.

Prompt lookup is assisted generation by n-gram matching (Saxena 2023); the n-gram draft is a back-off model
fitted to the context alone.
"""

from collections import Counter
from collections.abc import Sequence

from spec.config import Draft, SpecConfig


def prompt_lookup(ctx: Sequence[int], k: int, max_ngram: int, min_ngram: int) -> list[int]:
    """Copy up to `k` tokens that followed the most recent earlier occurrence of the longest suffix that has one.

    Suffixes of `max_ngram` down to `min_ngram` tokens are tried. The copy may run into the suffix itself and ends
    with the context: `prompt_lookup([5, 6, 7, 8, 5, 6], 3, 3, 1)` is `[7, 8, 5]`.
    """
    t = len(ctx)
    if k <= 0:
        return []
    for n in range(min(max_ngram, t - 1), min_ngram - 1, -1):
        suffix = ctx[t - n :]
        #   0 ........ start .. start + n ......... t - n ...... t
        #              |--match--|--copied-->       |--suffix---|
        for start in range(t - n - 1, -1, -1):
            if ctx[start : start + n] == suffix:
                return list(ctx[start + n : start + n + k])
    return []


def ngram_draft(ctx: Sequence[int], k: int, n: int) -> list[int]:
    """Draft token by token with an n-gram model of the context, drafted tokens included.

    After the last `m` tokens, for `m` from `n - 1` down to 1, the most frequent follower of their earlier occurrences
    comes next (ties to the lowest id); the draft ends where no `m` has a follower.
    """
    grown = list(ctx)
    draft: list[int] = []
    while len(draft) < k:
        token = _follower(grown, n)
        if token is None:
            break
        draft.append(token)
        grown.append(token)
    return draft


def _follower(ctx: list[int], n: int) -> int | None:
    t = len(ctx)
    for m in range(min(n - 1, t - 1), 0, -1):
        suffix = ctx[t - m :]
        followers = Counter(ctx[i + m] for i in range(t - m) if ctx[i : i + m] == suffix)
        if followers:
            return min(followers, key=lambda token: (-followers[token], token))
    return None


def propose(cfg: SpecConfig, ctx: Sequence[int], k: int) -> list[int]:
    """Draft at most `k` tokens for a context, by `cfg.draft`; `k <= 0` gives none."""
    if cfg.draft is Draft.PROMPT_LOOKUP:
        return prompt_lookup(ctx, k, cfg.max_ngram, cfg.min_ngram)
    if cfg.draft is Draft.NGRAM:
        return ngram_draft(ctx, k, cfg.max_ngram)
    return []

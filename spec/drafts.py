"""Drafts taken from the context itself, as plain scans: the definition that `Drafter` is held to.

Prompt lookup is assisted generation by n-gram matching (Saxena 2023); the n-gram draft is a back-off model
fitted to the context alone.
"""

import math
from collections import Counter
from collections.abc import Sequence

from spec.config import Draft, SpecConfig
from spec.suffix import SuffixDraft, SuffixRules


def prompt_lookup(
    ctx: Sequence[int], k: int, max_ngram: int, min_ngram: int, *, is_earliest: bool = False
) -> list[int]:
    """Copy up to `k` tokens that followed the most recent earlier occurrence of the longest suffix that has one.

    Or with `is_earliest` its first occurrence. Suffixes of `max_ngram` down to `min_ngram` tokens are tried. The copy
    may run into the suffix itself and ends with the context: `prompt_lookup([5, 6, 7, 8, 5, 6], 3, 3, 1)` is
    `[7, 8, 5]`.
    """
    t = len(ctx)
    if k <= 0:
        return []
    for n in range(min(max_ngram, t - 1), min_ngram - 1, -1):
        suffix = ctx[t - n :]
        #   0 ........ start .. start + n ......... t - n ...... t
        #              |--match--|--copied-->       |--suffix---|
        for start in range(t - n) if is_earliest else range(t - n - 1, -1, -1):
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


def suffix_draft(
    ctx: Sequence[int],
    finished: Sequence[Sequence[int]],
    num_nodes: int,
    rules: SuffixRules,
    room: int,
) -> SuffixDraft | None:
    """Draft what followed the suffixes of the context most often, in the context and in the texts that are finished.

    Of every match and both sources it is the draft with the highest score; ties go to the longer match, then to the
    context. At most `num_nodes` tokens, none deeper than `room`; None where nothing follows that is worth `min_prob`.
    """
    best = None
    for match_len in range(1, min(len(ctx), rules.max_depth - 1) + 1):
        match = tuple(ctx[len(ctx) - match_len :])
        for is_own, texts in ((False, finished), (True, [ctx])):
            draft = _follow(texts, match, min(num_nodes, math.floor(rules.factor * match_len)), rules, room)
            if draft is not None and (best is None or draft.score >= best.score):
                best = draft._replace(is_own=is_own)
    return best


def _follow(
    texts: Sequence[Sequence[int]], match: tuple[int, ...], num_nodes: int, rules: SuffixRules, room: int
) -> SuffixDraft | None:
    """Draft what follows one match: nodes by count, then by depth, then in the order in which they were come upon."""
    m, deepest = len(match), min(rules.max_depth, len(match) + room)
    total = _times(texts, match)
    paths: list[tuple[int, ...]] = [match]  # the match, and what leads to each node
    parents: list[int] = []
    counts: list[int] = []
    waiting: list[tuple[int, int, int, tuple[int, ...], int]] = []
    num_met = 0
    while len(counts) < num_nodes and total:
        if len(paths[-1]) < deepest:
            longer = {(*paths[-1], token) for text in texts for token in text}
            following = sorted((-_times(texts, path), path) for path in longer if _times(texts, path))
            for less_count, path in following[: None if rules.is_tree else 1]:
                waiting.append((less_count, len(path), num_met, path, len(counts) - 1))
                num_met += 1
        if not waiting or -min(waiting)[0] / total < rules.min_prob:
            break
        best = min(waiting)
        waiting.remove(best)
        counts.append(-best[0])
        paths.append(best[3])
        parents.append(best[4])
    if not counts:
        return None
    tokens, values = [path[-1] for path in paths[1:]], [count / total for count in counts]
    return SuffixDraft(tokens, parents, values, sum(counts) / total, m, is_own=False)


def _times(texts: Sequence[Sequence[int]], string: tuple[int, ...]) -> int:
    return sum(tuple(text[i : i + len(string)]) == string for text in texts for i in range(len(text)))


def propose(cfg: SpecConfig, ctx: Sequence[int], k: int) -> list[int]:
    """Draft a chain of at most `k` tokens for a context, by `cfg.draft`; `k <= 0` gives none."""
    if cfg.draft.looks_up:
        return prompt_lookup(ctx, k, cfg.max_ngram, cfg.min_ngram, is_earliest=cfg.occurrence == "earliest")
    if cfg.draft is Draft.SUFFIX:
        draft = suffix_draft(ctx, (), k, SuffixRules.of(cfg)._replace(is_tree=False), k)
        return [] if draft is None else draft.tokens
    if cfg.draft is Draft.NGRAM:
        return ngram_draft(ctx, k, cfg.max_ngram)
    return []

"""The drafts of `spec.drafts` from an index kept as tokens arrive: a round costs the same in any context."""

from array import array
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from spec.errors import refuse
from spec.params import Draft, SpecConfig

_BULK = 48  # from so many tokens on, one numpy pass beats a loop
_TOKEN = array("i").itemsize


class Drafter:
    """Proposes drafts for one sequence; the drafts are those of `propose(cfg, context, k)`.

    `append` what the sequence has gained, `truncate` it to a shorter length; `propose` leaves no trace.
    """

    __slots__ = ("_ctx", "_index")

    def __init__(self, cfg: SpecConfig, tokens: Iterable[int] = ()) -> None:
        self._ctx = array("i")
        self._index: _Index | None = None
        if cfg.draft is Draft.PROMPT_LOOKUP:
            self._index = _LookupIndex(self._ctx, cfg.max_ngram, cfg.min_ngram)
        elif cfg.draft is Draft.NGRAM:
            self._index = _NgramIndex(self._ctx, cfg.max_ngram)
        self.append(list(tokens))

    def __len__(self) -> int:
        return len(self._ctx)

    def append(self, tokens: Sequence[int]) -> None:
        """Add tokens to the end of the context. Amortised cost: one dictionary entry per token and n."""
        if self._index is None:
            self._ctx.extend(tokens)
        else:
            self._index.append(tokens)

    @property
    def strength(self) -> int:
        """Tokens of context that the last proposal's first token was found by; 0 where there was none."""
        return 0 if self._index is None else self._index.strength

    def propose(self, k: int) -> list[int]:
        """Draft at most `k` tokens for the context as it stands."""
        return [] if self._index is None or k <= 0 else self._index.propose(k)

    def truncate(self, length: int) -> None:
        """Forget all but the first `length` tokens; SpecError unless `0 <= length <= len(self)`."""
        if not 0 <= length <= len(self._ctx):
            raise refuse("length", length, f"an integer in [0, {len(self._ctx)}]")
        if self._index is None:
            del self._ctx[length:]
        else:
            self._index.truncate(length)


class _Index(Protocol):
    strength: int

    def append(self, tokens: Sequence[int]) -> None: ...
    def propose(self, k: int) -> list[int]: ...
    def truncate(self, length: int) -> None: ...


class _LookupIndex:
    """Where each n-gram of the context last started, the suffix itself left out.

    A gram enters the index when the token after it arrives; `replaced` remembers what it overwrote, so that the
    newest entries can be taken out again. Grams are keyed by their bytes.
    """

    __slots__ = ("_bulk_end", "_ctx", "_grams", "_max_ngram", "strength")

    def __init__(self, ctx: "array[int]", max_ngram: int, min_ngram: int) -> None:
        self._ctx = ctx
        self._max_ngram = max_ngram
        #   n, the last start of each gram of n tokens, and what it replaced: longest first
        self._grams: list[tuple[int, dict[bytes, int], array[int]]] = [
            (n, {}, array("q")) for n in range(max_ngram, min_ngram - 1, -1)
        ]
        self.strength = 0
        self._bulk_end = 0  # the grams that end here or earlier came in one pass and left no record

    def append(self, tokens: Sequence[int]) -> None:
        if len(tokens) >= _BULK:
            self._append_bulk(tokens)
            return
        ctx = self._ctx
        old = len(ctx)
        ctx.extend(tokens)
        new = len(ctx)
        #   of n tokens, the grams that end at old, ..., new - 1 are new
        first = max(0, old - self._max_ngram)
        raw = ctx[first:].tobytes()
        for n, last, replaced in self._grams:
            width = n * _TOKEN
            for start in range(max(0, old - n), new - n):
                at = (start - first) * _TOKEN
                gram = raw[at : at + width]
                replaced.append(last.get(gram, -1))
                last[gram] = start

    def _append_bulk(self, tokens: Sequence[int]) -> None:
        old = len(self._ctx)
        self._ctx.extend(tokens)
        new = len(self._ctx)
        ids = np.frombuffer(self._ctx, np.intc).copy()  # a view would forbid the array to grow
        for n, last, replaced in self._grams:
            first = max(0, old - n)
            if first < new - n:
                windows = np.lib.stride_tricks.sliding_window_view(ids[first : new - 1], n)
                grams = np.ascontiguousarray(windows).view(f"V{_TOKEN * n}").ravel().tolist()
                last.update(zip(grams, range(first, new - n), strict=True))
            del replaced[:]
        self._bulk_end = new - 1

    def propose(self, k: int) -> list[int]:
        ctx = self._ctx
        t = len(ctx)
        suffix = ctx[-self._max_ngram :].tobytes()
        for n, last, _ in self._grams:
            if n < t:
                start = last.get(suffix[-n * _TOKEN :])
                if start is not None:
                    self.strength = n
                    return ctx[start + n : start + n + k].tolist()
        self.strength = 0
        return []

    def truncate(self, length: int) -> None:
        ctx = self._ctx
        if length < len(ctx) and length - 1 < self._bulk_end:
            kept = ctx[:length].tolist()
            del ctx[:]
            for _, last, _ in self._grams:
                last.clear()
            self._append_bulk(kept)
            return
        while len(ctx) > length:
            ctx.pop()
            for n, last, replaced in self._grams:
                start = len(ctx) - n
                if start >= 0:
                    gram = ctx[start:].tobytes()
                    before = replaced.pop()
                    if before < 0:
                        del last[gram]
                    else:
                        last[gram] = before


class _NgramIndex:
    """How often each token followed each gram of 1 to n - 1 tokens, and which one leads.

    `count` is keyed by gram and follower, `best` by gram; both by their bytes. `replaced` remembers the leader each
    token found, so that the newest tokens can be taken out again: the drafted ones are, after every proposal.
    """

    __slots__ = ("_best", "_count", "_ctx", "_orders", "_replaced", "strength")

    def __init__(self, ctx: "array[int]", n: int) -> None:
        self.strength = 0
        self._ctx = ctx
        self._orders = range(n - 1, 0, -1)
        self._count: dict[bytes, int] = {}
        self._best: dict[bytes, int] = {}
        self._replaced = array("q")

    def append(self, tokens: Sequence[int]) -> None:
        ctx, count, best = self._ctx, self._count, self._best
        for token in tokens:
            ctx.append(token)
            t = len(ctx)
            for m in self._orders:
                if m < t:
                    followed = ctx[t - m - 1 :].tobytes()
                    gram = followed[:-_TOKEN]
                    times = count.get(followed, 0) + 1
                    count[followed] = times
                    leader = best.get(gram, -1)
                    self._replaced.append(leader)
                    if leader != token and (leader < 0 or self._leads(gram, token, times, leader)):
                        best[gram] = token

    def _leads(self, gram: bytes, token: int, times: int, leader: int) -> bool:
        of_leader = self._count[gram + array("i", (leader,)).tobytes()]
        return times > of_leader or (times == of_leader and token < leader)

    def propose(self, k: int) -> list[int]:
        ctx = self._ctx
        length = len(ctx)
        self.strength = 0
        while len(ctx) < length + k:
            t = len(ctx)
            for m in self._orders:
                if m < t:
                    token = self._best.get(ctx[t - m :].tobytes())
                    if token is not None:
                        self.strength = self.strength or m
                        break
            else:
                break
            self.append((token,))
        draft = ctx[length:].tolist()
        self.truncate(length)
        return draft

    def truncate(self, length: int) -> None:
        ctx, count, best = self._ctx, self._count, self._best
        while len(ctx) > length:
            t = len(ctx)
            for m in reversed(self._orders):
                if m < t:
                    followed = ctx[t - m - 1 :].tobytes()
                    gram = followed[:-_TOKEN]
                    leader = self._replaced.pop()
                    if leader < 0:
                        del best[gram]
                    else:
                        best[gram] = leader
                    if count[followed] == 1:
                        del count[followed]
                    else:
                        count[followed] -= 1
            ctx.pop()

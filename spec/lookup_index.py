"""Prompt lookup from an index of the context's n-grams."""

from array import array
from collections.abc import Sequence

import numpy as np

_BULK = 48  # from so many tokens on, one numpy pass beats a loop
_TOKEN = array("i").itemsize


class LookupIndex:
    """Where each n-gram of the context last started, the suffix itself left out.

    A gram enters the index when the token after it arrives; `replaced` remembers what it overwrote, so that the
    newest entries can be taken out again. Grams are keyed by their bytes.
    """

    __slots__ = ("_bulk_end", "_ctx", "_grams", "_max_ngram", "strength")

    def __init__(self, ctx: "array[int]", max_ngram: int, min_ngram: int) -> None:
        self._ctx = ctx
        self._max_ngram = max_ngram
        #   n, the last start of each gram of n tokens, and what it replaced: longest first
        self._grams: list[tuple[int, dict[bytes, int], list[int | None]]] = [
            (n, {}, []) for n in range(max_ngram, min_ngram - 1, -1)
        ]
        self.strength = 0
        self._bulk_end = 0  # the grams that end here or earlier came in one pass and left no record

    def append(self, tokens: Sequence[int]) -> None:
        """Add tokens to the context and to the index."""
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
            start = max(0, old - n)
            for at in range((start - first) * _TOKEN, (new - n - first) * _TOKEN, _TOKEN):
                gram = raw[at : at + width]
                replaced.append(last.get(gram))
                last[gram] = start
                start += 1

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
        """Draft at most `k` tokens; leave context and index as they were."""
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
        """Cut the context, and the index, to their first `length` tokens."""
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
                    if before is None:
                        del last[gram]
                    else:
                        last[gram] = before

"""Prompt lookup from an index of the context: of its n-grams where they are short, of all its substrings else."""

from array import array
from collections import deque
from collections.abc import Sequence

import numpy as np

from spec.suffix_index import SuffixIndex

NUM_SCANNED = 512  # tokens of context up to which a search of its bytes beats keeping an index
_BULK = 48  # from so many tokens on, one numpy pass beats a loop
_TOKEN = array("i").itemsize


class GramIndex:
    """Where each n-gram of the context started last, or first; the suffix itself is left out.

    A gram enters the index when the token after it arrives; it is keyed by its bytes. An entry for every token and n is
    the fastest to keep where there are few n. A context of up to `NUM_SCANNED` tokens has none, and is searched.
    """

    __slots__ = ("_ctx", "_grams", "_is_earliest", "_max_ngram", "_min_ngram", "strength")

    def __init__(self, max_ngram: int, min_ngram: int, *, is_earliest: bool) -> None:
        self._ctx = array("i")
        self._max_ngram = max_ngram
        self._min_ngram = min_ngram
        self._is_earliest = is_earliest
        #   n, and the start of each gram of n tokens: longest first; nothing while the context is searched
        self._grams: list[tuple[int, dict[bytes, int]]] = []
        self.strength = 0

    def append(self, tokens: Sequence[int]) -> None:
        """Add tokens to the context."""
        ctx = self._ctx
        old = len(ctx)
        ctx.extend(tokens)
        new = len(ctx)
        if not self._grams:
            if new <= NUM_SCANNED:
                return
            self._grams = [(n, {}) for n in range(self._max_ngram, self._min_ngram - 1, -1)]
            old = 0
        if new - old >= _BULK:
            self._index_bulk(old, new)
            return
        #   of n tokens, the grams that end at old, ..., new - 1 are new
        is_latest = not self._is_earliest
        first = max(0, old - self._max_ngram)
        raw = ctx[first:].tobytes()
        for n, starts in self._grams:
            width = n * _TOKEN
            oldest = max(0, old - n)
            at = (oldest - first) * _TOKEN
            for start in range(oldest, new - n):
                gram = raw[at : at + width]
                if is_latest or gram not in starts:
                    starts[gram] = start
                at += _TOKEN

    def _index_bulk(self, old: int, new: int) -> None:
        first = max(0, old - self._max_ngram)
        ids = np.array(self._ctx[first:], np.intc)
        for n, starts in self._grams:
            start = max(0, old - n)
            if start < new - n:
                windows = np.lib.stride_tricks.sliding_window_view(ids[start - first : -1], n)
                grams = np.ascontiguousarray(windows).view(f"V{_TOKEN * n}").ravel().tolist()
                if self._is_earliest:
                    deque(map(starts.setdefault, grams, range(start, new - n)), maxlen=0)
                else:
                    starts.update(zip(grams, range(start, new - n), strict=True))

    def propose(self, k: int) -> list[int]:
        """Draft at most `k` tokens; leave the context as it was."""
        if not self._grams:
            return self._search(k)
        ctx = self._ctx
        t = len(ctx)
        suffix = ctx[-self._max_ngram :].tobytes()
        for n, starts in self._grams:
            if n < t:
                start = starts.get(suffix[-n * _TOKEN :])
                if start is not None:
                    self.strength = n
                    return ctx[start + n : start + n + k].tolist()
        self.strength = 0
        return []

    def _search(self, k: int) -> list[int]:
        """Search the context for its suffix: a gram lies where one that is a token shorter ends too, or beyond."""
        ctx = self._ctx
        raw = ctx.tobytes()
        find = raw.find if self._is_earliest else raw.rfind
        #   low ........ high ........ len(raw)
        #   |-- searched --|- a token at least -|
        low, high = 0, len(raw) - _TOKEN
        start = self.strength = 0
        for n in range(self._min_ngram, min(self._max_ngram, len(ctx) - 1) + 1):
            width = n * _TOKEN
            gram = raw[-width:]
            at = find(gram, low, high)
            while at > 0 and at % _TOKEN:  # it is no token's first byte: go on
                at = find(gram, at + 1, high) if self._is_earliest else find(gram, low, at + width - 1)
            if at < 0:
                break
            start, self.strength = at // _TOKEN, n
            if self._is_earliest:
                low = max(0, at - _TOKEN)
            else:
                high = at + width
        end = start + self.strength
        return ctx[end : end + k].tolist() if self.strength else []


class LongGramIndex:
    """The same for long n-grams: memory and time per token do not depend on how many n are tried."""

    __slots__ = ("_index", "_is_earliest", "_min_ngram", "strength")

    def __init__(self, max_ngram: int, min_ngram: int, *, is_earliest: bool) -> None:
        self._index = SuffixIndex(max_ngram)
        self._min_ngram = min_ngram
        self._is_earliest = is_earliest
        self.strength = 0

    def append(self, tokens: Sequence[int]) -> None:
        """Add tokens to the context."""
        self._index.append(tokens)

    def propose(self, k: int) -> list[int]:
        """Draft at most `k` tokens; leave the context as it was."""
        index = self._index
        for state in index.suffixes():
            if index.count[state]:  # it has occurred before
                n = min(index.length[state], index.depth)
                if n < self._min_ngram:
                    break
                self.strength = n
                end = (index.first if self._is_earliest else index.recent)[state] + 1
                return index.text[end : end + k].tolist()
        self.strength = 0
        return []

"""Prompt lookup from an index of the context: a tree of its n-grams, with two entries a token at the most."""

from array import array
from collections.abc import Sequence

NUM_SCANNED = 512  # tokens of context up to which a search of its bytes beats keeping an index
_TOKEN = array("i").itemsize


class LookupIndex:
    """Where each n-gram of the context ended last, or first; the suffix itself is left out.

    A tree of the n-grams read backwards (a suffix tree of the reversed text, Weiner 1973, cut at `max_ngram`). A node
    is the grams that all occurrences so far share, so that it has one place, whatever their number:

        ... a b c      A node with the place of the second c: its depth is 2, for the two occurrences agree that far.
        ... x b c      Its children, by the token before: a and x.

    A gram enters as the token after it arrives. It adds a leaf, and a node where it parts from those before it; leaves
    go as deep as `max_ngram`, so what repeats itself adds none. A context of up to `NUM_SCANNED` tokens has no index,
    and is searched.
    """

    __slots__ = (
        "_ctx",
        "_depths",
        "_edges",
        "_ends",
        "_is_earliest",
        "_max_ngram",
        "_min_ngram",
        "_num_in",
        "strength",
    )

    def __init__(self, max_ngram: int, min_ngram: int, *, is_earliest: bool) -> None:
        self._ctx = array("i")
        self._max_ngram = max_ngram
        self._min_ngram = min_ngram
        self._is_earliest = is_earliest
        self._num_in = 0  # grams that have entered: those that end before this place
        #   by (node << 32) + token: a node, or of a leaf ~ its place; the root is node 0
        self._edges: dict[int, int] = {}
        self._ends = array("i", (0,))
        self._depths = array("i", (0,))
        self.strength = 0

    def append(self, tokens: Sequence[int]) -> None:
        """Add tokens to the context."""
        ctx = self._ctx
        ctx.extend(tokens)
        if len(ctx) <= NUM_SCANNED:
            return
        edges, ends, depths = self._edges, self._ends, self._depths
        most, is_latest = self._max_ngram, not self._is_earliest
        old, self._num_in = self._num_in, len(ctx) - 1
        first = max(0, old - most)
        recent = ctx[first:].tolist()
        for i in range(old - first, len(recent) - 1):
            place = first + i
            node = 0
            n = 0  # tokens that the gram shares with the node
            while True:
                edge = (node << 32) + recent[i - n]
                found = edges.get(edge)
                if found is None:
                    edges[edge] = ~place
                    break
                if found < 0:
                    end = ~found
                    depth = most
                else:
                    end = ends[found]
                    depth = depths[found]
                n += 1
                while n < depth and n <= end and recent[i - n] == ctx[end - n]:
                    n += 1
                if n < depth:  # they part here
                    node = edges[edge] = len(ends)
                    ends.append(place if is_latest else end)
                    depths.append(n)
                    if n <= end:
                        edges[(node << 32) + ctx[end - n]] = found
                    edges[(node << 32) + recent[i - n]] = ~place
                    break
                if found < 0:
                    if is_latest:
                        edges[edge] = ~place
                    break
                if is_latest:
                    ends[found] = place
                node = found

    def propose(self, k: int) -> list[int]:
        """Draft at most `k` tokens; leave the context as it was."""
        n, start = self._walk() if self._edges else self._search()
        self.strength = n if n >= self._min_ngram else 0
        return self._ctx[start : start + k].tolist() if self.strength else []

    def _walk(self) -> tuple[int, int]:
        """Give how many tokens the context's end shares with an earlier place, and what follows there."""
        ctx, edges = self._ctx, self._edges
        last = len(ctx) - 1
        n, node, place, depth = 0, 0, 0, 0
        while n == depth < self._max_ngram:
            found = edges.get((node << 32) + ctx[last - n])
            if found is None:
                break
            place, depth = (~found, self._max_ngram) if found < 0 else (self._ends[found], self._depths[found])
            node = found
            n += 1
            while n < depth and n <= place and ctx[last - n] == ctx[place - n]:
                n += 1
        return n, place + 1

    def _search(self) -> tuple[int, int]:
        """Do the same by a search: a gram lies where one that is a token shorter ends too, or beyond."""
        ctx = self._ctx
        raw = ctx.tobytes()
        find = raw.find if self._is_earliest else raw.rfind
        last = len(ctx) - 1
        most = self._max_ngram if self._max_ngram < last else last
        #   low ........ high ........ len(raw)
        #   |-- searched --|- a token at least -|
        low, high = 0, len(raw) - _TOKEN
        n = start = 0
        while n < most:
            width = (n + 1) * _TOKEN
            gram = raw[-width:]
            at = find(gram, low, high)
            while at > 0 and at % _TOKEN:  # it is no token's first byte: go on
                at = find(gram, at + 1, high) if self._is_earliest else find(gram, low, at + width - 1)
            if at < 0:
                break
            place = at // _TOKEN + n
            start = place + 1
            n += 1
            while n < most and n <= place and ctx[last - n] == ctx[place - n]:
                n += 1
            if self._is_earliest:
                low = max(0, (place - n) * _TOKEN)
            else:
                high = start * _TOKEN
        return n, start

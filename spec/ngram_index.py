"""The n-gram draft from an index of what followed what."""

from collections import Counter
from collections.abc import Sequence

from spec.suffix_index import SuffixIndex


class NgramIndex:
    """An n-gram model of the context, which the tokens of a draft join while it is made.

    What the index knows stays as it is: the few places in the draft itself where the last tokens occur again are looked
    for, and what followed there is added.
    """

    __slots__ = ("_index", "_longest", "strength")

    def __init__(self, n: int) -> None:
        self._index = SuffixIndex(n)
        self._longest = n - 1
        self.strength = 0

    def append(self, tokens: Sequence[int]) -> None:
        """Add tokens to the context."""
        self._index.append(tokens)

    def propose(self, k: int) -> list[int]:
        """Draft at most `k` tokens; leave the context as it was."""
        index, longest = self._index, self._longest
        self.strength = 0
        if not longest:
            return []
        tail = index.text[-longest:].tolist()
        start = len(tail)
        path = list(index.suffixes())
        for state in path:  # what ends with the context counts too
            index.count[state] += 1
        state, num_matched = index.match(tail)
        while len(tail) < start + k:
            gram, m = state, num_matched
            while gram and not index.best[gram]:
                gram = index.link[gram]
                m = index.length[gram]
            m, token = self._next(gram, m, tail, start)
            if not m:
                break
            self.strength = self.strength or m
            tail.append(token)
            state, num_matched = index.advance(state, num_matched, token, longest)
        for state in path:
            index.count[state] -= 1
        return tail[start:]

    def _next(self, gram: int, m: int, tail: list[int], start: int) -> tuple[int, int]:
        """Give the length of the longest gram with a follower and the most frequent one, `(0, 0)` where there is none.

        `gram` is the state of the longest one in the context, `m` its length. The followers in the draft itself are
        those from `start` on.
        """
        index = self._index
        in_draft: list[int] = []  # what followed the gram there
        for at in range(start, len(tail)):
            if tail[at - 1] == tail[-1]:
                num_equal = 1
                while num_equal < min(self._longest, at) and tail[at - 1 - num_equal] == tail[-1 - num_equal]:
                    num_equal += 1
                if num_equal > m:
                    gram, m = 0, num_equal
                    in_draft.clear()
                if num_equal == m:
                    in_draft.append(tail[at])
        if not in_draft:
            return (m, index.token_of(index.best[gram])) if gram else (0, 0)
        times = Counter(in_draft)
        if gram:
            best = index.token_of(index.best[gram])
            for token in times.keys() | {best}:
                followed = index.step(gram, token)
                times[token] += index.count[followed] if followed else 0
        return m, min(times, key=lambda token: (-times[token], token))

"""The n-gram draft from an index of what followed what."""

from collections.abc import Sequence

from spec.suffix_index import SuffixIndex


class NgramIndex:
    """An n-gram model of the context.

    Drafted tokens would join the counts, but need not: with each of them the longest gram that has a follower gains a
    token, until it has `n - 1`, so a gram that is met again in one draft is one that chose before, and choosing made
    its choice no less frequent. Where the gram is the context's end, which has no follower but in the draft, the draft
    says what it said there.
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
        index = self._index
        best, link = index.best, index.link
        self.strength = 0
        draft: list[int] = []
        state, num_matched = index.match(index.text[max(0, len(index.text) - self._longest) :])
        while len(draft) < k:
            while state and not best[state]:
                state = link[state]
                num_matched = index.length[state]
            if not state:
                break
            self.strength = self.strength or num_matched
            token = index.token_of(best[state])
            draft.append(token)
            state, num_matched = index.advance(state, num_matched, token, self._longest)
        return draft

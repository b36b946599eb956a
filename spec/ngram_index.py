"""The n-gram draft from counts of what followed what."""

from array import array
from collections.abc import Sequence

_TOKEN = array("i").itemsize


class NgramIndex:
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
        """Add tokens to the context and to the index."""
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
        """Draft at most `k` tokens; leave context and index as they were."""
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
        """Cut the context, and the index, to their first `length` tokens."""
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

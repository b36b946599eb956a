"""Which replica a request goes to: policy alone, without a clock and without engines."""

from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sims.fleet.config import Policy


class Ask(NamedTuple):
    """What a router sees of a request; `chain` has a key for each full block of the prompt and all before it."""

    num_prompt: int
    chain: Sequence[int]
    session: str | None


class Router:
    """Sends requests to replicas by a policy, and knows what a real one knows.

    It knows what it has sent where, and what replicas have said of their queues, when that was. `round-robin` takes
    turns. `least-tokens` takes the replica with the fewest tokens to feed: those that it told of, and those sent to
    it since. `prefix` adds the tokens of this prompt that are not in a prefix it has sent there. `session` keeps to
    the replica of the session's last request while that is there. Ties go to the first in turn.

    It takes a replica to keep the last `capacity` blocks of the prompts it got.
    """

    def __init__(self, policy: Policy, num_replicas: int, block_tokens: int, capacity: int) -> None:
        self._policy = policy
        self._block_tokens = block_tokens
        self._capacity = capacity
        self._known = [OrderedDict[int, None]() for _ in range(num_replicas)]
        self._told = [0] * num_replicas
        self._sent: list[deque[tuple[float, int]]] = [deque() for _ in range(num_replicas)]
        self._home: dict[str, int] = {}
        self._turn = 0

    def load(self, replica: int) -> int:
        """Tokens that a replica has to feed, as far as is known here."""
        return self._told[replica] + sum(num_tokens for _, num_tokens in self._sent[replica])

    def cached(self, replica: int, ask: Ask) -> int:
        """Tokens of a prompt that a replica should have, by what was sent to it; never the whole prompt."""
        known, num_blocks = self._known[replica], 0
        for key in ask.chain:
            if key not in known:
                break
            num_blocks += 1
        return min(num_blocks * self._block_tokens, ask.num_prompt - 1)

    def choose(self, ask: Ask, able: Sequence[int]) -> int | None:
        """Choose among the replicas that take requests; None where there is none."""
        if not able:
            return None
        in_turn = [replica for replica in self._in_turn() if replica in able]
        match self._policy:
            case "round-robin":
                return in_turn[0]
            case "prefix":
                return min(in_turn, key=lambda replica: self.load(replica) - self.cached(replica, ask))
            case "session" if ask.session is not None and self._home.get(ask.session) in able:
                return self._home[ask.session]
        return min(in_turn, key=self.load)

    def sent(self, replica: int, ask: Ask, time_s: float) -> None:
        """Note that a request has gone to a replica."""
        self._turn = (replica + 1) % len(self._told)
        num_cached = self.cached(replica, ask) if self._policy == "prefix" else 0
        self._sent[replica].append((time_s, ask.num_prompt - num_cached))
        if ask.session is not None:
            self._home[ask.session] = replica
        if self._policy == "prefix":
            known = self._known[replica]
            for key in reversed(ask.chain):  # a block outlives those that follow it
                known[key] = None
                known.move_to_end(key)
            while len(known) > self._capacity:
                known.popitem(last=False)

    def told(self, replica: int, num_tokens: int, time_s: float) -> None:
        """Hear what a replica had to feed at a time: what was sent before that is in it."""
        self._told[replica] = num_tokens
        sent = self._sent[replica]
        while sent and sent[0][0] <= time_s:
            sent.popleft()

    def forget(self, replica: int) -> None:
        """Note that a replica is gone, and with it all that it had."""
        self._known[replica].clear()
        self._sent[replica].clear()
        self._told[replica] = 0

    def _in_turn(self) -> Iterator[int]:
        num = len(self._told)
        return ((self._turn + i) % num for i in range(num))


def chain(prompt: Sequence[int], block_tokens: int, salt: str | None) -> list[int]:
    """Give a key for each full block of a prompt and all before it, prompts of other salts apart."""
    key, keys = hash(tuple(map(ord, salt or ""))), []  # of numbers: a text's own hash is another in each process
    for end in range(block_tokens, len(prompt) + 1, block_tokens):
        key = hash((key, *prompt[end - block_tokens : end]))
        keys.append(key)
    return keys

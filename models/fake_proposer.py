"""A proposer without weights, which agrees with a fake target as much as it is told to."""

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.checked_kv import CheckedMemory, KvMismatch, chained
from models.fake import FakeModel
from models.protocol import Ask, Chunk, Model
from spec import Pcg32, SamplingParams

F64 = NDArray[np.float64]


class FakeProposer:
    """A `Proposer` whose law after a context `c` is `softmax((mix * target(c) + (1 - mix) * other(c)) / temperature)`.

    `target(c)` is the fake target's row and `other(c)` that of a fake target of the same vocabulary with the `seed`,
    `order` and `sharp` given here; `top_k` above 0 keeps the best so many tokens, ties to the lower id. After a share
    `strays` of all contexts its law is `other(c)` alone. The context is
    read back from memory that checks itself, and drafted nodes from scratch that does: state that is stale, missing or
    another sequence's raises KvMismatch or changes the law.
    """

    def __init__(
        self,
        target: FakeModel,
        seed: int,
        order: int,
        sharp: float,
        mix: float,
        temperature: float = 1.0,
        top_k: int = 0,
        strays: float = 0.0,
    ) -> None:
        if not 0 <= mix <= 1:
            raise ValueError(f"mix is {mix}: must be in [0, 1]")
        if not 0 < temperature < float("inf"):
            raise ValueError(f"temperature is {temperature}: must be above 0")
        if not 0 <= strays <= 1:
            raise ValueError(f"strays is {strays}: must be in [0, 1]")
        if top_k < 0:
            raise ValueError(f"top_k is {top_k}: must be at least 0, which is off")
        self._target = target
        self._other = FakeModel(seed, target.vocab_size, order, sharp)
        self._mix = mix
        self._temperature = temperature
        self._top_k = top_k
        self._strays = strays
        self._memory = CheckedMemory(0, 1)
        self._nodes: dict[tuple[int, int], _Node] = {}

    @property
    def vocabulary(self) -> None:
        """Laws are over all of it."""

    @property
    def vocab_size(self) -> int:
        """The target's."""
        return self._target.vocab_size

    @property
    def max_model_len(self) -> int:
        """The target's."""
        return self._target.max_model_len

    @property
    def taps(self) -> tuple[int, ...]:
        """None: it looks at tokens only."""
        return ()

    @property
    def keeps_state(self) -> bool:
        """Memory that checks itself."""
        return True

    @property
    def order(self) -> int:
        """Tokens at the end of a context that its law depends on."""
        return max(self._target.order, self._other.order)

    def bind(self, num_blocks: int, block_tokens: int, target: Model | None = None) -> None:
        """Take fresh memory. Its laws depend on tokens alone, and a target bound beside it is not looked at."""
        del target
        self._memory = CheckedMemory(num_blocks, block_tokens)
        self._nodes = {}

    def feed(self, chunks: Sequence[Chunk]) -> None:
        """Write tokens that are kept, and forget all drafted nodes.

        Raises KvMismatch where what is before them is not there, ValueError for a tree.
        """
        for i, chunk in enumerate(chunks):
            if chunk.parents is not None:
                raise ValueError(f"chunk {i} has parents: a proposer is fed chains")
        self._memory.extend(chunks)
        self._nodes = {}

    def laws(self, asks: Sequence[Ask]) -> F64:
        """Give the law after each node asked for, float64 `[nodes, vocab_size]`.

        Raises KvMismatch for a context that was not fed, or a node whose parent was not asked for since the last
        `feed`, or grew from another context.
        """
        ends = self._memory.read([(ask.table, ask.length) for ask in asks])
        sums = self._memory.sums_at(ends).tolist()
        newest_first = [tokens.tolist() for tokens, _ in islice(self._memory.walk_back(ends), self.order)]
        tails = []
        for i, ask in enumerate(asks):
            context = [tokens[i] for tokens in newest_first[: ask.length]][::-1]
            tails += [context + self._run(ask, node, sums[i]) for node in ask.frontier]
        return self.laws_after(tails)

    def laws_after(self, contexts: Sequence[Sequence[int]]) -> F64:
        """Give the law after each context, of which the last `order` tokens are enough, from the tokens alone."""
        mix = self._mix if not self._strays else self._shares(contexts)
        mixed = mix * _rows(self._target, contexts) + (1 - mix) * _rows(self._other, contexts)
        mixed /= self._temperature
        laws: F64 = np.exp(mixed - mixed.max(axis=1, keepdims=True, initial=-np.inf))
        laws /= laws.sum(axis=1, keepdims=True)
        if self._top_k:
            worst = np.argsort(-mixed, axis=1, kind="stable")[:, self._top_k :]
            np.put_along_axis(laws, worst, 0.0, axis=1)
            laws /= laws.sum(axis=1, keepdims=True)
        return laws

    def _shares(self, contexts: Sequence[Sequence[int]]) -> F64:
        """Give the target's share after each context, `[n, 1]`: none where a draw that the context selects says so."""
        draws = [Pcg32(self._other.hash_of(context[-self.order :]), 1).next_f64() for context in contexts]
        return np.where(np.array(draws) < self._strays, 0.0, self._mix)[:, None]

    def _run(self, ask: Ask, node: int, end: int) -> list[int]:
        """Run a drafted node after its ancestors, and give the tokens on the path to it; `end` is the context's sum."""
        if node < 0:
            return []
        parent, token = ask.parents[node], ask.tokens[node]
        if parent >= 0 and (ask.place, parent) not in self._nodes:
            raise KvMismatch(f"place {ask.place}: node {node} hangs on node {parent}, which has not been asked for")
        before = self._nodes[ask.place, parent].checksum if parent >= 0 else end
        self._nodes[ask.place, node] = _Node(token, parent, chained(before, token))
        path = []
        at = node
        while at >= 0:
            held = self._nodes[ask.place, at]
            path.append(held.token)
            at = held.parent
        path.reverse()
        for held_token in path:
            end = chained(end, held_token)
        if end != self._nodes[ask.place, node].checksum:
            raise KvMismatch(f"place {ask.place}: the ancestors of node {node} grew from another context")
        return path


class _Node(NamedTuple):
    token: int
    parent: int
    checksum: int


class LoneFakeProposer:
    """A `FakeProposer`'s laws for the one-sequence loop, with no memory at all."""

    def __init__(self, proposer: FakeProposer) -> None:
        self._proposer = proposer
        self._context: list[int] = []

    def begin(self, prompt: Sequence[int], output: Sequence[int], params: SamplingParams) -> None:
        """Start a tree after `prompt + output`; the laws have parameters of their own."""
        del params
        order = self._proposer.order
        self._context = [*prompt[-order:], *output[-order:]][-order:]

    def laws(self, tokens: Sequence[int], parents: Sequence[int], frontier: Sequence[int]) -> F64:
        """Give the law after each node of the frontier, -1 being the context, float64 `[len(frontier), V]`."""
        return self._proposer.laws_after([self._context + _path(tokens, parents, node) for node in frontier])


def _path(tokens: Sequence[int], parents: Sequence[int], node: int) -> list[int]:
    path = []
    while node >= 0:
        path.append(tokens[node])
        node = parents[node]
    return path[::-1]


def _rows(model: FakeModel, contexts: Sequence[Sequence[int]]) -> F64:
    return model.draw([model.hash_of(context[-model.order :]) for context in contexts]).astype(np.float64)

"""What models draft for recorded requests: run over their tokens, and replayed as drafts of text are.

The recorded tokens are the target's choices, so the context of every round is known beforehand. At each position the
proposer drafts as it would in the engine, from its own state and from the hidden states that the target has of the
recorded tokens. A chain is asked for only as far as it is right: what comes after a wrong token is never accepted.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from models.drafting import DraftOrder, draft
from models.protocol import Ask, Chunk, Model, Proposer
from plans.errors import PlanError
from plans.gain import Cost
from plans.logs import Recording
from plans.methods import MAX_SIZE, Config
from plans.replay import NUM_LENGTHS, Rounds, count_rounds
from spec import Draft, Drafted, Dynamic, Pcg32, SamplingParams
from spec.children import best_tokens

TREE_TOP = 4
TREE_DEPTH = 4

#   drafted nodes may lie in what is left of a context's last block, where the recorded tokens that follow are: with
#   blocks of one token there is nothing left
_BLOCK_TOKENS = 1
_PLACES = 16
_PASS_TOKENS = 256
_LAW = SamplingParams(temperature=1.0)


class ModelMethod(NamedTuple):
    """A model, or heads of the target, that draft."""

    name: str
    about: str
    draft: Draft
    file: str
    proposer: Proposer
    max_depth: int
    """Most tokens of a chain, or layers of a tree."""
    first: Cost
    """What the first layer of drafts takes, a row of each sequence,"""
    later: Cost
    """and a later one: a row of each, or `top`."""
    target: str = "TARGET"
    """The file of the model that it drafts for."""
    top: int = 1
    """A chain; more are a tree, of which so many nodes of each layer are followed, with as many children."""

    def draft_s(self, size: int, batch: int, context: float) -> float:
        """Give the seconds that drafts of at most `size` tokens take for a batch."""
        first = self.first.pass_s(np.array([float(batch)]), batch, context)[0]
        later = self.later.pass_s(np.array([float(batch * self.top)]), batch, context)[0]
        return float(first + (min(size, self.max_depth) - 1) * later)


class ModelReplay:
    """Replays recordings with drafts of models; `target` keeps the hidden states that their proposers read."""

    def __init__(self, target: Model, methods: Sequence[ModelMethod], sizes: Sequence[int]) -> None:
        self.configs = [Config(method.name, size) for method in methods for size in sizes]
        self._target = target
        self._methods = list(methods)
        self._sizes = list(sizes)
        self._longest = min([target.max_model_len, *(m.proposer.max_model_len for m in methods)]) - MAX_SIZE
        self._logprob = 0.0
        self._num_best = self._num_tokens = 0

    def can_take(self, recording: Recording) -> bool:
        """Tell whether the models have places enough; and to an empty context nothing can be drafted."""
        return recording.num_prompt > 0 and len(recording.tokens) <= self._longest

    @property
    def best_share(self) -> float:
        """Of the recorded tokens so far: those that are the target's best."""
        return self._num_best / max(1, self._num_tokens)

    @property
    def mean_logprob(self) -> float:
        """Of the recorded tokens so far, to the target."""
        return self._logprob / max(1, self._num_tokens)

    def check(self) -> None:
        """Raise PlanError where the recorded tokens are less likely to the target than any token by chance."""
        if self.mean_logprob < -math.log(self._target.vocab_size):
            raise PlanError(
                f"the recorded ids are as good as noise to the target: {-self.mean_logprob:.1f} nats a token, and "
                f"{math.log(self._target.vocab_size):.1f} where each of its {self._target.vocab_size:,} tokens is as "
                "likely; the log must have ids of the target's own tokenizer, or text"
            )

    def rounds(self, recording: Recording) -> Rounds:
        """Replay one that can be taken: rounds by tokens drafted and accepted, for each method and size."""
        ids = recording.tokens.tolist()
        self._target.bind(len(ids), _BLOCK_TOKENS)
        self._read(ids, recording.num_prompt)
        found = np.zeros((len(self.configs), 2, NUM_LENGTHS), np.int64)
        fed: Proposer | None = None
        for i, method in enumerate(self._methods):
            if method.proposer is not fed:  # the chain and the tree of one come one after the other
                fed = method.proposer
                self._feed(fed, ids)
            at = i * len(self._sizes)
            if method.top == 1:
                most = min(self._sizes[-1], method.max_depth)
                accepted = self._chains(method.proposer, ids, recording.num_prompt, most)
                for j, size in enumerate(self._sizes):
                    count_rounds([min(size, most)] * len(accepted), accepted, size, found[at + j])
                continue
            trees = self._trees(method, ids, recording.num_prompt)
            for j, size in enumerate(self._sizes):
                drafted = [min(size, tree.num_nodes) for tree in trees]
                count_rounds(drafted, [sum(rank < size for rank in tree.ranks) for tree in trees], size, found[at + j])
        return found

    def _read(self, ids: list[int], num_prompt: int) -> None:
        """Run the target over a text, and see what it thinks of the answer."""
        table = range(len(ids))
        for start in range(0, len(ids), _PASS_TOKENS):
            end = min(start + _PASS_TOKENS, len(ids))
            #   the row of a token gives the law of the next
            num_rows = max(0, end - max(start, num_prompt - 1))
            rows = self._target.forward([Chunk(ids[start:end], start, table[:end], num_rows)])
            nexts = np.array(ids[end - num_rows + 1 : end + 1], np.intp)
            rows = rows[: len(nexts)].astype(np.float64)
            if not len(nexts):
                continue
            best = rows.max(axis=1)
            chosen = rows[np.arange(len(nexts)), nexts]
            self._num_best += int((chosen == best).sum())
            self._logprob += float((chosen - best - np.log(np.exp(rows - best[:, None]).sum(axis=1))).sum())
            self._num_tokens += len(nexts)

    def _feed(self, proposer: Proposer, ids: list[int]) -> None:
        proposer.bind(len(ids), _BLOCK_TOKENS, self._target)
        for start in range(0, len(ids), _PASS_TOKENS):
            end = min(start + _PASS_TOKENS, len(ids))
            proposer.feed([Chunk(ids[start:end], start, range(end), 0)])

    def _chains(self, proposer: Proposer, ids: list[int], num_prompt: int, depth: int) -> list[int]:
        """Give of each position of the answer how many tokens of a chain of `depth` are right."""
        accepted = []
        for first in range(num_prompt, len(ids), _PLACES):
            lengths = range(first, min(first + _PLACES, len(ids)))
            #   fed once more, what ends a context is what its draft begins after
            proposer.feed([Chunk([ids[n - 1]], n - 1, range(n), 1) for n in lengths])
            right = [0] * len(lengths)
            is_open = list(range(len(lengths)))
            for layer in range(depth):
                is_open = [place for place in is_open if right[place] == layer and lengths[place] + layer < len(ids)]
                if not is_open:
                    break
                laws = proposer.laws([_ask(place, lengths[place], layer, ids) for place in is_open])
                for place, law in zip(is_open, laws, strict=True):
                    (word,) = best_tokens(law, 1)
                    token = word if proposer.vocabulary is None else int(proposer.vocabulary.ids[word])
                    right[place] += token == ids[lengths[place] + layer]
            accepted += right
        return accepted

    def _trees(self, method: ModelMethod, ids: list[int], num_prompt: int) -> list["_Tree"]:
        """Grow the largest tree at each position of the answer: a smaller one is its best nodes."""
        shape = Dynamic(self._sizes[-1], method.top, method.max_depth)
        rng = Pcg32(0, 0)  # the best children are taken, and none drawn
        trees = []
        for first in range(num_prompt, len(ids), _PLACES):
            lengths = range(first, min(first + _PLACES, len(ids)))
            orders = [
                DraftOrder([ids[n - 1]], n - 1, range(n), shape, "top", method.max_depth, rng, _LAW) for n in lengths
            ]
            drafts = draft(method.proposer, orders, _BLOCK_TOKENS)
            trees += [_along(drafted, ids[n:]) for drafted, n in zip(drafts, lengths, strict=True)]
        return trees


class _Tree(NamedTuple):
    """A tree, and of its nodes that the text goes down: how many are worth more than each."""

    num_nodes: int
    ranks: list[int]


def _along(drafted: Drafted, text: Sequence[int]) -> _Tree:
    tree, values = drafted.tree, drafted.values
    assert values is not None, "children are the best"
    depths = list(tree.depths)
    order = sorted(range(len(tree.tokens)), key=lambda node: (-values[node], depths[node]))
    rank_of = {node: rank for rank, node in enumerate(order)}
    ranks: list[int] = []
    at = -1
    for node, (token, parent) in enumerate(zip(tree.tokens, tree.parents, strict=True)):
        #   a node's children come after it
        if parent == at and len(ranks) < len(text) and token == text[len(ranks)]:
            at = node
            ranks.append(rank_of[node])
    return _Tree(len(tree.tokens), ranks)


def _ask(place: int, length: int, layer: int, ids: list[int]) -> Ask:
    """Ask what comes after `layer` drafted tokens that are right."""
    return Ask(place, range(length), length, ids[length : length + layer], range(-1, layer - 1), [layer - 1], _LAW)

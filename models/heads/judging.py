"""How often heads are right: their drafts at many places of texts against what the texts say there."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.heads.features import Text
from models.protocol import Ask, Chunk, Model, Proposer
from spec import SamplingParams

_BLOCK_TOKENS = 16
_PLACES = 16
_LAW = SamplingParams(temperature=1.0)


class Judgement(NamedTuple):
    """What heads said at places of a text, depth by depth, the drafts before taken to be right.

    All `[places, depths]`; the last places of a text have no token for the deepest, and there they are not `is_there`.
    """

    ranks: NDArray[np.intp]
    """Of the text's own token among those that the heads thought best: 0 is the first, 3 is none of the first three."""
    chances: NDArray[np.float64]
    """That the heads gave to their best token."""
    is_there: NDArray[np.bool_]

    @classmethod
    def join(cls, parts: Iterable["Judgement"]) -> "Judgement":
        """Give one of all places."""
        return cls(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def chain(self) -> list[float]:
        """Give by depth the share of right best tokens among places where all before were right too."""
        shares = []
        is_open = np.ones(len(self.ranks), np.bool_)
        for hits, is_there in zip((self.ranks == 0).T, self.is_there.T, strict=True):
            is_open &= is_there
            shares.append(float((hits & is_open).sum() / max(1, is_open.sum())))
            is_open &= hits
        return shares

    def top(self, num_best: int) -> list[float]:
        """Give by depth the share of places where the token was among the best."""
        hits = (self.ranks < num_best) & self.is_there
        shares: list[float] = (hits.sum(axis=0) / np.maximum(1, self.is_there.sum(axis=0))).tolist()
        return shares


def judge(
    proposer: Proposer,
    model: Model,
    texts: Iterable[Text],
    depth: int,
    *,
    every: int = 1,
) -> Judgement:
    """Let heads draft at every so many places of the texts' answers; `model` keeps what they read."""
    parts: list[Judgement] = []
    for text in texts:
        ids = list(text.ids[: model.max_model_len])
        table = list(range(-(-len(ids) // _BLOCK_TOKENS)))
        model.bind(len(table), _BLOCK_TOKENS)
        model.forward([Chunk(ids, 0, table, 0)])
        proposer.bind(len(table), _BLOCK_TOKENS, model)
        proposer.feed([Chunk(ids, 0, table, 0)])
        lengths = range(max(1, text.num_prompt), len(ids), every)
        for first in range(0, len(lengths), _PLACES):
            parts.append(_judge_places(proposer, ids, table, lengths[first : first + _PLACES], depth))
    if not parts:
        raise ValueError("no text has an answer to judge by")
    return Judgement.join(parts)


def _judge_places(
    proposer: Proposer, ids: list[int], table: list[int], lengths: Sequence[int], depth: int
) -> Judgement:
    tables = [table[: -(-length // _BLOCK_TOKENS)] for length in lengths]
    #   fed once more, what ends a context is what its draft begins after
    proposer.feed([Chunk([ids[length - 1]], length - 1, of, 1) for length, of in zip(lengths, tables, strict=True)])
    ranks = np.full((len(lengths), depth), 3)
    chances = np.zeros((len(lengths), depth))
    is_there = np.array([[length + layer < len(ids) for layer in range(depth)] for length in lengths])
    for layer in range(depth):
        places = np.flatnonzero(is_there[:, layer]).tolist()
        if not places:
            break
        laws = proposer.laws(
            [
                Ask(
                    place,
                    tables[place],
                    lengths[place],
                    ids[lengths[place] : lengths[place] + layer],
                    range(-1, layer - 1),
                    [layer - 1],
                    _LAW,
                )
                for place in places
            ]
        )
        if proposer.vocabulary is not None:
            laws = np.array([proposer.vocabulary.widen(law) for law in laws])
        wanted = np.array([ids[lengths[place] + layer] for place in places])
        ranks[places, layer] = np.minimum(3, (laws > laws[np.arange(len(places)), wanted][:, None]).sum(axis=1))
        chances[places, layer] = laws.max(axis=1)
    return Judgement(ranks, chances, is_there)

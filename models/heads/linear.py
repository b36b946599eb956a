"""The proposer over linear heads."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from models.heads.parts import Beside, Build, Map, OfTarget, embedding_of, output_of, unit
from models.heads.weights import LinearHeads
from models.laws import laws_of
from models.protocol import Ask, Chunk, Model
from models.weights import F32, LlamaConfig, LlamaWeights


class LinearProposer(OfTarget):
    """A `Proposer` that maps features and an embedding to the target's next normed final state, and on from there.

    It keeps nothing of a context: the target's hidden states are all there is.
    """

    kind = "linear"
    max_depth: int | None = None
    """Layers that it can draft."""

    def __init__(self, heads: LinearHeads, config: LlamaConfig, weights: LlamaWeights, build: Build) -> None:
        """Take heads for the target of this shape and these weights, of which embeddings and logits may come."""
        super().__init__(heads, config)
        self._embedding = embedding_of(None, weights)
        self._first, self._later = Map(heads.first, build), Map(heads.later, build)
        self._output = build(output_of(heads.words, weights))
        self._ids = heads.words.ids
        self._beside: Beside | None = None
        self._ends: list[int] = []
        self._states: dict[tuple[int, int], F32] = {}

    @property
    def keeps_state(self) -> bool:
        """The target's hidden states are all there is."""
        return False

    def bind(self, num_blocks: int, block_tokens: int, target: Model) -> None:
        """Stand beside a target. Raises ValueError for one that is not the heads' or keeps other states."""
        del num_blocks
        self._beside = Beside(target, self._config, self._taps, block_tokens)
        self._ends, self._states = [], {}

    def feed(self, chunks: Sequence[Chunk]) -> None:
        """Remember where drafts start, and forget those before."""
        self._ends = [chunk.ids[-1] for chunk in chunks if chunk.num_rows]
        self._states = {}

    def laws(self, asks: Sequence[Ask]) -> NDArray[np.float64]:
        """Give the law after each node asked for, float64 `[nodes, vocab_size]`."""
        nodes = [(ask, node) for ask in asks for node in ask.frontier]
        states = np.empty((len(nodes), self._config.dim), np.float32)
        roots, later = ([i for i, (_, node) in enumerate(nodes) if (node < 0) is is_root] for is_root in (True, False))
        if roots:
            states[roots] = self._after_contexts([nodes[i][0] for i in roots])
        if later:
            states[later] = self._after_nodes([nodes[i] for i in later])
        for (ask, node), state in zip(nodes, states, strict=True):
            self._states[ask.place, node] = state
        return laws_of(self._output(states), asks, self.vocab_size, self._ids)

    def _after_contexts(self, asks: Sequence[Ask]) -> F32:
        assert self._beside is not None, "bind comes first"
        features = self._beside.before([ask.table for ask in asks], [ask.length - 1 for ask in asks])
        tokens = [self._ends[ask.place] for ask in asks]
        return self._first(self._joined(features, tokens))

    def _after_nodes(self, nodes: Sequence[tuple[Ask, int]]) -> F32:
        parents = np.array([self._states[ask.place, ask.parents[node]] for ask, node in nodes])
        return self._later(self._joined(parents[:, None], [ask.tokens[node] for ask, node in nodes]))

    def _joined(self, states: F32, tokens: Sequence[int]) -> F32:
        """Join states `[n, parts, dim]` and the embedding of tokens, each part of unit size."""
        embedded = self._embedding.rows(np.array(tokens, np.int64))
        parts = np.concatenate([states, embedded[:, None]], axis=1)
        return unit(parts, self._config.norm_eps).reshape(len(tokens), -1)

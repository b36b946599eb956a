"""The proposer over EAGLE heads (Li et al., 2024, 2025)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.heads.eagle_layer import Attend, EagleLayer
from models.heads.parts import Beside, Build, Map, OfTarget, embedding_of, output_of
from models.heads.weights import EagleHeads
from models.laws import laws_of
from models.llama import rms_norm
from models.protocol import Ask, Chunk, Ints, Model
from models.weights import F32, LlamaConfig, LlamaWeights


class EagleProposer(OfTarget):
    """A `Proposer` that decodes pairs of a feature and the token after it, and on from there with its own outputs.

    A slot holds the pair of its own token and the feature of the one before, so that it depends on nothing that comes
    later. Slot 0 has no such pair, as in the papers: zeros stand for the feature where the context is one token, and no
    other slot sees it.
    """

    max_depth: int | None = None
    """Layers that it can draft."""

    def __init__(
        self, heads: EagleHeads, config: LlamaConfig, weights: LlamaWeights, build: Build, attend: Attend
    ) -> None:
        """Take heads for the target of this shape and these weights."""
        self.kind = heads.kind
        self._heads = heads
        super().__init__(heads, heads.words.ids, config)
        self._target_norm = weights.norm
        self._embedding = embedding_of(heads.embedding, weights)
        self._fuse = Map(heads.fuse, build)
        self._layer = EagleLayer(heads, build, attend)
        self._output = build(output_of(heads.words, weights))
        self._beside: Beside | None = None
        self._block_tokens = 1
        self._num_slots = 0
        self._roots: F32 = np.empty((0, config.dim), np.float32)
        self._nodes: dict[tuple[int, int], _Node] = {}

    @property
    def keeps_state(self) -> bool:
        """Keys and values of its own."""
        return True

    def bind(self, num_blocks: int, block_tokens: int, target: Model) -> None:
        """Take fresh memory beside a target. Raises ValueError for one that is not the heads' or keeps other states."""
        self._beside = Beside(target, self._config, self._taps, block_tokens)
        self._block_tokens = block_tokens
        self._num_slots = num_blocks * block_tokens
        self._layer = self._layer.fresh(self._num_slots)
        self._roots = self._roots[:0]
        self._nodes = {}

    def feed(self, chunks: Sequence[Chunk]) -> None:
        """Write the pairs of tokens that are kept, and run those that drafts start from."""
        self._nodes = {}
        tokens = [token for chunk in chunks for token in chunk.ids]
        positions = np.concatenate(
            [np.empty(0, np.intp), *(np.arange(chunk.start, chunk.start + len(chunk.ids)) for chunk in chunks)]
        )
        tables = [chunk.table for chunk in chunks for _ in chunk.ids]
        places = np.array(
            [self._place(table, slot) for table, slot in zip(tables, positions.tolist(), strict=True)], np.intp
        )
        assert self._beside is not None, "bind comes first"
        residual, x = self._inputs(self._fused(self._beside.before(tables, positions.tolist()), tokens), tokens)
        self._layer.keep(x, positions, places)
        ends = np.cumsum([len(chunk.ids) for chunk in chunks], dtype=np.intp) - 1
        last = ends[[chunk.num_rows > 0 for chunk in chunks]]
        seen = [self._seen(tables[i], int(positions[i]) + 1) for i in last.tolist()]
        self._roots = self._layer.run(residual[last], x[last], positions[last], seen)

    def laws(self, asks: Sequence[Ask]) -> NDArray[np.float64]:
        """Give the law after each node asked for, float64 `[nodes, words]`."""
        nodes = [(ask, node) for ask in asks for node in ask.frontier]
        states = np.empty((len(nodes), self._config.dim), np.float32)
        later = []
        for i, (ask, node) in enumerate(nodes):
            if node < 0:
                states[i] = self._roots[ask.place]
            else:
                later.append(i)
        if later:
            states[later] = self._run([nodes[i] for i in later])
        if self._heads.final_norm is not None:
            states = rms_norm(states, self._heads.final_norm, self._heads.config.norm_eps)
        return laws_of(self._output(states), asks, self.vocabulary)

    def _run(self, nodes: Sequence[tuple[Ask, int]]) -> F32:
        """Run drafted nodes after their parents."""
        before = [self._nodes.get((ask.place, ask.parents[node])) for ask, node in nodes]
        features = np.array(
            [
                self._roots[ask.place] if parent is None else parent.state
                for parent, (ask, _) in zip(before, nodes, strict=True)
            ]
        )
        tokens = [ask.tokens[node] for ask, node in nodes]
        residual, x = self._inputs(features if self.kind == "eagle3" else self._paired(features, tokens), tokens)
        first = self._num_slots + len(self._nodes)
        places = np.arange(first, first + len(nodes))
        paths = [
            (*(parent.path if parent else ()), place) for parent, place in zip(before, places.tolist(), strict=True)
        ]
        positions = np.array([ask.length - 1 + len(path) for (ask, _), path in zip(nodes, paths, strict=True)])
        self._layer.keep(x, positions, places)
        contexts = {ask.place: self._seen(ask.table, ask.length)[ask.length == 1 :] for ask, _ in nodes}
        seen = [np.array([*contexts[ask.place], *path]) for (ask, _), path in zip(nodes, paths, strict=True)]
        states = self._layer.run(residual, x, positions, seen)
        for (ask, node), path, state in zip(nodes, paths, states, strict=True):
            self._nodes[ask.place, node] = _Node(state, path)
        return states

    def _place(self, table: Sequence[int], slot: int) -> int:
        return table[slot // self._block_tokens] * self._block_tokens + slot % self._block_tokens

    def _seen(self, table: Sequence[int], length: int) -> Ints:
        """Give the places of the pairs of a context: of slots `1 .. length - 1`, or of the only one there is."""
        slots = np.arange(min(1, length - 1), length)
        size = self._block_tokens
        return np.array(table, np.intp)[slots // size] * size + slots % size

    def _fused(self, features: F32, tokens: Sequence[int]) -> F32:
        """Join the target's hidden states `[n, taps, dim]` to what the layer adds to."""
        if self.kind == "eagle3":
            return self._fuse(features.reshape(len(features), -1))
        return self._paired(rms_norm(features[:, 0], self._target_norm, self._config.norm_eps), tokens)

    def _paired(self, features: F32, tokens: Sequence[int]) -> F32:
        return self._fuse(np.concatenate([self._embedded(tokens), features], axis=1))

    def _inputs(self, residual: F32, tokens: Sequence[int]) -> tuple[F32, F32]:
        """Give what the layer adds to, and what it attends with."""
        heads, eps = self._heads, self._heads.config.norm_eps
        if heads.input_norm is None:
            return residual, residual
        if heads.feature_norm is None:
            return residual, rms_norm(residual, heads.input_norm, eps)
        embedded = rms_norm(self._embedded(tokens), heads.input_norm, eps)
        return residual, np.concatenate([embedded, rms_norm(residual, heads.feature_norm, eps)], axis=1)

    def _embedded(self, tokens: Sequence[int]) -> F32:
        return self._embedding.rows(np.array(tokens, np.int64))


class _Node(NamedTuple):
    """A drafted node that has been run: its output, and where the path to it lies in scratch."""

    state: F32
    path: tuple[int, ...]

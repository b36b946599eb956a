"""The proposer over linear heads."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from models.heads.parts import Beside, Build, Map, OfTarget, embedding_of, unit
from models.heads.weights import Affine, LinearHeads
from models.laws import laws_of
from models.protocol import Ask, Chunk, Model
from models.weights import F32, LlamaConfig, LlamaWeights, Matrix


class RunMaps(Protocol):
    """Both maps of `LinearHeads`, 0 and 1, and the logits after what they give."""

    def __call__(self, which: int, parts: F32) -> tuple[F32, F32]:
        """From vectors float32 `[n, parts, dim]`, brought to unit size, to states `[n, dim]` and `[n, words]`."""


class Maps:
    """The same with any product of rows."""

    def __init__(self, maps: Sequence[Affine], output: Matrix, norm_eps: float, build: Build) -> None:
        self._maps = [Map(affine, build) for affine in maps]
        self._output = build(output)
        self._norm_eps = norm_eps

    def __call__(self, which: int, parts: F32) -> tuple[F32, F32]:
        """As in `RunMaps`."""
        states = self._maps[which](unit(parts, self._norm_eps).reshape(len(parts), -1))
        return states, self._output(states)


class LinearProposer(OfTarget):
    """A `Proposer` that maps features and an embedding to the target's next normed final state, and on from there.

    It keeps nothing of a context: the target's hidden states are all there is.
    """

    kind = "linear"
    max_depth: int | None = None
    """Layers that it can draft."""

    def __init__(self, heads: LinearHeads, config: LlamaConfig, weights: LlamaWeights, run_maps: RunMaps) -> None:
        """Take heads for the target of this shape and these weights, of which embeddings come, and what runs them."""
        super().__init__(heads, heads.words.ids, config)
        self._embedding = embedding_of(None, weights)
        self._run_maps = run_maps
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
        """Give the law after each node asked for, float64 `[nodes, words]`."""
        nodes = [(ask, node) for ask in asks for node in ask.frontier]
        words = self.vocabulary
        logits = np.empty((len(nodes), self.vocab_size if words is None else len(words.ids)), np.float32)
        roots, later = ([i for i, (_, node) in enumerate(nodes) if (node < 0) is is_root] for is_root in (True, False))
        for which, places in enumerate((roots, later)):
            if not places:
                continue
            of_kind = [nodes[i] for i in places]
            parts = self._after_nodes(of_kind) if which else self._after_contexts([ask for ask, _ in of_kind])
            states, logits[places] = self._run_maps(which, parts)
            self._states.update(zip([(ask.place, node) for ask, node in of_kind], states, strict=True))
        return laws_of(logits, asks, words)

    def _after_contexts(self, asks: Sequence[Ask]) -> F32:
        assert self._beside is not None, "bind comes first"
        features = self._beside.before([ask.table for ask in asks], [ask.length - 1 for ask in asks])
        return self._joined(features, [self._ends[ask.place] for ask in asks])

    def _after_nodes(self, nodes: Sequence[tuple[Ask, int]]) -> F32:
        parents = np.array([self._states[ask.place, ask.parents[node]] for ask, node in nodes])
        return self._joined(parents[:, None], [ask.tokens[node] for ask, node in nodes])

    def _joined(self, states: F32, tokens: Sequence[int]) -> F32:
        """Join states `[n, parts, dim]` and the embedding of tokens."""
        embedded = self._embedding.rows(np.array(tokens, np.int64))
        return np.concatenate([states, embedded[:, None]], axis=1)

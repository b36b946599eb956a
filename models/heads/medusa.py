"""The proposer over Medusa heads (Cai et al., 2024)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from models.heads.parts import Beside, Build, Map, OfTarget, Product, depth_of, output_of, silu
from models.heads.weights import MedusaHeads, Words
from models.laws import laws_of
from models.llama import rms_norm
from models.protocol import Ask, Chunk, Model
from models.weights import F32, LlamaConfig, LlamaWeights


class MedusaProposer(OfTarget):
    """A `Proposer` whose law after a node depends on the node's depth and the context's last feature, not on its path.

    A draft is made before the target has run the context's last token, so that the feature is that of the token
    before: head 1 gives the law after the context, head `d + 1` that after nodes of depth `d`. It keeps nothing.
    """

    kind = "medusa"

    def __init__(self, heads: MedusaHeads, config: LlamaConfig, weights: LlamaWeights, build: Build) -> None:
        """Take heads for the target of this shape and these weights."""
        super().__init__(heads, heads.ids, config)
        self._norm = weights.norm
        self._blocks = [[Map(block, build) for block in blocks] for blocks in heads.blocks]
        self._outputs: list[Product] = []
        shared = None
        for output in heads.outputs:
            product = shared if output is None else None
            product = product or build(output_of(Words(heads.ids, output), weights))
            shared = product if output is None else shared
            self._outputs.append(product)
        self._beside: Beside | None = None

    @property
    def max_depth(self) -> int:
        """Layers that it can draft: one a head."""
        return len(self._blocks)

    @property
    def keeps_state(self) -> bool:
        """The target's hidden states are all there is."""
        return False

    def bind(self, num_blocks: int, block_tokens: int, target: Model) -> None:
        """Stand beside a target. Raises ValueError for one that is not the heads' or keeps other states."""
        del num_blocks
        self._beside = Beside(target, self._config, self.taps, block_tokens)

    def feed(self, chunks: Sequence[Chunk]) -> None:
        """Do nothing: the target's hidden states are all there is."""

    def laws(self, asks: Sequence[Ask]) -> NDArray[np.float64]:
        """Give the law after each node asked for, float64 `[nodes, words]`.

        Raises ValueError for a node that is deeper than there are heads.
        """
        nodes = [(ask, depth_of(ask, node)) for ask in asks for node in ask.frontier]
        width = self.vocab_size if self.vocabulary is None else len(self.vocabulary.ids)
        logits = np.empty((len(nodes), width), np.float32)
        for depth in {depth for _, depth in nodes}:
            if depth >= self.max_depth:
                raise ValueError(
                    f"a law is asked for after {depth} drafted tokens: {self.max_depth} heads draft as many"
                )
            of_depth = [i for i, (_, own) in enumerate(nodes) if own == depth]
            alone = {nodes[i][0].place: nodes[i][0] for i in of_depth}
            rows = dict(zip(alone, self._run(depth, list(alone.values())), strict=True))
            logits[of_depth] = [rows[nodes[i][0].place] for i in of_depth]
        return laws_of(logits, asks, self.vocabulary)

    def _run(self, head: int, asks: Sequence[Ask]) -> F32:
        """Give a head's logits, a row for each context."""
        assert self._beside is not None, "bind comes first"
        features = self._beside.before([ask.table for ask in asks], [ask.length - 1 for ask in asks])
        x = rms_norm(features[:, 0], self._norm, self._config.norm_eps)
        for block in self._blocks[head]:
            x = x + silu(block(x))
        return self._outputs[head](x)

"""What the proposers with heads are put together from."""

from collections.abc import Callable, Sequence

import numpy as np

from models.heads.weights import Affine, Heads, Words, decode_bytes, taps_of
from models.protocol import Ask, Ints, Model, TappedModel
from models.weights import F32, LlamaConfig, LlamaWeights, Matrix
from spec import DraftVocabulary

Product = Callable[[F32], F32]
Build = Callable[[Matrix], Product]
"""What makes products of the matrices of heads."""


class OfTarget:
    """What proposers with heads have from the target that the heads are for."""

    def __init__(self, heads: Heads, words: Ints | None, config: LlamaConfig) -> None:
        self._config = config
        self._vocabulary = None if words is None else DraftVocabulary(np.sort(words), config.vocab_size)
        self._taps = taps_of(heads, config.num_layers)

    @property
    def vocab_size(self) -> int:
        """The target's."""
        return self._config.vocab_size

    @property
    def vocabulary(self) -> DraftVocabulary | None:
        """The heads' own, where they have one."""
        return self._vocabulary

    @property
    def max_model_len(self) -> int:
        """The target's."""
        return self._config.max_model_len

    @property
    def taps(self) -> tuple[int, ...]:
        """The hidden states that it reads."""
        return self._taps


class Beside:
    """The target that heads stand beside, and its hidden states."""

    def __init__(self, target: Model, config: LlamaConfig, taps: Sequence[int], block_tokens: int) -> None:
        """Raise ValueError for a target that is not the one of the heads or does not keep what they read."""
        if target.vocab_size != config.vocab_size:
            raise ValueError(f"the heads are for {config.vocab_size} tokens: the target has {target.vocab_size}")
        if not isinstance(target, TappedModel):
            raise ValueError(f"{type(target).__name__} keeps no hidden states: heads draft from them")
        none = np.empty(0, np.intp)
        kept = target.features(none, none).shape[1:]
        if kept != (len(taps), config.dim):
            raise ValueError(
                f"the target keeps {kept} of every slot: the heads read {len(taps)} states of {config.dim}"
            )
        self._target = target
        self._block_tokens = block_tokens

    def before(self, tables: Sequence[Sequence[int]], slots: Sequence[int]) -> F32:
        """Read the states of the slots before these, each in its table: `[n, taps, dim]`, zeros before the first."""
        size = self._block_tokens
        at = np.array([max(slot - 1, 0) for slot in slots], np.intp)
        blocks = np.array([table[slot // size] for table, slot in zip(tables, at.tolist(), strict=True)], np.intp)
        states = self._target.features(blocks, at % size)
        states[np.array(slots, np.intp) == 0] = 0
        return states


class Map:
    """An affine map of rows."""

    def __init__(self, affine: Affine, build: Build) -> None:
        self._product = build(affine.weight)
        self._bias = affine.bias

    def __call__(self, rows: F32) -> F32:
        """From `[n, inputs]` to `[n, outputs]`."""
        out = self._product(rows)
        return out if self._bias is None else out + self._bias


def embedding_of(own: Matrix | None, weights: LlamaWeights) -> Matrix:
    """Give the matrix of embeddings: the heads' own, or the target's."""
    chosen = weights.embedding if own is None else own
    return Matrix(chosen.data, chosen.blocks, decode_bytes) if chosen.blocks == "Q8_0" else chosen


def output_of(words: Words, weights: LlamaWeights) -> Matrix:
    """Give the matrix that makes logits of the draft vocabulary, by rising id."""
    if words.output is not None:
        return words.output if words.ids is None else words.output.reordered(np.argsort(words.ids))
    whole = weights.output or weights.embedding
    return whole if words.ids is None else whole.reordered(np.sort(words.ids))


def unit(rows: F32, eps: float) -> F32:
    """Divide vectors, the last axis, by their root mean square."""
    scaled: F32 = rows / np.sqrt(np.mean(rows * rows, axis=-1, keepdims=True) + np.float32(eps))
    return scaled


def silu(x: F32) -> F32:
    """Give `x * sigmoid(x)`."""
    with np.errstate(over="ignore"):  # exp(-x) of infinity is a gate of zero
        gated: F32 = x / (1 + np.exp(-x))
    return gated


def depth_of(ask: Ask, node: int) -> int:
    """Count the drafted nodes on the path to a node, itself among them."""
    depth = 0
    while node >= 0:
        node, depth = ask.parents[node], depth + 1
    return depth

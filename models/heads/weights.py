"""What draft heads are made of, by kind; matrices may be floats of any width or blocks of 8 bits."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.paged_kv import checked_taps
from models.protocol import Ints
from models.weights import F32, LlamaConfig, Matrix

BLOCK_INPUTS = 32
_BLOCK_BYTES = BLOCK_INPUTS + 2  # a half-precision scale and a byte for each input


class Affine(NamedTuple):
    """`weight @ x + bias`."""

    weight: Matrix
    bias: F32 | None = None


@dataclass(frozen=True)
class Words:
    """The draft vocabulary.

    `ids` `[words]` are its words as target ids, each once; None is the target's vocabulary. `output` `[words, dim]`
    gives their logits; None is the rows that the target has for them.
    """

    ids: Ints | None = None
    output: Matrix | None = None


@dataclass(frozen=True)
class LinearHeads:
    """Two affine maps to the target's normed final hidden state of a token, which its output matrix makes logits of.

    `first` takes `[features of the token before, embedding of the token]`, `[dim, (taps + 1) * dim]`, and gives the
    state after a context; `later` takes `[state of its parent, embedding of the token]`, `[dim, 2 * dim]`, and gives
    that after a drafted node. Each part of an input, `dim` numbers, is divided by its root mean square.
    """

    kind: ClassVar[str] = "linear"
    taps: tuple[int, ...]
    first: Affine
    later: Affine
    words: Words = Words()


@dataclass(frozen=True)
class MedusaHeads:
    """Heads on one hidden state, of which head `i` gives the law of the token `i + 2` places on (Cai et al., 2024).

    A head is a row of residual blocks `x + silu(weight @ x + bias)` and an output matrix, None for the target's.
    """

    kind: ClassVar[str] = "medusa"
    blocks: tuple[tuple[Affine, ...], ...]
    """`[heads][blocks]`, of each the weight `[dim, dim]`."""
    outputs: tuple[Matrix | None, ...]
    """`[heads]`, of each `[words, dim]`."""
    ids: Ints | None = None
    """As in `Words`."""


@dataclass(frozen=True)
class EagleHeads:
    """One decoder layer over pairs of a feature and the token after it.

    `eagle` (Li et al., 2024; EAGLE-2 has the same weights): `fuse` `[dim, 2 dim]` joins the token's embedding and the
    target's normed final state, and what the layer makes of it stands for one. `eagle3` (Li et al., 2025): `fuse`
    `[dim, 3 dim]` joins three hidden states; the layer attends with `[normed embedding, normed feature]`, and its own
    output, not normed, is the feature of the next token. Rows of `q` and `k` are in interleaved pairs, as
    `LlamaConfig` says.
    """

    kind: Literal["eagle", "eagle3"]
    config: LlamaConfig
    """Sizes of the one layer; its vocabulary is the target's."""
    fuse: Affine
    q: Matrix
    k: Matrix
    v: Matrix
    o: Matrix
    gate: Matrix
    up: Matrix
    down: Matrix
    mlp_norm: F32
    input_norm: F32 | None = None
    """Of what attends (`eagle`, which mostly has none), of the embedding (`eagle3`, always)."""
    feature_norm: F32 | None = None
    """`eagle3`"""
    final_norm: F32 | None = None
    """`eagle3`"""
    embedding: Matrix | None = None
    """None is the target's."""
    words: Words = Words()
    taps: tuple[int, ...] | None = None
    """`eagle3`: None is what its authors take, the inputs of layers 2, L / 2 and L - 3."""


Heads = LinearHeads | MedusaHeads | EagleHeads


def taps_of(heads: Heads, num_layers: int) -> tuple[int, ...]:
    """Give the hidden states that heads read of a target with so many layers, as `TappedModel` counts them.

    Raises ValueError for a target that does not have them.
    """
    match heads:
        case LinearHeads():
            taps = heads.taps
        case EagleHeads(kind="eagle3"):
            taps = heads.taps or (2, num_layers // 2, num_layers - 3)
        case _:
            taps = (num_layers,)
    return checked_taps(taps, num_layers)


def eight_bit(matrix: Matrix) -> Matrix:
    """Round weights to 8 bits, with a half-precision scale for every 32 inputs; raises ValueError for other widths."""
    dense = matrix.dense()
    num_outputs, num_inputs = dense.shape
    if num_inputs % BLOCK_INPUTS:
        raise ValueError(f"a matrix has {num_inputs} inputs: 8 bits need a multiple of {BLOCK_INPUTS}")
    blocks = dense.reshape(num_outputs, -1, BLOCK_INPUTS)
    scales = (np.abs(blocks).max(axis=2) / 127).astype(np.float16)
    divisors = np.where(scales > 0, scales, 1).astype(np.float32)[..., None]
    return join_bytes(np.clip(np.rint(blocks / divisors), -127, 127).astype(np.int8), scales)


def join_bytes(weights: NDArray[np.int8], scales: NDArray[np.float16]) -> Matrix:
    """Make a matrix of its weights and scales `[outputs, inputs / 32]`."""
    num_outputs, num_blocks = scales.shape
    data = np.empty((num_outputs, num_blocks, _BLOCK_BYTES), np.uint8)
    data[..., :2] = np.ascontiguousarray(scales)[..., None].view(np.uint8)
    data[..., 2:] = weights.reshape(num_outputs, num_blocks, BLOCK_INPUTS).view(np.uint8)
    return Matrix(data.reshape(num_outputs, -1), "Q8_0", decode_bytes)


def split_bytes(data: NDArray[Any]) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """Take the data of an 8-bit matrix apart: int8 `[outputs, inputs]`, float16 `[outputs, inputs / 32]`."""
    blocks = data.reshape(len(data), -1, _BLOCK_BYTES)
    weights = np.ascontiguousarray(blocks[..., 2:]).view(np.int8).reshape(len(data), -1)
    return weights, np.ascontiguousarray(blocks[..., :2]).view(np.float16)[..., 0]


def decode_bytes(data: NDArray[Any]) -> F32:
    """Give rows of an 8-bit matrix as floats."""
    weights, scales = split_bytes(data)
    blocks = weights.reshape(*scales.shape, BLOCK_INPUTS) * scales.astype(np.float32)[..., None]
    return blocks.reshape(weights.shape)

"""The shape of a llama and its weights, in memory as its file has them."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes of a llama-like model.

    RoPE turns interleaved pairs `(0, 1), (2, 3), ...` of a head; a loader whose file pairs halves reorders the
    rows of q and k.
    """

    vocab_size: int
    dim: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_dim: int
    max_model_len: int
    rope_base: float = 10000.0
    norm_eps: float = 1e-5
    rope_divisors: tuple[float, ...] = ()
    """By what the frequency of each pair is divided; none is by 1."""

    def __post_init__(self) -> None:
        """Refuse what no llama can be, naming the field."""
        for name in (
            "vocab_size",
            "dim",
            "num_layers",
            "num_heads",
            "num_kv_heads",
            "head_dim",
            "ffn_dim",
            "max_model_len",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)}: must be at least 1")
        for name in ("rope_base", "norm_eps"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} {getattr(self, name)}: must be a number > 0")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_heads {self.num_heads}: must be a multiple of num_kv_heads {self.num_kv_heads}")
        if self.head_dim % 2:
            raise ValueError(f"head_dim {self.head_dim}: must be even")
        if self.rope_divisors and (len(self.rope_divisors) != self.head_dim // 2 or not min(self.rope_divisors) > 0):
            raise ValueError(f"rope_divisors {self.rope_divisors}: must be {self.head_dim // 2} numbers > 0, or none")

    @property
    def q_dim(self) -> int:
        """Outputs of the query projection."""
        return self.num_heads * self.head_dim

    @property
    def kv_dim(self) -> int:
        """Outputs of the key projection, and of the value projection."""
        return self.num_kv_heads * self.head_dim

    def rope_table(self) -> tuple[F32, F32]:
        """Cosines and sines, float32 `[max_model_len, head_dim / 2]`."""
        frequencies = self.rope_base ** (-np.arange(0, self.head_dim, 2) / self.head_dim)
        if self.rope_divisors:
            frequencies = frequencies / np.array(self.rope_divisors)
        angles = np.arange(self.max_model_len)[:, None] * frequencies
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


@dataclass(frozen=True)
class Matrix:
    """A weight matrix `[num_outputs, num_inputs]`, a row per output, as floats or as GGUF blocks.

    `blocks` names the block format (`Q4_1`, `Q8_0`, ...) when `data` is uint8 blocks `[num_outputs, bytes of a row]`.
    `decode` turns rows that numpy cannot convert by itself into float32.
    """

    data: NDArray[Any]
    blocks: str | None = None
    decode: Callable[[NDArray[Any]], F32] | None = None

    @property
    def num_outputs(self) -> int:
        """Rows of the matrix."""
        return len(self.data)

    def rows(self, index: NDArray[np.int64] | slice) -> F32:
        """Give the chosen rows as float32."""
        chosen = self.data[index]
        if self.decode is None:
            return np.ascontiguousarray(chosen, np.float32)
        return self.decode(np.ascontiguousarray(chosen))

    def dense(self) -> F32:
        """Give the whole matrix as float32."""
        return self.rows(slice(None))

    def reordered(self, order: NDArray[np.int64]) -> "Matrix":
        """Give the matrix of these outputs: all of them in another order, or some."""
        return Matrix(self.data[order], self.blocks, self.decode)


@dataclass(frozen=True)
class LayerWeights:
    """One layer: `q`, `k`, `v` with an optional bias over their joined outputs."""

    attention_norm: F32
    q: Matrix
    k: Matrix
    v: Matrix
    o: Matrix
    ffn_norm: F32
    gate: Matrix
    up: Matrix
    down: Matrix
    qkv_bias: F32 | None = None


@dataclass(frozen=True)
class LlamaWeights:
    """All weights. `output` None means tied: the logits come from the embedding matrix."""

    embedding: Matrix
    layers: list[LayerWeights]
    norm: F32
    output: Matrix | None = None


def halves_to_pairs(num_heads: int, head_dim: int) -> NDArray[np.int64]:
    """Row order that turns a q or k whose RoPE pairs `(i, i + head_dim / 2)` into one with interleaved pairs."""
    within = np.arange(head_dim).reshape(2, head_dim // 2).T.reshape(-1)
    return (np.arange(num_heads)[:, None] * head_dim + within).reshape(-1)


def tiny_llama(seed: int, *, tied: bool = True) -> tuple[LlamaConfig, LlamaWeights]:
    """Make a seeded llama, with odd sizes on purpose: 3 query heads a kv head, head_dim apart from dim / heads."""
    config = LlamaConfig(
        vocab_size=97, dim=40, num_layers=2, num_heads=6, num_kv_heads=2, head_dim=10, ffn_dim=72, max_model_len=256
    )  # fmt: skip
    generator = np.random.default_rng(seed)

    def matrix(num_outputs: int, num_inputs: int) -> Matrix:
        scale = 1.5 / np.sqrt(num_inputs)
        return Matrix((generator.standard_normal((num_outputs, num_inputs)) * scale).astype(np.float32))

    def norm() -> F32:
        return (1 + 0.2 * generator.standard_normal(config.dim)).astype(np.float32)

    layers = [
        LayerWeights(
            attention_norm=norm(),
            q=matrix(config.q_dim, config.dim),
            k=matrix(config.kv_dim, config.dim),
            v=matrix(config.kv_dim, config.dim),
            o=matrix(config.dim, config.q_dim),
            ffn_norm=norm(),
            gate=matrix(config.ffn_dim, config.dim),
            up=matrix(config.ffn_dim, config.dim),
            down=matrix(config.dim, config.ffn_dim),
        )
        for _ in range(config.num_layers)
    ]
    output = None if tied else matrix(config.vocab_size, config.dim)
    return config, LlamaWeights(matrix(config.vocab_size, config.dim), layers, norm(), output)

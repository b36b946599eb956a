"""Weights from named tensors: every one that is needed is there and has its shape, and none is left unused."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.weights import F32, LayerWeights, LlamaConfig, LlamaWeights, Matrix, halves_to_pairs

_MOST_NAMED = 5


class Stored(NamedTuple):
    """A tensor of a file, and its shape with the outermost dimension first: quantised data does not show it."""

    matrix: Matrix
    shape: tuple[int, ...]


class Naming(NamedTuple):
    """What a kind of file calls the tensors: `layer` by field, `biases` by `q`, `k` and `v`, both after a prefix."""

    embedding: str
    norm: str
    output: str
    prefix: str
    """Of a layer's tensors, with `{}` for its number."""
    layer: Mapping[str, str]
    biases: Mapping[str, str]


def widen_bf16(rows: NDArray[np.generic]) -> F32:
    """Turn bfloat16, given as uint16, into the float32 of the same value."""
    return (rows.astype(np.uint32) << 16).view(np.float32)


def assemble(
    source: str, config: LlamaConfig, tensors: Mapping[str, Stored], naming: Naming, *, rope_in_halves: bool, tied: bool
) -> LlamaWeights:
    """Put the weights together; of tensors whose RoPE pairs halves of a head, q and k get their rows in pairs.

    `tied` takes the logits from the embedding matrix. Raises ValueError that names `source` and the tensors that are
    missing, misshaped, or of no use here.
    """
    shapes = _shapes(config, tensors, naming, tied=tied)
    if missing := [name for name in shapes if name not in tensors]:
        raise ValueError(f"{source}: {len(missing)} of {len(shapes)} tensors are missing: {_some(missing)}")
    for name, shape in shapes.items():
        if tensors[name].shape != shape:
            raise ValueError(f"{source}: {name} is {tensors[name].shape}, but the sizes of the model make it {shape}")
    if unused := sorted(tensors.keys() - shapes.keys() - {naming.output}):
        raise ValueError(f"{source}: no use is known here for {len(unused)} tensors: {_some(unused)}")
    q_order = halves_to_pairs(config.num_heads, config.head_dim) if rope_in_halves else None
    k_order = halves_to_pairs(config.num_kv_heads, config.head_dim) if rope_in_halves else None

    def layer(index: int) -> LayerWeights:
        def tensor(name: str) -> Matrix:
            return tensors[naming.prefix.format(index) + name].matrix

        matrices = {
            field: tensor(name) for field, name in naming.layer.items() if field not in ("attention_norm", "ffn_norm")
        }
        bias = None
        if _has_biases(tensors, naming):
            q, k, v = (_vector(tensor(naming.biases[name])) for name in "qkv")
            bias = np.concatenate([q if q_order is None else q[q_order], k if k_order is None else k[k_order], v])
        if q_order is not None and k_order is not None:
            matrices["q"], matrices["k"] = matrices["q"].reordered(q_order), matrices["k"].reordered(k_order)
        return LayerWeights(
            attention_norm=_vector(tensor(naming.layer["attention_norm"])),
            ffn_norm=_vector(tensor(naming.layer["ffn_norm"])),
            qkv_bias=bias,
            **matrices,
        )

    return LlamaWeights(
        embedding=tensors[naming.embedding].matrix,
        layers=[layer(index) for index in range(config.num_layers)],
        norm=_vector(tensors[naming.norm].matrix),
        output=None if tied else tensors[naming.output].matrix,
    )


def _shapes(
    config: LlamaConfig, tensors: Mapping[str, Stored], naming: Naming, *, tied: bool
) -> dict[str, tuple[int, ...]]:
    """Give the shape of every tensor that is needed."""
    of_layer = {
        naming.layer[field]: shape
        for field, shape in {
            "attention_norm": (config.dim,),
            "q": (config.q_dim, config.dim),
            "k": (config.kv_dim, config.dim),
            "v": (config.kv_dim, config.dim),
            "o": (config.dim, config.q_dim),
            "ffn_norm": (config.dim,),
            "gate": (config.ffn_dim, config.dim),
            "up": (config.ffn_dim, config.dim),
            "down": (config.dim, config.ffn_dim),
        }.items()
    }
    if _has_biases(tensors, naming):
        of_layer |= {naming.biases[name]: (size,) for name, size in zip("qkv", _bias_sizes(config), strict=True)}
    shapes: dict[str, tuple[int, ...]] = {
        naming.embedding: (config.vocab_size, config.dim),
        naming.norm: (config.dim,),
        **({} if tied else {naming.output: (config.vocab_size, config.dim)}),
    }
    for index in range(config.num_layers):
        shapes |= {naming.prefix.format(index) + name: shape for name, shape in of_layer.items()}
    return shapes


def _bias_sizes(config: LlamaConfig) -> tuple[int, int, int]:
    return config.q_dim, config.kv_dim, config.kv_dim


def _has_biases(tensors: Mapping[str, Stored], naming: Naming) -> bool:
    """Tell whether any layer has any bias on q, k or v; then every layer must have all three."""
    ends = tuple(naming.biases.values())
    return any(name.endswith(ends) for name in tensors)


def _vector(matrix: Matrix) -> F32:
    return matrix.dense().reshape(-1)


def _some(names: list[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")

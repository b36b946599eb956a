"""Seeded heads for a tiny llama whose sizes are multiples of 32, so that every width of weights fits."""

from dataclasses import replace

import numpy as np

from models.heads import Affine, EagleHeads, LinearHeads, MedusaHeads, Words, eight_bit
from models.weights import LayerWeights, LlamaConfig, LlamaWeights, Matrix

CONFIG = LlamaConfig(
    vocab_size=97, dim=64, num_layers=8, num_heads=4, num_kv_heads=2, head_dim=16, ffn_dim=96, max_model_len=128
)  # fmt: skip
IDS = np.sort(np.random.default_rng(8).permutation(97)[:40])
KINDS = ("linear", "medusa", "eagle", "eagle3")


class Seeded:
    """Draws weights."""

    def __init__(self, seed):
        self._generator = np.random.default_rng(seed)

    def array(self, *shape):
        return self._generator.standard_normal(shape).astype(np.float32)

    def matrix(self, num_outputs, num_inputs, scale=1.5):
        return Matrix(self.array(num_outputs, num_inputs) * np.float32(scale / np.sqrt(num_inputs)))

    def norm(self, size):
        return 1 + np.float32(0.2) * self.array(size)

    def affine(self, num_outputs, num_inputs):
        return Affine(self.matrix(num_outputs, num_inputs), np.float32(0.1) * self.array(num_outputs))


def target_weights(seed=1):
    seeded, config = Seeded(seed), CONFIG
    layers = [
        LayerWeights(
            attention_norm=seeded.norm(config.dim),
            q=seeded.matrix(config.q_dim, config.dim),
            k=seeded.matrix(config.kv_dim, config.dim),
            v=seeded.matrix(config.kv_dim, config.dim),
            o=seeded.matrix(config.dim, config.q_dim),
            ffn_norm=seeded.norm(config.dim),
            gate=seeded.matrix(config.ffn_dim, config.dim),
            up=seeded.matrix(config.ffn_dim, config.dim),
            down=seeded.matrix(config.dim, config.ffn_dim),
        )
        for _ in range(config.num_layers)
    ]
    return LlamaWeights(
        seeded.matrix(config.vocab_size, config.dim, 4), layers, seeded.norm(config.dim), output=None
    )  # fmt: skip


def tiny_heads(kind, seed=2, *, is_reduced=True, has_output=False):
    """Heads of a kind, over a draft vocabulary where `is_reduced`, with an output matrix of their own on demand."""
    seeded, config, dim = Seeded(seed), CONFIG, CONFIG.dim
    ids = IDS if is_reduced else None
    num_words = len(IDS) if is_reduced else config.vocab_size

    def output():
        return seeded.matrix(num_words, dim, 4) if has_output else None

    if kind == "linear":
        return LinearHeads((1, 4, 8), seeded.affine(dim, 4 * dim), seeded.affine(dim, 2 * dim), Words(ids, output()))
    if kind == "medusa":
        blocks = tuple(tuple(seeded.affine(dim, dim) for _ in range(2)) for _ in range(3))
        return MedusaHeads(blocks, tuple(output() for _ in blocks), ids)
    is_third = kind == "eagle3"
    in_dim = 2 * dim if is_third else dim
    heads = EagleHeads(
        kind=kind,
        config=replace(config, num_layers=1),
        fuse=Affine(seeded.matrix(dim, (3 if is_third else 2) * dim)),
        q=seeded.matrix(config.q_dim, in_dim),
        k=seeded.matrix(config.kv_dim, in_dim),
        v=seeded.matrix(config.kv_dim, in_dim),
        o=seeded.matrix(dim, config.q_dim),
        gate=seeded.matrix(config.ffn_dim, dim),
        up=seeded.matrix(config.ffn_dim, dim),
        down=seeded.matrix(dim, config.ffn_dim),
        mlp_norm=seeded.norm(dim),
        input_norm=seeded.norm(dim) if is_third else None,
        feature_norm=seeded.norm(dim) if is_third else None,
        final_norm=seeded.norm(dim) if is_third else None,
        words=Words(ids, output()),
    )
    if is_third:
        return heads
    return replace(heads, fuse=seeded.affine(dim, 2 * dim))


def in_eight_bits(heads):
    """The same heads with every matrix rounded to 8 bits."""

    def rounded(value):
        match value:
            case Matrix():
                return eight_bit(value)
            case Affine():
                return Affine(eight_bit(value.weight), value.bias)
            case Words():
                return Words(value.ids, None if value.output is None else eight_bit(value.output))
            case tuple():
                return tuple(map(rounded, value))
            case _:
                return value

    return replace(heads, **{name: rounded(value) for name, value in vars(heads).items()})

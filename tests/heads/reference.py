"""The papers' forward passes over a whole sequence at a time, in float64, with nothing shared with the package."""

import numpy as np


def law_after(heads, config, weights, states, ids, path):
    """The law after `ids + path`, `[vocab]`, given the target's states `[len(ids), layers + 1, dim]` of `ids`.

    Of the last of `ids` no state is looked at, for a draft is made before the target has run it.
    """
    states = np.asarray(states, float)
    ids = [*ids]
    logits = {"linear": after_linear, "medusa": after_medusa, "eagle": after_eagle, "eagle3": after_eagle3}[heads.kind](
        heads, config, weights, states, ids, [*path]
    )
    words = heads.ids if heads.kind == "medusa" else heads.words.ids
    powers = np.exp(logits - logits.max())
    law = np.zeros(config.vocab_size)
    law[np.arange(config.vocab_size) if words is None else words] = powers / powers.sum()
    return law


def dense(matrix):
    return matrix.dense().astype(float)


def normed(x, weight, eps):
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps) * (1.0 if weight is None else weight.astype(float))


def silu(x):
    return x / (1 + np.exp(-x))


def affine(map_, x):
    out = dense(map_.weight) @ x
    return out if map_.bias is None else out + map_.bias


def words_matrix(ids, output, weights):
    if output is not None:
        return dense(output)
    whole = dense(weights.output or weights.embedding)
    return whole if ids is None else whole[ids]


def last_states(states):
    """The states before the last token: zeros where it is the first."""
    return states[-2] if len(states) > 1 else np.zeros_like(states[-1])


def after_linear(heads, config, weights, states, ids, path):
    table, eps = dense(weights.embedding), config.norm_eps
    before = last_states(states)
    parts = [*(before[tap] for tap in heads.taps), table[ids[-1]]]
    state = affine(heads.first, np.concatenate([normed(part, None, eps) for part in parts]))
    for token in path:
        state = affine(heads.later, np.concatenate([normed(part, None, eps) for part in (state, table[token])]))
    return words_matrix(heads.words.ids, heads.words.output, weights) @ state


def after_medusa(heads, config, weights, states, ids, path):
    head = len(path)
    x = normed(last_states(states)[config.num_layers], weights.norm, config.norm_eps)
    for block in heads.blocks[head]:
        x = x + silu(affine(block, x))
    return words_matrix(heads.ids, heads.outputs[head], weights) @ x


def turned(x, position, config):
    """RoPE of `x` `[heads, head_dim]`, interleaved pairs as complex numbers."""
    angles = position * config.rope_base ** (-np.arange(0, config.head_dim, 2) / config.head_dim)
    pairs = (x[:, 0::2] + 1j * x[:, 1::2]) * np.exp(1j * angles)
    return np.stack([pairs.real, pairs.imag], axis=2).reshape(x.shape)


class Layer:
    """The decoder layer of an EAGLE head, pair after pair of one sequence."""

    def __init__(self, heads):
        self.heads, self.config = heads, heads.config
        self.keys, self.values = [], []

    def run(self, residual, x, *, keep):
        """Feed the input of attention `x` at the next position; the pair before the first has company of no other."""
        heads, config = self.heads, self.config
        position = len(self.keys) + 1 if keep else 0
        q, k, v = ((dense(matrix) @ x).reshape(-1, config.head_dim) for matrix in (heads.q, heads.k, heads.v))
        q, k = turned(q, position, config), turned(k, position, config)
        keys, values = [*self.keys, k], [*self.values, v]
        if keep:
            self.keys, self.values = keys, values
        group = config.num_heads // config.num_kv_heads
        mixed = []
        for head in range(config.num_heads):
            scores = np.array([key[head // group] @ q[head] for key in keys]) / np.sqrt(config.head_dim)
            shares = np.exp(scores - scores.max())
            mixed.append(sum(s * value[head // group] for s, value in zip(shares, values, strict=True)) / shares.sum())
        x = residual + dense(heads.o) @ np.concatenate(mixed)
        y = normed(x, heads.mlp_norm, config.norm_eps)
        return x + dense(heads.down) @ (silu(dense(heads.gate) @ y) * (dense(heads.up) @ y))


def unrolled(heads, weights, features, ids, path, fused, inputs):
    """Feed all pairs (feature of a token, next token), then the path with the layer's own outputs; give the last."""
    layer = Layer(heads)
    table = dense(heads.embedding or weights.embedding)
    if len(ids) == 1:
        residual = fused(np.zeros_like(features[0]), table[ids[0]])
        state = layer.run(residual, inputs(residual, table[ids[0]]), keep=False)
    for feature, token in zip(features[:-1], ids[1:], strict=True):
        residual = fused(feature, table[token])
        state = layer.run(residual, inputs(residual, table[token]), keep=True)
    return layer, state, table


def after_eagle(heads, config, weights, states, ids, path):
    features = normed(states[:, config.num_layers], weights.norm, config.norm_eps)
    features[-1] = np.nan  # not there yet

    def fused(feature, embedded):
        return affine(heads.fuse, np.concatenate([embedded, feature]))

    def inputs(residual, _embedded):
        return residual if heads.input_norm is None else normed(residual, heads.input_norm, heads.config.norm_eps)

    if len(ids) == 1:
        features = np.zeros_like(features)
    layer, state, table = unrolled(heads, weights, features, ids, path, fused, inputs)
    for token in path:
        residual = fused(state, table[token])
        state = layer.run(residual, inputs(residual, table[token]), keep=True)
    return words_matrix(heads.words.ids, heads.words.output, weights) @ state


def after_eagle3(heads, config, weights, states, ids, path):
    eps = heads.config.norm_eps
    taps = heads.taps or (2, config.num_layers // 2, config.num_layers - 3)
    features = states[:, list(taps)].reshape(len(states), -1)

    def inputs(residual, embedded):
        return np.concatenate([normed(embedded, heads.input_norm, eps), normed(residual, heads.feature_norm, eps)])

    layer, state, table = unrolled(
        heads, weights, features, ids, path, lambda feature, _embedded: affine(heads.fuse, feature), inputs
    )
    for token in path:
        state = layer.run(state, inputs(state, table[token]), keep=True)
    return words_matrix(heads.words.ids, heads.words.output, weights) @ normed(state, heads.final_norm, eps)

"""A llama in numpy: one pass feeds many sequences, and a position's logits are the same bits in any company."""

from collections.abc import Sequence
from copy import copy
from typing import Self

import numpy as np
from numpy.typing import NDArray

from models.linear import RowLinear
from models.paged_kv import PagedKv, Pass, checked_taps, flatten
from models.protocol import Chunk, Ints, SlotMove
from models.weights import F32, LayerWeights, LlamaConfig, LlamaWeights

_KEY_TILE = 32  # keys one attention product sees; small enough for BLAS to stay on one thread


class Llama:
    """A `Model` over float32 weights.

    Every reduction of a row (a product, a norm, a softmax) has a shape that depends on the row's position alone, so
    speculation, batching, chunking and the number of threads cannot change its result.
    """

    def __init__(self, config: LlamaConfig, weights: LlamaWeights) -> None:
        self.config = config
        self._embedding = weights.embedding
        self._layers = [_Layer(config, layer) for layer in weights.layers]
        self._norm = weights.norm
        self._output = RowLinear((weights.output or weights.embedding).dense())
        self._cosines, self._sines = config.rope_table()
        self._taps: tuple[int, ...] = ()
        self._kv: PagedKv | None = None

    @property
    def vocab_size(self) -> int:
        """Ids are in `[0, vocab_size)`."""
        return self.config.vocab_size

    @property
    def max_model_len(self) -> int:
        """Positions a sequence can have."""
        return self.config.max_model_len

    def bind(self, num_blocks: int, block_tokens: int) -> None:
        """Take fresh KV memory."""
        config = self.config
        self._kv = PagedKv(
            config.num_layers,
            num_blocks,
            block_tokens,
            config.num_kv_heads,
            config.head_dim,
            taps=self._taps,
            dim=config.dim,
        )

    def with_taps(self, taps: Sequence[int]) -> Self:
        """Give a copy that keeps the hidden states after so many layers from its next `bind` on."""
        tapped = copy(self)
        tapped._taps = checked_taps(taps, self.config.num_layers)
        return tapped

    def features(self, blocks: Ints, slots: Ints) -> F32:
        """Read what is kept of slots in blocks, both `[n]`: float32 `[n, taps, dim]`."""
        return self._bound().features.memory[blocks, slots]

    def move_slots(self, moves: Sequence[SlotMove]) -> None:
        """Move KV within sequences. A key keeps the rotation of the position it was fed at."""
        self._bound().move_slots(moves)

    def forward(self, chunks: Sequence[Chunk]) -> F32:
        """Feed every id; logits float32 `[sum(num_rows), vocab_size]`.

        Raises ValueError, with nothing written, for a chunk that cannot be fed.
        """
        kv = self._bound()
        fed = flatten(chunks, kv, self.vocab_size, self.max_model_len)
        rotation = self._cosines[fed.positions, None], self._sines[fed.positions, None]
        x = self._embedding.rows(fed.ids)
        #   exp(-gate) of infinity is a gate of zero; a row that is not finite is its own sequence's matter
        with np.errstate(over="ignore", invalid="ignore"):
            kv.keep(0, x, fed)
            for index, layer in enumerate(self._layers):
                x = layer(x, fed, rotation, kv.keys[index], kv.values[index])
                kv.keep(index + 1, x, fed)
            return self._output(rms_norm(x[fed.wanted], self._norm, self.config.norm_eps))

    def _bound(self) -> PagedKv:
        if self._kv is None:
            raise RuntimeError("bind the model to KV memory first")
        return self._kv


class _Layer:
    def __init__(self, config: LlamaConfig, weights: LayerWeights) -> None:
        self._config = config
        self._weights = weights
        self._qkv = RowLinear(np.concatenate([weights.q.dense(), weights.k.dense(), weights.v.dense()]))
        self._o = RowLinear(weights.o.dense())
        self._gate_up = RowLinear(np.concatenate([weights.gate.dense(), weights.up.dense()]))
        self._down = RowLinear(weights.down.dense())

    def __call__(self, x: F32, fed: Pass, rotation: tuple[F32, F32], keys: F32, values: F32) -> F32:
        """`x` `[rows, dim]`; `keys` and `values` are this layer's blocks, and get the rows' own."""
        config = self._config
        qkv = self._qkv(rms_norm(x, self._weights.attention_norm, config.norm_eps))
        if self._weights.qkv_bias is not None:
            qkv += self._weights.qkv_bias
        q, k, v = np.split(qkv, [config.q_dim, config.q_dim + config.kv_dim], axis=1)
        keys[fed.blocks, fed.slots] = rotate(k.reshape(-1, config.num_kv_heads, config.head_dim), *rotation)
        values[fed.blocks, fed.slots] = v.reshape(-1, config.num_kv_heads, config.head_dim)
        x = x + self._o(
            attention(rotate(q.reshape(-1, config.num_heads, config.head_dim), *rotation), fed, keys, values)
        )
        gate, up = np.split(self._gate_up(rms_norm(x, self._weights.ffn_norm, config.norm_eps)), 2, axis=1)
        activated: F32 = gate / (1 + np.exp(-gate)) * up
        return x + self._down(activated)


def rms_norm(x: F32, weight: F32, eps: float) -> F32:
    """Divide the rows of `x` by their root mean square and multiply by `weight`."""
    mean_square = np.mean(x * x, axis=-1, keepdims=True)
    normed: F32 = x / np.sqrt(mean_square + np.float32(eps)) * weight
    return normed


def rotate(heads: F32, cosines: F32, sines: F32) -> F32:
    """Turn interleaved pairs by RoPE: `heads` `[rows, heads, head_dim]`, angles `[rows, 1, head_dim / 2]`."""
    turned = np.empty_like(heads)
    even, odd = heads[..., 0::2], heads[..., 1::2]
    turned[..., 0::2] = even * cosines - odd * sines
    turned[..., 1::2] = even * sines + odd * cosines
    return turned


def attention(q: F32, fed: Pass, keys: F32, values: F32) -> F32:
    """Let every row attend to its own sequence up to itself, on a branch along its path.

    From `q` `[rows, heads, head_dim]` to `[rows, heads * head_dim]`.
    """
    num_rows, num_heads, head_dim = q.shape
    kv_heads = keys.shape[2]
    q = q.reshape(num_rows, kv_heads, num_heads // kv_heads, head_dim) / np.sqrt(np.float32(head_dim))
    mixed = np.empty_like(q)
    for chunk, table in enumerate(fed.tables):
        rows = np.flatnonzero(fed.chunk_of == chunk)
        longest = int(fed.positions[rows].max()) + 1
        key_tiles, value_tiles = _tiles(keys, table, longest), _tiles(values, table, longest)
        for row in rows[::-1]:  # backwards, for what a row may not see is wiped and no row before it sees more
            length, base = int(fed.positions[row]) + 1, int(fed.bases[row])
            if base < length:
                path = np.arange(base, length)
                slots = fed.paths[row, : length - base]
                at = table[slots // keys.shape[1]], slots % keys.shape[1]
                for tiles, memory in ((key_tiles, keys), (value_tiles, values)):
                    tiles[path // _KEY_TILE, :, path % _KEY_TILE] = memory[at]
            value_tiles[(length - 1) // _KEY_TILE, :, (length - 1) % _KEY_TILE + 1 :] = 0  # no weight: 0 * nan is nan
            mixed[row] = _attend(q[row], key_tiles, value_tiles, length)
    return mixed.reshape(num_rows, num_heads * head_dim)


def _tiles(memory: F32, table: NDArray[np.int64], length: int) -> F32:
    """Gather the first `length` positions of a sequence, `[tiles, kv_heads, _KEY_TILE, head_dim]`, zeros after them."""
    _, block_tokens, kv_heads, head_dim = memory.shape
    num_tiles = -(-length // _KEY_TILE)
    flat = np.zeros((num_tiles * _KEY_TILE, kv_heads, head_dim), np.float32)
    flat[:length] = memory[table[: -(-length // block_tokens)]].reshape(-1, kv_heads, head_dim)[:length]
    return np.ascontiguousarray(flat.reshape(num_tiles, _KEY_TILE, kv_heads, head_dim).swapaxes(1, 2))


def _attend(q: F32, key_tiles: F32, value_tiles: F32, length: int) -> F32:
    """Attend with one row, `q` `[kv_heads, group, head_dim]`, to the first `length` keys; they decide every shape."""
    num_tiles = -(-length // _KEY_TILE)
    # matrix-vector products of one tile each: [tiles, kv_heads, 1, keys, head_dim] @ [kv_heads, group, head_dim, 1]
    tiled = np.matmul(key_tiles[:num_tiles, :, None], q[..., None])[..., 0]
    scores = np.ascontiguousarray(np.moveaxis(tiled, 0, 2)).reshape(*q.shape[:2], num_tiles * _KEY_TILE)
    scores[..., length:] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    tiled = np.moveaxis(weights.reshape(*q.shape[:2], num_tiles, 1, _KEY_TILE), 2, 0)
    mixed: F32 = np.matmul(np.ascontiguousarray(tiled), value_tiles[:num_tiles, :, None])[..., 0, :].sum(axis=0)
    return mixed

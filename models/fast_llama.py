"""The same llama through compiled code, straight from the quantised weights."""

import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Self

import numpy as np

from models.kernels.packing import BLOCK_INPUTS, LANES, TILE_OUTPUTS, pack_all
from models.kernels.passes import NUM_STAGES, Packed, Private, Shared, Sizes, run_pass
from models.kernels.product import MAX_ROWS
from models.kernels.stages import CLAIM_STRIDE, Inputs
from models.paged_kv import PagedKv, checked_taps, flatten
from models.protocol import Chunk, Ints, SlotMove
from models.weights import F32, LlamaConfig, LlamaWeights

_log = logging.getLogger(__name__)


class FastLlama:
    """A `Model` over weights as their file has them: 4- and 8-bit blocks stay so in memory, arithmetic is float32.

    With `is_int8` rows are rounded to 8 bits, 32 numbers a step, before they meet quantised weights, whose products
    within a block are then exact integers. A position's logits are the same bits in any batch, chunking and number of
    threads, as with `Llama`; between the two classes they differ by rounding. The first pass compiles the code, which
    the disk then keeps; the log says so.
    """

    def __init__(
        self, config: LlamaConfig, weights: LlamaWeights, num_threads: int | None = None, *, is_int8: bool = False
    ) -> None:
        """Pack the weights. `num_threads` None is one per processor this process may use."""
        if num_threads is not None and num_threads < 1:
            raise ValueError(f"num_threads {num_threads}: must be at least 1")
        self.config = config
        self.num_threads = num_threads or _num_processors()
        self.is_int8 = is_int8
        self._embedding = weights.embedding
        self._sizes = Sizes(
            num_layers=config.num_layers,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            padded_head=_up(config.head_dim, LANES),
            k_column=_up(config.q_dim, TILE_OUTPUTS),
            v_column=_up(config.q_dim, TILE_OUTPUTS) + _up(config.kv_dim, TILE_OUTPUTS),
            dim=config.dim,
            norm_eps=config.norm_eps,
        )
        _log.info("packing weights")
        self._packed = _pack(config, weights, is_int8=is_int8)
        self._taps: tuple[int, ...] = ()
        self._kv: PagedKv | None = None
        self._rooms: tuple[Shared, Private] | None = None
        self._warm_up()

    @property
    def vocab_size(self) -> int:
        """Ids are in `[0, vocab_size)`."""
        return self.config.vocab_size

    @property
    def max_model_len(self) -> int:
        """Positions a sequence can have."""
        return self.config.max_model_len

    def bind(self, num_blocks: int, block_tokens: int) -> None:
        """Take fresh KV memory, and room and threads for passes: one that was given up may still run in the old."""
        config, sizes = self.config, self._sizes
        self._kv = PagedKv(
            config.num_layers,
            num_blocks,
            block_tokens,
            config.num_kv_heads,
            sizes.padded_head,
            taps=self._taps,
            dim=config.dim,
        )
        self._rooms = None
        self._workers = ThreadPoolExecutor(max(1, self.num_threads - 1), thread_name_prefix="outrider-kernel")

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
        shared, private = self._rooms_for(len(fed.ids))
        shared.x[: len(fed.ids), : self.config.dim] = self._embedding.rows(fed.ids)
        shared.x[: len(fed.ids), self.config.dim :] = 0  # a row that is not finite has left nan here
        shared.claims[:] = 0
        logits = np.empty((len(fed.wanted), _up(self.vocab_size, TILE_OUTPUTS)), np.float32)

        keys, values = (memory.swapaxes(2, 3) for memory in (kv.keys, kv.values))  # as they lie in memory

        def run(thread: int) -> None:
            run_pass(
                thread, self.num_threads, self._sizes, self._packed, fed, keys, values, kv.features,
                shared, private, logits,
            )  # fmt: skip

        helpers = [self._workers.submit(run, thread) for thread in range(1, self.num_threads)]
        run(0)
        for helper in helpers:
            helper.result()
        return logits[:, : self.vocab_size]

    def _bound(self) -> PagedKv:
        if self._kv is None:
            raise RuntimeError("bind the model to KV memory first")
        return self._kv

    def _rooms_for(self, rows: int) -> tuple[Shared, Private]:
        """Give room for a pass of `rows` rows."""
        if self._rooms is None or len(self._rooms[0].x) < rows:
            self._rooms = self._make_rooms(max(rows, MAX_ROWS))
        return self._rooms

    def _make_rooms(self, rows: int) -> tuple[Shared, Private]:
        config, sizes, threads = self.config, self._sizes, self.num_threads
        longest = max(_up(n, BLOCK_INPUTS) for n in (config.dim, config.q_dim, config.ffn_dim))
        group = config.num_heads // config.num_kv_heads

        def room(*shape: int) -> F32:
            return np.zeros(shape, np.float32)

        shared = Shared(
            x=room(rows, _up(config.dim, BLOCK_INPUTS)),
            qkv=room(rows, _qkv_columns(config)),
            q=room(rows, config.num_heads, sizes.padded_head),
            mixed=room(rows, _up(config.q_dim, BLOCK_INPUTS)),
            gated=room(rows, _up(config.ffn_dim, BLOCK_INPUTS)),
            claims=np.zeros((NUM_STAGES * config.num_layers + 1) * CLAIM_STRIDE, np.int64),
        )
        private = Private(
            inputs=Inputs(
                panel=room(threads, rows * longest),
                panel_sums=room(threads, rows * longest // BLOCK_INPUTS),
                codes=np.zeros((threads, rows * longest), np.int8),
                steps=room(threads, rows * longest // BLOCK_INPUTS),
                sums=room(threads, rows * longest // BLOCK_INPUTS),
                counts=np.zeros((threads, rows * longest // BLOCK_INPUTS), np.int32),
            ),
            line=room(threads, longest),
            ups=room(threads, rows, TILE_OUTPUTS),
            scores=room(threads, group * _up(config.max_model_len, LANES)),
            heads=room(threads, group * (sizes.padded_head + 1)),
        )
        return shared, private

    def _warm_up(self) -> None:
        """Compile, or load compiled code, before the first request."""
        _log.info("getting compiled code (the first time on a machine takes about half a minute)")
        self.bind(1, 1)
        self.forward([Chunk(ids=[0], start=0, table=[0], num_rows=1)])
        self._kv = None
        _log.info("compiled code is ready")


def _pack(config: LlamaConfig, weights: LlamaWeights, *, is_int8: bool) -> Packed:
    matrices = [m for w in weights.layers for m in (w.q, w.k, w.v, w.o, w.gate, w.up, w.down)]
    memory, shapes = pack_all([*matrices, weights.output or weights.embedding], is_for_int8=is_int8)
    norms = [norm for layer in weights.layers for norm in (layer.attention_norm, layer.ffn_norm)]
    padded = np.zeros((len(norms) + 1, _up(config.dim, BLOCK_INPUTS)), np.float32)
    padded[:, : config.dim] = [*norms, weights.norm]
    biases = np.zeros((config.num_layers, _qkv_columns(config)), np.float32)
    for row, layer in zip(biases, weights.layers, strict=True):
        if layer.qkv_bias is not None:
            column = 0
            for part in np.split(layer.qkv_bias, [config.q_dim, config.q_dim + config.kv_dim]):
                row[column : column + len(part)] = part
                column += _up(len(part), TILE_OUTPUTS)
    return Packed(memory, shapes, padded, biases, *config.rope_table())


def _qkv_columns(config: LlamaConfig) -> int:
    """Count the outputs of q, k and v, each filled up to whole tiles."""
    return _up(config.q_dim, TILE_OUTPUTS) + 2 * _up(config.kv_dim, TILE_OUTPUTS)


def _up(value: int, step: int) -> int:
    """Round up to a multiple of `step`."""
    return -(-value // step) * step


def _num_processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

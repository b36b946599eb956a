"""A llama or qwen2 from a GGUF file, its quantised tensors left as they are."""

import math
from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.extras import need
from models.loading.assembly import Naming, Stored, assemble, widen_bf16
from models.loading.byte_pairs import SAME_CUTS, TokenTypes, byte_pair_tokenizer, merge_pairs
from models.loading.gguf_header import TensorPlace, read_header
from models.loading.tokenizer import Tokenizer
from models.weights import LlamaConfig, LlamaWeights, Matrix

_ROPE_IN_HALVES = {"llama": False, "qwen2": True}  # a llama's q and k rows are permuted when the file is made
_FLOATS = {0: ("<f4", 4), 1: ("<f2", 2), 30: ("<u2", 2)}  # F32, F16, BF16 by their number in the format
_BF16 = 30
_ROPE_FREQS = "rope_freqs.weight"
_NAMES = Naming(
    embedding="token_embd.weight",
    norm="output_norm.weight",
    output="output.weight",
    prefix="blk.{}.",
    layer={
        "attention_norm": "attn_norm.weight",
        "q": "attn_q.weight",
        "k": "attn_k.weight",
        "v": "attn_v.weight",
        "o": "attn_output.weight",
        "ffn_norm": "ffn_norm.weight",
        "gate": "ffn_gate.weight",
        "up": "ffn_up.weight",
        "down": "ffn_down.weight",
    },
    biases={name: f"attn_{name}.bias" for name in "qkv"},
)
# Of the keys under the architecture's name: those that give the sizes or say what the tensors say too, and those
# that are fine with one value. Any other might change what the model computes.
_SIZES = frozenset(
    [
        "context_length",
        "embedding_length",
        "block_count",
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "attention.layer_norm_rms_epsilon",
        "rope.freq_base",
        "rope.dimension_count",
        "rope.scaling.type",
        "rope.scaling.factor",
        "rope.scaling.original_context_length",
        "rope.scaling.finetuned",
        "rope.scale_linear",
        "vocab_size",
        "tensor_data_layout",
    ]
)
_NUMBER = int | float
_HARMLESS = {
    "expert_count": 0,
    "expert_used_count": 0,
    "attention.sliding_window": 0,
    "attention.causal": True,
    "use_parallel_residual": False,
}


class GgufFile:
    """An open file: its metadata by key and its tensors by name. The tensors are mapped, not read."""

    def __init__(self, path: Path) -> None:
        """Open `path`. ValueError for what is no whole GGUF file, and for a model this package cannot run."""
        self._path = path
        header = read_header(path)
        self._fields = header.fields
        self._architecture = self.get("general.architecture")
        if self._architecture not in _ROPE_IN_HALVES:
            raise ValueError(f"{path}: architecture {self._architecture}; can run {', '.join(_ROPE_IN_HALVES)}")
        if self.get("split.count", 1) > 1:
            raise ValueError(
                f"{path} is part {self.get('split.no', 0) + 1} of {self.get('split.count')}: only whole files are read"
            )
        data = np.memmap(path, np.uint8, "r")
        self._tensors = {name: self._stored(name, place, data) for name, place in header.tensors.items()}

    def get(self, key: str, default: Any = None) -> Any:
        """Look up a metadata value, lists included."""
        return self._fields.get(key, default)

    def config(self) -> LlamaConfig:
        """Read the sizes. ValueError for a missing one, and for a key that may change what the model computes."""
        self._refuse_unknown_keys()
        num_heads, dim = self._size("attention.head_count"), self._size("embedding_length")
        if num_heads < 1:
            raise ValueError(f"{self._path}: {self._architecture}.attention.head_count is {num_heads}: at least 1")
        head_dim = self._size("attention.key_length", dim // num_heads)
        for key in ("rope.dimension_count", "attention.value_length"):
            if self._size(key, head_dim) != head_dim:
                raise ValueError(f"{self._path}: {key} is {self._size(key)}; can run only the head's {head_dim}")
        if "token_embd.weight" not in self._tensors:
            raise ValueError(f"{self._path}: token_embd.weight is missing")
        return LlamaConfig(
            vocab_size=self._tensors["token_embd.weight"].shape[0],
            dim=dim,
            num_layers=self._size("block_count"),
            num_heads=num_heads,
            num_kv_heads=self._size("attention.head_count_kv", num_heads),
            head_dim=head_dim,
            ffn_dim=self._size("feed_forward_length"),
            max_model_len=self._size("context_length"),
            rope_base=self._size("rope.freq_base", 10000.0, _NUMBER),
            rope_divisors=self._rope_divisors(head_dim),
            norm_eps=self._size("attention.layer_norm_rms_epsilon", kind=_NUMBER),
        )

    def weights(self, config: LlamaConfig) -> LlamaWeights:
        """Give all weights, quantised ones in their blocks. ValueError for missing, misshaped and unknown tensors."""
        return assemble(
            str(self._path),
            config,
            {name: tensor for name, tensor in self._tensors.items() if name != _ROPE_FREQS},
            _NAMES,
            rope_in_halves=_ROPE_IN_HALVES[self._architecture],
            tied=_NAMES.output not in self._tensors,
        )

    def tokenizer(self, strftime_now: Callable[[str], str] | None = None) -> Tokenizer:
        """Build the tokenizer from the file's tokens and merges.

        `strftime_now` tells a chat template the date. ValueError for a kind other than byte-level BPE, and for a file
        without its tokens or merges.
        """
        kind = self.get("tokenizer.ggml.model")
        if kind != "gpt2":
            raise ValueError(f"{self._path}: tokenizer.ggml.model {kind}: only byte-level BPE (gpt2) is known")
        tokens, merges = self.get("tokenizer.ggml.tokens"), self.get("tokenizer.ggml.merges")
        for name, table in (("tokens", tokens), ("merges", merges)):
            if not table:
                raise ValueError(f"{self._path}: no tokenizer.ggml.{name}: the tokenizer is not in the file")
        named = {name: self.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos", "eot", "eom")}
        split = self.get("tokenizer.ggml.pre", "default")
        split = SAME_CUTS.get(split, split)
        adds_bos = self.get("tokenizer.ggml.add_bos_token", split == "llama-bpe")
        if self.get("tokenizer.ggml.add_eos_token", False):
            raise ValueError(f"{self._path}: tokenizer.ggml.add_eos_token: no prompt is ended here before it goes on")
        try:
            types = TokenTypes.of(tokens, self.get("tokenizer.ggml.token_type"), named.values())
            built = byte_pair_tokenizer(tokens, merge_pairs(tokens, merges), split, types)
        except ValueError as error:
            raise ValueError(f"{self._path}: {error}") from None
        return Tokenizer(
            built,
            vocab_size=self._tensors["token_embd.weight"].shape[0],
            end_ids=[named[name] for name in ("eos", "eot", "eom") if named[name] is not None],
            eos_id=named["eos"],
            bos_id=named["bos"],
            prefix=[named["bos"]] if adds_bos and named["bos"] is not None else [],
            silent_ids=types.unused,
            chat_template=self.get("tokenizer.chat_template"),
            strftime_now=strftime_now,
        )

    def _size(self, key: str, default: Any = None, kind: type | UnionType = int) -> Any:
        value = self.get(f"{self._architecture}.{key}", default)
        if value is None:
            raise ValueError(f"{self._path}: no {self._architecture}.{key}")
        if isinstance(value, list):
            if len(set(value)) != 1:
                raise ValueError(
                    f"{self._path}: {self._architecture}.{key} is {value}: must be the same in every layer"
                )
            value = value[0]
        if not isinstance(value, kind):
            allowed = getattr(kind, "__name__", "number")
            raise ValueError(f"{self._path}: {self._architecture}.{key} is {value!r}: a value of type {allowed}")
        return value

    def _rope_divisors(self, head_dim: int) -> tuple[float, ...]:
        """Find what RoPE's frequencies are divided by: a scaling of all of them, and a tensor for each."""
        linear = self._size("rope.scale_linear", 0.0, _NUMBER)
        scale = self._size("rope.scaling.factor", linear, _NUMBER) or 1.0  # 0 is for none
        kind = self._size("rope.scaling.type", "linear", str)
        if kind not in ("none", "linear"):
            raise ValueError(f"{self._path}: {self._architecture}.rope.scaling.type is {kind}: can run none, linear")
        if kind == "none":
            scale = 1.0
        each = self._tensors.get(_ROPE_FREQS)
        if each is not None:
            return tuple((each.matrix.dense().reshape(-1).astype(float) * scale).tolist())
        return () if scale == 1.0 else (float(scale),) * (head_dim // 2)

    def _refuse_unknown_keys(self) -> None:
        own = f"{self._architecture}."
        for key, value in self._fields.items():
            name = key.removeprefix(own)
            if name == key or name in _SIZES or (name in _HARMLESS and _HARMLESS[name] == value):
                continue
            allowed = f"only {_HARMLESS[name]}" if name in _HARMLESS else "none known"
            raise ValueError(f"{self._path}: {key} is {value}; values that can be run: {allowed}")

    def _stored(self, name: str, place: TensorPlace, data: NDArray[np.uint8]) -> Stored:
        num_weights = math.prod(place.shape)
        if place.format in _FLOATS:
            layout, width = _FLOATS[place.format]
            values = self._cut(name, data, place.offset, num_weights * width).view(layout).reshape(place.shape)
            return Stored(Matrix(values, decode=widen_bf16 if place.format == _BF16 else None), place.shape)
        constants = need("gguf.constants", "real")
        try:
            kind = constants.GGMLQuantizationType(place.format)
        except ValueError:
            raise ValueError(f"{self._path}: {name} is in format {place.format}, which is not known") from None
        per_block, block_bytes = constants.GGML_QUANT_SIZES[kind]
        if not place.shape or place.shape[-1] % per_block:
            raise ValueError(f"{self._path}: {name} is {place.shape}: rows of {kind.name} are multiples of {per_block}")
        row_bytes = place.shape[-1] // per_block * block_bytes
        blocks = self._cut(name, data, place.offset, num_weights // per_block * block_bytes)
        dequantize = need("gguf.quants", "real").dequantize
        return Stored(
            Matrix(blocks.reshape(*place.shape[:-1], row_bytes), kind.name, lambda rows: dequantize(rows, kind)),
            place.shape,
        )

    def _cut(self, name: str, data: NDArray[np.uint8], offset: int, num_bytes: int) -> NDArray[np.uint8]:
        if offset + num_bytes > len(data):
            raise ValueError(
                f"{self._path} has {len(data)} bytes, but {name} ends at {offset + num_bytes}: the file is not whole"
            )
        return data[offset : offset + num_bytes]

"""A llama or qwen2 from a GGUF file, its quantised tensors left as they are."""

from pathlib import Path
from typing import Any

import numpy as np

from models.extras import need
from models.loading.tokenizer import Tokenizer, byte_pair_tokenizer
from models.weights import F32, LayerWeights, LlamaConfig, LlamaWeights, Matrix, halves_to_pairs

_CONTROL, _USER_DEFINED = 3, 4  # token types of the format
_END_IDS = ("eos_token_id", "eot_token_id", "eom_token_id")
_ROPE_IN_HALVES = {"llama": False, "qwen2": True}  # a llama's q and k rows are permuted when the file is made


class GgufFile:
    """An open file: its metadata by key and its tensors by name. The tensors are mapped, not read."""

    def __init__(self, path: Path) -> None:
        """Open `path`. ValueError for an architecture this package cannot run."""
        self._path = path
        reader = need("gguf", "real").GGUFReader(path)
        self._fields = reader.fields
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        self._architecture = self.get("general.architecture")
        if self._architecture not in _ROPE_IN_HALVES:
            raise ValueError(f"{path}: architecture {self._architecture}; can run {', '.join(_ROPE_IN_HALVES)}")

    def get(self, key: str, default: Any = None) -> Any:
        """Look up a metadata value, lists included."""
        field = self._fields.get(key)
        return default if field is None else field.contents()

    def config(self) -> LlamaConfig:
        """Read the sizes. ValueError for a kind of RoPE this package does not know."""

        def size(key: str, default: Any = None) -> Any:
            value = self.get(f"{self._architecture}.{key}", default)
            if value is None:
                raise ValueError(f"{self._path}: no {self._architecture}.{key}")
            return value

        num_heads, dim = size("attention.head_count"), size("embedding_length")
        head_dim = size("attention.key_length", dim // num_heads)
        scaling = size("rope.scaling.type", "none")
        if scaling != "none" or "rope_freqs.weight" in self._tensors:
            raise ValueError(f"{self._path}: rope.scaling.type {scaling} or rope_freqs: only plain RoPE is known")
        if size("rope.dimension_count", head_dim) != head_dim or size("attention.value_length", head_dim) != head_dim:
            raise ValueError(f"{self._path}: rope.dimension_count and value_length must be the head's {head_dim}")
        return LlamaConfig(
            vocab_size=len(self._tensors["token_embd.weight"].data),
            dim=dim,
            num_layers=size("block_count"),
            num_heads=num_heads,
            num_kv_heads=size("attention.head_count_kv", num_heads),
            head_dim=head_dim,
            ffn_dim=size("feed_forward_length"),
            max_model_len=size("context_length"),
            rope_base=size("rope.freq_base", 10000.0),
            norm_eps=size("attention.layer_norm_rms_epsilon"),
        )

    def weights(self, config: LlamaConfig) -> LlamaWeights:
        """Give all weights, quantised ones in their blocks."""
        return LlamaWeights(
            embedding=self._matrix("token_embd.weight"),
            layers=[self._layer(config, f"blk.{index}.") for index in range(config.num_layers)],
            norm=self._vector("output_norm.weight"),
            output=self._matrix("output.weight") if "output.weight" in self._tensors else None,
        )

    def tokenizer(self) -> Tokenizer:
        """Build the tokenizer from the file's tokens and merges. ValueError for a kind other than byte-level BPE."""
        kind = self.get("tokenizer.ggml.model")
        if kind != "gpt2":
            raise ValueError(f"{self._path}: tokenizer.ggml.model {kind}: only byte-level BPE (gpt2) is known")
        tokens, types = self.get("tokenizer.ggml.tokens"), self.get("tokenizer.ggml.token_type")
        ends = {self.get(f"tokenizer.ggml.{key}") for key in _END_IDS} - {None}
        bos = self.get("tokenizer.ggml.bos_token_id")
        split = self.get("tokenizer.ggml.pre", "default")
        return Tokenizer(
            byte_pair_tokenizer(
                tokens,
                [tuple(merge.split(" ", 1)) for merge in self.get("tokenizer.ggml.merges")],
                split,
                special=[token for token, kind in zip(tokens, types, strict=True) if kind == _CONTROL],
                added=[token for token, kind in zip(tokens, types, strict=True) if kind == _USER_DEFINED],
            ),
            end_ids=ends,
            bos_id=bos,
            add_bos=self.get("tokenizer.ggml.add_bos_token", split == "llama-bpe"),
            chat_template=self.get("tokenizer.chat_template"),
        )

    def _layer(self, config: LlamaConfig, prefix: str) -> LayerWeights:
        q, k, v = (self._matrix(f"{prefix}attn_{name}.weight") for name in "qkv")
        biases = [self._tensors.get(f"{prefix}attn_{name}.bias") for name in "qkv"]
        bias: list[F32] | None = None if biases[0] is None else [np.array(b.data, np.float32) for b in biases if b]
        if _ROPE_IN_HALVES[self._architecture]:
            q_order = halves_to_pairs(config.num_heads, config.head_dim)
            k_order = halves_to_pairs(config.num_kv_heads, config.head_dim)
            q, k = q.reordered(q_order), k.reordered(k_order)
            if bias is not None:
                bias = [bias[0][q_order], bias[1][k_order], bias[2]]
        return LayerWeights(
            attention_norm=self._vector(f"{prefix}attn_norm.weight"),
            q=q,
            k=k,
            v=v,
            o=self._matrix(f"{prefix}attn_output.weight"),
            ffn_norm=self._vector(f"{prefix}ffn_norm.weight"),
            gate=self._matrix(f"{prefix}ffn_gate.weight"),
            up=self._matrix(f"{prefix}ffn_up.weight"),
            down=self._matrix(f"{prefix}ffn_down.weight"),
            qkv_bias=None if bias is None else np.concatenate(bias),
        )

    def _vector(self, name: str) -> F32:
        return np.array(self._tensors[name].data, np.float32)

    def _matrix(self, name: str) -> Matrix:
        tensor = self._tensors[name]
        if tensor.data.dtype != np.uint8:
            return Matrix(tensor.data)
        dequantize = need("gguf.quants", "real").dequantize
        return Matrix(tensor.data, tensor.tensor_type.name, lambda rows: dequantize(rows, tensor.tensor_type))

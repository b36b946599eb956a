"""A llama or qwen2 from a folder of safetensors files with their `config.json`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.extras import need
from models.loading.tokenizer import Tokenizer
from models.weights import F32, LayerWeights, LlamaConfig, LlamaWeights, Matrix, halves_to_pairs

_DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_MODEL_TYPES = ("llama", "qwen2")


class SafetensorsFolder:
    """A folder as model hubs lay it out. The tensors are mapped, not read."""

    def __init__(self, path: Path) -> None:
        """Open the folder. ValueError for a model type this package cannot run."""
        self._path = path
        self._settings = _json(path / "config.json")
        if self._settings.get("model_type") not in _MODEL_TYPES:
            raise ValueError(
                f"{path}: model_type {self._settings.get('model_type')}; can run {', '.join(_MODEL_TYPES)}"
            )
        self._tensors: dict[str, Matrix] = {}
        for file in sorted(path.glob("*.safetensors")):
            self._tensors |= read_tensors(file)

    def config(self) -> LlamaConfig:
        """Read the sizes. ValueError for a kind of RoPE this package does not know."""
        settings = self._settings
        rope = settings.get("rope_scaling") or settings.get("rope_parameters") or {}
        if rope.get("rope_type", rope.get("type", "default")) != "default":
            raise ValueError(f"{self._path}: rope_scaling {rope}: only plain RoPE is known")
        num_heads = settings["num_attention_heads"]
        return LlamaConfig(
            vocab_size=settings["vocab_size"],
            dim=settings["hidden_size"],
            num_layers=settings["num_hidden_layers"],
            num_heads=num_heads,
            num_kv_heads=settings.get("num_key_value_heads", num_heads),
            head_dim=settings.get("head_dim") or settings["hidden_size"] // num_heads,
            ffn_dim=settings["intermediate_size"],
            max_model_len=settings["max_position_embeddings"],
            rope_base=settings.get("rope_theta", rope.get("rope_theta", 10000.0)),
            norm_eps=settings["rms_norm_eps"],
        )

    def weights(self, config: LlamaConfig) -> LlamaWeights:
        """Give all weights, in the floats they are stored as."""
        tied = self._settings.get("tie_word_embeddings", False) or "lm_head.weight" not in self._tensors
        return LlamaWeights(
            embedding=self._tensors["model.embed_tokens.weight"],
            layers=[self._layer(config, f"model.layers.{index}.") for index in range(config.num_layers)],
            norm=self._vector("model.norm.weight"),
            output=None if tied else self._tensors["lm_head.weight"],
        )

    def tokenizer(self) -> Tokenizer:
        """Read `tokenizer.json` and what the folder says about its control tokens."""
        built = need("tokenizers", "real").Tokenizer.from_file(str(self._path / "tokenizer.json"))
        about = _json(self._path / "tokenizer_config.json")
        generation = self._path / "generation_config.json"
        ends = (_json(generation) if generation.exists() else self._settings).get("eos_token_id", [])
        template = self._path / "chat_template.jinja"
        bos = about.get("bos_token")
        return Tokenizer(
            built,
            end_ids=ends if isinstance(ends, list) else [ends],
            bos_id=built.token_to_id(bos["content"] if isinstance(bos, Mapping) else bos) if bos else None,
            add_bos=about.get("add_bos_token", False),
            chat_template=template.read_text("utf-8") if template.exists() else about.get("chat_template"),
        )

    def _layer(self, config: LlamaConfig, prefix: str) -> LayerWeights:
        q_order = halves_to_pairs(config.num_heads, config.head_dim)
        k_order = halves_to_pairs(config.num_kv_heads, config.head_dim)
        attention = f"{prefix}self_attn."
        bias = None
        if f"{attention}q_proj.bias" in self._tensors:
            q, k, v = (self._vector(f"{attention}{name}_proj.bias") for name in "qkv")
            bias = np.concatenate([q[q_order], k[k_order], v])
        return LayerWeights(
            attention_norm=self._vector(f"{prefix}input_layernorm.weight"),
            q=self._tensors[f"{attention}q_proj.weight"].reordered(q_order),
            k=self._tensors[f"{attention}k_proj.weight"].reordered(k_order),
            v=self._tensors[f"{attention}v_proj.weight"],
            o=self._tensors[f"{attention}o_proj.weight"],
            ffn_norm=self._vector(f"{prefix}post_attention_layernorm.weight"),
            gate=self._tensors[f"{prefix}mlp.gate_proj.weight"],
            up=self._tensors[f"{prefix}mlp.up_proj.weight"],
            down=self._tensors[f"{prefix}mlp.down_proj.weight"],
            qkv_bias=bias,
        )

    def _vector(self, name: str) -> F32:
        return self._tensors[name].dense().reshape(-1)


def read_tensors(file: Path) -> dict[str, Matrix]:
    """Map the tensors of one file: eight bytes of header length, a JSON header, then the data it points into.

    Raises ValueError for a number format other than F32, F16 and BF16.
    """
    memory = np.memmap(file, np.uint8, "r")
    start = 8 + int.from_bytes(memory[:8].tobytes(), "little")
    header = json.loads(memory[8:start].tobytes())
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        if entry["dtype"] not in _DTYPES:
            raise ValueError(f"{file}: {name} is {entry['dtype']}; can read {', '.join(_DTYPES)}")
        first, end = (start + offset for offset in entry["data_offsets"])
        data = memory[first:end].view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
        tensors[name] = Matrix(data, decode=_widen if entry["dtype"] == "BF16" else None)
    return tensors


def _widen(rows: NDArray[np.generic]) -> F32:
    return (rows.astype(np.uint32) << 16).view(np.float32)


def _json(file: Path) -> Any:
    return json.loads(file.read_text("utf-8"))

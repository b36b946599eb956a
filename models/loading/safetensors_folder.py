"""A llama or qwen2 from a folder of safetensors files with their `config.json`."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from models.extras import need
from models.loading.assembly import Naming, Stored, assemble
from models.loading.config_keys import check_keys
from models.loading.files import refuse_pointer
from models.loading.folder_files import (
    ConfigFile,
    GenerationFile,
    IndexFile,
    NamedTemplate,
    Spelled,
    TemplateFile,
    TokenizerFile,
    read_as,
)
from models.loading.rope import rope_divisors
from models.loading.safetensors_file import read_tensors
from models.loading.tokenizer import Tokenizer
from models.weights import LlamaConfig, LlamaWeights

_MODEL_TYPES = ("llama", "qwen2")
_INDEX = "model.safetensors.index.json"
_NAMES = Naming(
    embedding="model.embed_tokens.weight",
    norm="model.norm.weight",
    output="lm_head.weight",
    prefix="model.layers.{}.",
    layer={
        "attention_norm": "input_layernorm.weight",
        "q": "self_attn.q_proj.weight",
        "k": "self_attn.k_proj.weight",
        "v": "self_attn.v_proj.weight",
        "o": "self_attn.o_proj.weight",
        "ffn_norm": "post_attention_layernorm.weight",
        "gate": "mlp.gate_proj.weight",
        "up": "mlp.up_proj.weight",
        "down": "mlp.down_proj.weight",
    },
    biases={name: f"self_attn.{name}_proj.bias" for name in "qkv"},
)
_ALWAYS_BOS = ("LlamaTokenizer", "LlamaTokenizerFast")  # unless told otherwise, and whatever tokenizer.json says


class SafetensorsFolder:
    """A folder as model hubs lay it out. The tensors are mapped, not read."""

    def __init__(self, path: Path) -> None:
        """Open the folder.

        Raises ValueError for a model this package cannot run, and for a folder where a file is missing or broken.
        """
        self._path = path
        settings = self._json("config.json")
        if settings.get("model_type") not in _MODEL_TYPES:
            raise ValueError(f"{path}: model_type {settings.get('model_type')}; can run {', '.join(_MODEL_TYPES)}")
        self._settings = read_as(ConfigFile, settings, path / "config.json")
        try:
            check_keys(settings)
        except ValueError as error:
            raise ValueError(f"{path / 'config.json'}: {error}") from None
        self._tensors: dict[str, Stored] = {}
        for file in self._files():
            self._tensors |= read_tensors(file)

    def config(self) -> LlamaConfig:
        """Read the sizes. ValueError for a missing one, and for a kind of RoPE this package does not know."""
        settings = self._settings
        rope = settings.rope_scaling or settings.rope_parameters or {}
        if rope.get("partial_rotary_factor") not in (None, 1):
            raise ValueError(f"{self._path}: partial_rotary_factor is {rope['partial_rotary_factor']}: can run 1")
        head_dim = settings.head_dim or settings.hidden_size // settings.num_attention_heads
        rope_base = settings.rope_theta or rope.get("rope_theta") or 10000.0
        try:
            divisors = rope_divisors(rope, rope_base, head_dim)
        except ValueError as error:
            raise ValueError(f"{self._path / 'config.json'}: {error}") from None
        return LlamaConfig(
            vocab_size=settings.vocab_size,
            dim=settings.hidden_size,
            num_layers=settings.num_hidden_layers,
            num_heads=settings.num_attention_heads,
            num_kv_heads=settings.num_key_value_heads or settings.num_attention_heads,
            head_dim=head_dim,
            ffn_dim=settings.intermediate_size,
            max_model_len=settings.max_position_embeddings,
            rope_base=rope_base,
            rope_divisors=divisors,
            norm_eps=settings.rms_norm_eps,
        )

    def weights(self, config: LlamaConfig) -> LlamaWeights:
        """Give all weights, in the floats they are stored as. ValueError for missing, misshaped and unknown tensors."""
        tied = bool(self._settings.tie_word_embeddings)
        return assemble(str(self._path), config, self._tensors, _NAMES, rope_in_halves=True, tied=tied)

    def tokenizer(self, strftime_now: Callable[[str], str] | None = None) -> Tokenizer:
        """Read `tokenizer.json` and what the folder says about its control tokens.

        `strftime_now` tells a chat template the date. ValueError for a missing or broken file, and for a kind other
        than byte-level BPE.
        """
        self._require("tokenizer.json")
        try:
            built = need("tokenizers", "real").Tokenizer.from_file(str(self._path / "tokenizer.json"))
        except ImportError:
            raise
        except Exception as error:  # the library raises nothing narrower
            raise ValueError(f"{self._path / 'tokenizer.json'} cannot be read: {error}") from None
        files = {**self._json("special_tokens_map.json", {}), **self._json("tokenizer_config.json", {})}
        about = read_as(TokenizerFile, files, self._path / "tokenizer_config.json")
        bos, eos = (_id(built, token) for token in (about.bos_token, about.eos_token))
        named = "generation_config.json"
        generation = read_as(GenerationFile, self._json(named, {}), self._path / named)
        stated = [ends for file in (generation, self._settings) if (ends := file.eos_token_id) is not None]
        try:
            prefix = _prefix(built, about, bos)
        except ValueError as error:
            raise ValueError(f"{self._path / 'tokenizer.json'}: {error}") from None
        return Tokenizer(
            built,
            vocab_size=self._settings.vocab_size,
            end_ids=[end for ends in stated for end in (ends if isinstance(ends, list) else [ends])],
            eos_id=eos,
            bos_id=bos,
            prefix=prefix,
            chat_template=self._chat_template(about.chat_template),
            strftime_now=strftime_now,
        )

    def _files(self) -> list[Path]:
        """Find the files of weights: those the index names, or all there are."""
        index = self._json(_INDEX, {})
        if index:
            named = sorted(set(read_as(IndexFile, index, self._path / _INDEX).weight_map.values()))
            if missing := [name for name in named if not (self._path / name).is_file()]:
                raise ValueError(
                    f"{self._path}: {len(missing)} of {len(named)} files that {_INDEX} names are missing: "
                    f"{', '.join(missing[:5])}"
                )
            return [self._path / name for name in named]
        files = sorted(self._path.glob("*.safetensors"))
        if not files:
            others = sorted(file.name for pattern in ("*.bin", "*.pth", "*.pt") for file in self._path.glob(pattern))
            found = f"; {', '.join(others[:5])} cannot be read" if others else ""
            raise ValueError(f"{self._path}: no *.safetensors file: the weights are missing{found}")
        for file in files:
            parts = file.stem.rpartition("-of-")
            if parts[1] and parts[2].isdigit() and len(files) != int(parts[2]):
                raise ValueError(f"{self._path}: {len(files)} of {int(parts[2])} *.safetensors files are there")
        return files

    def _chat_template(self, template: str | list[NamedTemplate] | None) -> str | None:
        """Find the template: in a file of its own, or by the name `default` among several."""
        alone, named = self._path / "chat_template.jinja", "chat_template.json"
        if alone.exists():
            return alone.read_text("utf-8")
        template = read_as(TemplateFile, self._json(named, {}), self._path / named).chat_template or template
        if not isinstance(template, list):
            return template
        of_name = {one.name: one.template for one in template}
        if "default" not in of_name:
            raise ValueError(f"{self._path}: chat_template has {', '.join(of_name)}, and none is named default")
        return of_name["default"]

    def _require(self, name: str) -> Path:
        file = self._path / name
        if not file.is_file():
            raise ValueError(f"{self._path}: {name} is missing")
        refuse_pointer(file)
        return file

    def _json(self, name: str, default: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        if default is not None and not (self._path / name).exists():
            return default
        file = self._require(name)
        try:
            content = json.loads(file.read_text("utf-8-sig"))
        except ValueError as error:
            raise ValueError(f"{file} is not JSON: {error}") from None
        if not isinstance(content, dict):
            raise ValueError(f"{file} is not a JSON object")
        return content


def _id(built: Any, token: str | Spelled | None) -> int | None:
    text = token.content if isinstance(token, Spelled) else token
    found: int | None = built.token_to_id(text) if text else None
    return found


def _prefix(built: Any, about: TokenizerFile, bos: int | None) -> list[int]:
    """Find what goes before a prompt: what tokenizer.json puts there, or BOS where the folder asks for it.

    Raises ValueError for a tokenizer that puts something behind it.
    """
    bare, framed = (built.encode("a", add_special_tokens=special).ids for special in (False, True))
    first = next(i for i in range(len(framed) + 1) if framed[i : i + len(bare)] == bare)
    if behind := framed[first + len(bare) :]:
        raise ValueError(f"puts {built.id_to_token(behind[0])!r} behind a prompt, which could not go on then")
    is_always = about.tokenizer_class in _ALWAYS_BOS
    wants_bos = about.add_bos_token
    if is_always and wants_bos is False:
        return []
    if bos is not None and (wants_bos or (is_always and wants_bos is None)) and bos not in framed[:first]:
        return [bos, *framed[:first]]
    return list(framed[:first])

"""What is read of the JSON files of a folder, by kind: the shapes that other programs write them in."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

Count = Annotated[int, msgspec.Meta(ge=1)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
Ids = int | list[int]
F = TypeVar("F", bound=msgspec.Struct)


class ConfigFile(msgspec.Struct):
    """`config.json` of a llama or qwen2. Null is as good as absent."""

    vocab_size: Count
    hidden_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    intermediate_size: Count
    max_position_embeddings: Count
    rms_norm_eps: Positive
    num_key_value_heads: Count | None = None
    head_dim: Count | None = None
    rope_theta: Positive | None = None
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None
    tie_word_embeddings: bool | None = None
    eos_token_id: Ids | None = None
    sliding_window: int | None = None
    layer_types: list[str] | None = None
    auto_map: dict[str, Any] | None = None


class GenerationFile(msgspec.Struct):
    """`generation_config.json`."""

    eos_token_id: Ids | None = None


class Spelled(msgspec.Struct):
    """A control token with its properties, of which only the spelling matters."""

    content: str


class NamedTemplate(msgspec.Struct):
    """One of several chat templates."""

    name: str
    template: str


class TokenizerFile(msgspec.Struct):
    """`tokenizer_config.json`, and `special_tokens_map.json` where that says nothing."""

    bos_token: str | Spelled | None = None
    eos_token: str | Spelled | None = None
    tokenizer_class: str | None = None
    add_bos_token: bool | None = None
    chat_template: str | list[NamedTemplate] | None = None


class TemplateFile(msgspec.Struct):
    """`chat_template.json`."""

    chat_template: str | list[NamedTemplate] | None = None


class IndexFile(msgspec.Struct):
    """`model.safetensors.index.json`: which file has a tensor."""

    weight_map: dict[str, str]


def read_as(kind: type[F], content: Mapping[str, Any], file: Path) -> F:
    """Give the content of a file as `kind`; what is null is absent.

    Raises ValueError, naming the file and the key, for a value of another kind and for one that is missing.
    """
    try:
        return msgspec.convert({key: value for key, value in content.items() if value is not None}, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{file}: {error}") from None

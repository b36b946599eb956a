"""The server's configuration: a TOML file, overridden key by key, checked before anything starts."""

import difflib
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from models.kernel_choice import Kernel
from scheduler import EngineConfig, RequestError
from scheduler.errors import refuse
from server.schema import allowed, find
from spec import Draft, SpecError

Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]

_MOST_MISTAKES = 100
_ENGINE_DEFAULTS: dict[str, Any] = {"max_waiting": 1024, "speculative": {"draft": "prompt_lookup", "k": 4}}


class ConfigError(ValueError):
    """A configuration that cannot be used; names the key, its value and what is allowed.

    `rest` is what is left of it without what is wrong, as far as that can be said.
    """

    def __init__(self, message: str, rest: "RuntimeConfig | None" = None) -> None:
        super().__init__(message)
        self.rest = rest


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to listen, whom to serve, and how much one request may ask for."""

    host: str = "127.0.0.1"
    """The address to listen on; 0.0.0.0 is every one of this machine's."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 8000
    """0 takes a free one; it is printed."""
    api_keys: list[Annotated[str, Meta(min_length=1)]] = []
    """Whoever sends one of these is served; empty: everyone is. Prefixes are cached for each key apart."""
    allowed_hosts: list[Annotated[str, Meta(min_length=1)]] = []
    """Names under which the server may be spoken to. On a loopback address its own are allowed, and only those besides;
    elsewhere every name is, unless some are given here."""
    allowed_origins: list[Annotated[str, Meta(min_length=1)]] = []
    """Web pages of other origins that may use the server, as in https://example.org; `*` is all of them."""
    strict: bool = False
    """Refuse parameters that nobody knows, rather than take them without effect."""
    max_connections: Count = 8192
    """Open at a time; fewer where the system allows the process fewer files."""
    max_connections_per_address: Count | None = None
    """The same for the connections of one address; behind a proxy all are of one. None: as many as there may be."""
    max_header_bytes: Count = 64 * 1024
    """Of one request's head."""
    header_timeout_s: Seconds = 20.0
    """A request's head must be there so soon after the connection is open, or after the head has begun."""
    body_timeout_s: Seconds = 30.0
    """A body of which nothing comes for so long is given up."""
    max_body_bytes: Count = 1 << 20
    """Of one request, and of all that a connection has sent ahead of its turn."""
    max_output_tokens: Count = 4096
    """That one completion may ask for."""
    max_choices: Count = 32
    """Completions of one request: its prompts times its `n`."""
    max_stop_strings: Count = 16
    """Of one request."""
    max_stop_chars: Count = 256
    """Length of one stop string."""
    max_logit_bias: Count = 1024
    """Tokens that one request may bias."""
    ping_s: Seconds = 15.0
    """A stream that has been silent for so long gets a comment: a peer that vanished is found by the write."""
    write_timeout_s: Seconds = 60.0
    """A client that reads nothing for so long is let go."""
    shutdown_s: Annotated[float, Meta(ge=0)] = 30.0
    """What is open when the server is told to stop may finish for so long; then it is cancelled."""


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which model to serve. `kernel` is about real ones only, `seed`, `order` and `sharp` about the fake one."""

    source: str = "fake"
    """`fake`, the name of a pulled model, a GGUF file, or a folder of safetensors."""
    name: str | None = None
    """What clients call it; None: the source's own name."""
    kernel: Kernel = "auto"
    """What runs a real model: compiled code, with numba, or numpy. `int8` rounds activations to 8 bits."""
    seed: Annotated[int, Meta(ge=0)] = 0
    """Which fake model: another seed writes other text."""
    order: Count = 1
    """Tokens that decide what comes next."""
    sharp: Annotated[float, Meta(ge=0)] = 800.0
    """Span of the logits: the higher, the fewer ways to go on at temperature 1."""
    min_pass_s: Annotated[float, Meta(ge=0)] = 0.0
    """A pass takes at least so long, as a large model's would."""


class RuntimeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`runtime.toml`."""

    engine: EngineConfig = msgspec.convert(_ENGINE_DEFAULTS, EngineConfig)
    """How large the engine is, and how it shares itself out."""
    server: ServerConfig = ServerConfig()
    """Where to listen, whom to serve, and how much one request may ask for."""
    model: ModelConfig = ModelConfig()
    """Which model to serve."""

    def __post_init__(self) -> None:
        speculative = self.engine.speculative
        draft = speculative.draft
        if draft is Draft.FAKE:
            served = ", ".join(repr(each.value) for each in Draft if each is not Draft.FAKE)
            raise refuse("engine.speculative.draft", draft.value, f"one of {served}: simulations have the fake one")
        if draft.has_file and self.model.source == "fake":
            raise refuse("engine.speculative.draft", draft.value, "a draft made of text for model.source 'fake'")


def load_config(path: Path | None, overrides: Mapping[str, Any]) -> RuntimeConfig:
    """Read a TOML file, if any, and lay `overrides` (dotted keys) over it.

    Raises ConfigError, which tells every mistake on a line of its own.
    """
    table: dict[str, Any] = {}
    if path is not None:
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"{path}: {error}") from None
    for key, value in overrides.items():
        _set(table, key, value)
    engine = table.get("engine", {})
    if isinstance(engine, dict):
        table["engine"] = _ENGINE_DEFAULTS | engine
    mistakes = list(_without_not_finite(table, ()))
    config: RuntimeConfig | None = None
    for _ in range(_MOST_MISTAKES):
        try:
            config = msgspec.convert(table, RuntimeConfig)
        except msgspec.ValidationError as error:
            mistake = _explain(error, table)
            is_new = mistake.partition(" is ")[0] not in (told.partition(" is ")[0] for told in mistakes)
            mistakes += [mistake] if is_new else []
            if not _remove(table, error, is_whole=not is_new):
                break
        else:
            if not mistakes:
                return config
            break
    raise ConfigError("\n".join(mistakes), config)


def _without_not_finite(node: dict[str, Any], above: tuple[str, ...]) -> Iterator[str]:
    """Take away numbers that are none, which pass every bound, and name them."""
    for key, value in list(node.items()):
        if isinstance(value, dict):
            yield from _without_not_finite(value, (*above, key))
        elif isinstance(value, float) and not math.isfinite(value):
            del node[key]
            yield f"{'.'.join((*above, key))} is {value}: a finite number"


def _remove(table: dict[str, Any], error: msgspec.ValidationError, *, is_whole: bool) -> bool:
    """Take away what an error is about, so that the next mistake is seen; False where there is nothing to take away.

    Where a key is no less wrong when it is left out, `is_whole`, its table is taken away.
    """
    message, _, path = str(error).partition(" - at `")
    keys = re.findall(r"[^.\[\]$`]+", path)
    named = re.match(r"(?:Object contains unknown field `)?(\w+)", str(error.__cause__ or message))
    node: Any = table
    above: list[tuple[Any, str]] = []
    for key in keys:
        if not isinstance(node, dict) or key not in node:
            break
        above.append((node, key))
        node = node[key]
    is_below = error.__cause__ is not None or message.startswith("Object contains unknown")
    if is_below and not is_whole and named is not None and isinstance(node, dict) and named[1] in node:
        above.append((node, named[1]))
    if not above:
        return False
    parent, key = above[-1]
    del parent[key]
    return True


def parse_override(text: str) -> tuple[str, Any]:
    """Read `key=value`, the value as TOML, or as a string where it is none. Raises ConfigError."""
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise ConfigError(f"{text!r}: key=value, as in engine.num_blocks=512")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def _set(table: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        below = table.setdefault(parent, {})
        if not isinstance(below, dict):
            raise ConfigError(f"{key}: {parent} is {below!r}, not a table")
        table = below
    table[last] = value


def _explain(error: msgspec.ValidationError, table: Mapping[str, Any]) -> str:
    """Say key, value and what is allowed."""
    message, _, path = str(error).partition(" - at `")
    keys = re.findall(r"[^.\[\]$`]+", path)
    if isinstance(error.__cause__, RequestError | SpecError):  # "field is value: allowed", said by the struct itself
        return ".".join([*keys, str(error.__cause__)])
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", message)
    if unknown is not None:
        keys.append(unknown[1])
    missing = re.fullmatch(r"Object missing required field `(.*)`", message)
    if missing is not None:
        return f"{'.'.join([*keys, missing[1]])} is missing"
    key, value, schema = (
        ".".join(keys),
        _value(table, keys),
        find(RuntimeConfig, keys if unknown is None else keys[:-1]),
    )
    if unknown is not None:
        names = sorted(schema.get("properties", {}))
        near = difflib.get_close_matches(unknown[1], names, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        return f"{key} is {value!r}: there is no such key{hint}; known are {', '.join(names)}"
    return f"{key} is {value!r}: {allowed(schema) or message}"


def _value(node: Any, keys: list[str]) -> Any:
    for key in keys:
        node = node[int(key) if isinstance(node, list) else key]
    return node

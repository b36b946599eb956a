"""What may be in a configuration: a JSON schema with a description, a unit and bounds for every key, and its page.

Descriptions are the docstrings below the fields. Bounds that a struct checks by itself are said here once more, since
only a test can hold them to each other.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from scheduler import EngineConfig
from spec import BestFirst, Chain, Dynamic, Expansion, Sequoia, SpecConfig, Static

_COUNT = {"minimum": 1, "maximum": 2**31 - 1}
_NODES = {"minimum": 1, "maximum": 64}
_SHARE = {"minimum": 0, "maximum": 1}
_POSITIVE = {"exclusiveMinimum": 0}
_COUNT_OR_0 = {"minimum": 0, "maximum": 2**31 - 1}
BOUNDS: dict[type[msgspec.Struct], dict[str, dict[str, int]]] = {
    EngineConfig: {
        **dict.fromkeys(("num_blocks", "block_tokens", "max_batch_tokens", "max_running", "max_model_len"), _COUNT),
        **dict.fromkeys(("stream_tokens", "audit_every"), _COUNT),
        **dict.fromkeys(("max_waiting", "max_restarts"), _COUNT_OR_0),
        **dict.fromkeys(("pass_timeout_s", "restart_period_s"), _POSITIVE),
    },
    SpecConfig: {
        "k": {"minimum": 0, "maximum": 64},
        **dict.fromkeys(("max_ngram", "min_ngram", "head_k"), _NODES),
        "max_depth": {"minimum": 2, "maximum": 64},
        **dict.fromkeys(("factor", "draft_temperature"), _POSITIVE),
        "min_prob": _SHARE,
    },
    Chain: {"k": _NODES, "p_min": _SHARE},
    Expansion: {"widths": _NODES},
    Static: {"paths": {"minimum": 0}},
    Sequoia: {"acceptance": _SHARE, "nodes": _NODES, "depth": {"minimum": 1}},
    Dynamic: dict.fromkeys(("nodes", "top", "depth"), _NODES),
    BestFirst: {"nodes": _NODES, "min_prob": _SHARE},
}
_UNITS = {"_s": "seconds", "_bytes": "bytes", "_tokens": "tokens", "_chars": "characters", "_len": "tokens"}
_SIGNS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<", "minLength": "length >="}


@cache
def schema_of(config: type[msgspec.Struct]) -> dict[str, Any]:
    """Give the JSON schema of a configuration and of all that is in it."""
    schema: dict[str, Any] = msgspec.json.schema(config)
    for kind in _structs(config):
        told, bounds = descriptions(kind), BOUNDS.get(kind, {})
        for name, node in schema["$defs"][kind.__name__]["properties"].items():
            if name in told:
                node["description"] = told[name]
            unit = next((unit for end, unit in _UNITS.items() if name.endswith(end)), None)
            if unit is not None:
                node["unit"] = unit
            for number in _numbers(node) if name in bounds else ():
                number.update(bounds[name])
    _set_defaults(schema, _resolved(schema, schema), msgspec.to_builtins(config()))
    return schema


def _set_defaults(root: Mapping[str, Any], node: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Let a table's defaults be those it has where it stands."""
    for name, key in node["properties"].items():
        below = _resolved(root, key)
        if isinstance(values.get(name), dict) and "properties" in below:
            _set_defaults(root, below, values[name])
        elif name in values:
            key["default"] = values[name]


def descriptions(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Give the docstrings that stand below a struct's fields."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for field, text in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            found[ast.unparse(field.target)] = " ".join(str(text.value.value).split())
    return found


def find(config: type[msgspec.Struct], keys: Sequence[str]) -> dict[str, Any]:
    """Find what the schema says of a key."""
    root = schema_of(config)
    node = _resolved(root, root)
    for key in keys:
        node = _resolved(root, node.get("properties", {}).get(key) or node.get("items", {}))
    return node


def allowed(schema: Mapping[str, Any]) -> str:
    """Say in words what a value may be."""
    if "enum" in schema:
        return "one of " + ", ".join(map(repr, schema["enum"]))
    if "anyOf" in schema:
        return " or ".join(filter(None, map(allowed, schema["anyOf"])))
    bounds = [f"{sign} {schema[name]}" for name, sign in _SIGNS.items() if name in schema]
    kind = "none" if schema.get("type") == "null" else schema.get("type", "")
    return " ".join([kind, " and ".join(bounds)]).strip()


def reference(config: type[msgspec.Struct]) -> Iterator[str]:
    """Write the page about a configuration, in Markdown: a table for each of its tables."""
    schema = schema_of(config)
    for path, node in _tables(schema, _resolved(schema, schema), ""):
        yield f"## `{path}`" if path.startswith("[") else f"### {path}"
        yield ""
        yield " ".join(node["description"].split())
        yield ""
        yield "| key | allowed | default | what it is |"
        yield "|---|---|---|---|"
        for name, key in node["properties"].items():
            if name == "kind":
                continue
            default = f"`{_default(schema, key)}`" if "default" in key else "none: it must be given"
            unit = f", in {key['unit']}" if "unit" in key else ""
            yield f"| `{name}` | {_allowed_of(schema, key)}{unit} | {default} | {key.get('description', '')} |"
        yield ""


def _structs(kind: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    yield kind
    for field in msgspec.inspect.type_info(kind).fields:  # type: ignore[attr-defined]
        inside = field.type.types if isinstance(field.type, msgspec.inspect.UnionType) else (field.type,)
        for below in inside:
            if isinstance(below, msgspec.inspect.StructType):
                yield from _structs(below.cls)


def _numbers(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give the parts of a key's schema that are numbers, those in lists too."""
    if node.get("type") in ("integer", "number"):
        yield node
    for below in [*node.get("anyOf", ()), *([node["items"]] if "items" in node else [])]:
        yield from _numbers(below)


def _resolved(root: Mapping[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    for choice in node.get("anyOf", ()):
        if "$ref" in choice:
            node = choice
    while "$ref" in node:
        node = root["$defs"][node["$ref"].rpartition("/")[2]]
    return node


def _tables(root: Mapping[str, Any], node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if path:
        yield f"[{path}]", node
    for name, key in node["properties"].items():
        for below in _choices(root, key):
            if "properties" not in below:
                continue
            if (tag := below["properties"].get("kind")) is not None:
                yield f'`{path}.{name}` of kind "{tag["enum"][0]}"', below
            else:
                yield from _tables(root, below, f"{path}.{name}".lstrip("."))


def _allowed_of(root: Mapping[str, Any], key: dict[str, Any]) -> str:
    said = []
    for choice in _choices(root, key):
        if "properties" in choice:
            kind = choice["properties"].get("kind")
            said.append("a table" if kind is None else f'kind "{kind["enum"][0]}"')
        elif choice.get("type") == "array":
            said.append("list of " + _allowed_of(root, choice["items"]))
        else:
            said.append(allowed(choice))
    return " or ".join(dict.fromkeys(said))


def _choices(root: Mapping[str, Any], key: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "anyOf" in key:
        for choice in key["anyOf"]:
            yield from _choices(root, choice)
    else:
        yield _resolved(root, key)


def _default(root: Mapping[str, Any], key: dict[str, Any]) -> str:
    default = key["default"]
    if default is None:
        return "none"
    return "its own" if "properties" in _resolved(root, key) else msgspec.json.encode(default).decode()

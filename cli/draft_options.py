"""The options that say how to speculate: where drafts come from, their shape, how they are taken and how judged."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec

from cli.options import POSITIVE, SHARE, SimOption
from spec import AUTO, CHILDREN, MAX_NODES, RULES, Draft, Shape, SpecConfig

Command = TypeVar("Command", bound=Callable[..., Any])

SHAPES: dict[str, tuple[str, ...]] = {
    "chain": ("k", "p_min"),
    "expansion": ("widths",),
    "static": ("paths",),
    "sequoia": ("acceptance", "nodes", "depth"),
    "dynamic": ("nodes", "top", "depth"),
    "best_first": ("nodes", "min_prob"),
}
"""The shapes by name, and the options that say each."""

_AT = "engine.speculative."


class _Numbers(click.ParamType[tuple[Any, ...]]):
    """Numbers with commas between them, or JSON."""

    name = "LIST"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Any, ...]:
        if isinstance(value, list | tuple):
            return tuple(value)
        try:
            return tuple(json.loads(value if value.startswith("[") else f"[{value}]"))
        except json.JSONDecodeError:
            self.fail(f"{value!r} is neither numbers with commas between them nor JSON", param, ctx)


class _Nodes(click.IntRange):
    """So many nodes, or as many as pay."""

    name = "NODES"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == AUTO else super().convert(value, param, ctx)


def drafts(command: Command) -> Command:
    """Add how to speculate."""
    nodes = click.IntRange(1, MAX_NODES)
    options = (
        _option(
            "--draft",
            at=_AT + "draft",
            type=click.Choice([draft.value for draft in Draft if not draft.has_file]),
            default="prompt_lookup",
            help="Where drafts come from; fake is a model that agrees with the fake target, see --agreement.",
        ),
        _option("--k", type=nodes, default=4, help="chain: most tokens of a draft."),
        _option(
            "--shape",
            type=click.Choice(list(SHAPES)),
            default="chain",
            help="Which nodes a draft has; all but a chain are trees.",
        ),
        _option(
            "--nodes",
            type=_Nodes(1, MAX_NODES),
            default=16,
            help="sequoia, dynamic, best_first: most nodes of a draft. For the first two auto is as many as pay.",
        ),
        _option("--depth", type=nodes, default=4, help="sequoia, dynamic: most layers of a draft."),
        _option("--top", type=nodes, default=4, help="dynamic: nodes that a layer grows from, and children of each."),
        _option("--widths", type=_Numbers(), default="3,2,1", help="expansion: children of each node, layer by layer."),
        _option(
            "--paths",
            type=_Numbers(),
            default="[[0],[1],[2],[0,0],[0,1],[1,0],[0,0,0]]",
            help="static: JSON list of paths of ranks.",
        ),
        _option(
            "--acceptance",
            type=_Numbers(),
            default="0.7,0.15,0.05",
            help="sequoia: chance that the first, second, ... child is accepted.",
        ),
        _option("--p-min", type=SHARE, default=0.0, help="chain of a model: it ends before a token less probable."),
        _option("--min-prob", type=SHARE, default=0.1, help="best_first, suffix: no node is worth less."),
        _option(
            "--children",
            at=_AT + "children",
            type=click.Choice(list(CHILDREN)),
            default="top",
            help="The best tokens of a model's law, or drawn from it: with repeats, or without.",
        ),
        _option(
            "--verify",
            at="verify",
            type=click.Choice(list(RULES)),
            default="resample",
            help="Rule for sampled rounds; match gives the text that plain sampling gives.",
        ),
        _option("--max-ngram", at=_AT + "max_ngram", type=nodes, default=3, help="Longest n-gram that is looked up."),
        _option("--min-ngram", at=_AT + "min_ngram", type=nodes, default=1, help="prompt_lookup: the shortest."),
        _option(
            "--occurrence",
            at=_AT + "occurrence",
            type=click.Choice(["latest", "earliest"]),
            default="latest",
            help="prompt_lookup: which of several occurrences is copied from.",
        ),
        _option(
            "--max-depth",
            at=_AT + "max_depth",
            type=nodes,
            default=24,
            help="suffix: tokens of match and path together.",
        ),
        _option(
            "--factor", at=_AT + "factor", type=POSITIVE, default=1.0, help="suffix: nodes per token of the match."
        ),
        _option(
            "--finished-prompts/--finished-outputs",
            at=_AT + "prompts",
            default=False,
            help="suffix: what of finished requests drafts are made of.",
        ),
        _option(
            "--agreement",
            at="agreement",
            type=SHARE,
            default=0.8,
            help="fake: share of contexts after which its law is the target's own.",
        ),
        _option(
            "--adaptive/--fixed",
            at="engine.adaptive",
            help="Feed only the drafts that pay, by what a pass costs.",
            default=False,
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def read_speculative(o: dict[str, Any]) -> dict[str, Any]:
    """Give the fields of a `SpecConfig` that options without a place of their own say."""
    name = o["shape"]
    if o["draft"] == "none":
        return {"k": 1, "shape": None, "min_prob": _default("min_prob")}
    fields: dict[str, Any] = {"min_prob": o["min_prob"] if _has_min_prob(o) else _default("min_prob")}
    if name == "chain" and not o["p_min"]:
        return fields | {"k": o["k"], "shape": None}
    return fields | {"k": 0, "shape": {"kind": name} | {field: o[field] for field in SHAPES[name]}}


def options_for(config: SpecConfig) -> dict[str, Any]:
    """Give the values of those options that ask for a configuration."""
    shape: Shape = config.tree_shape
    fields = {field: getattr(shape, field) for field in SHAPES[shape.kind]}
    return {"min_prob": config.min_prob} | fields | {"shape": shape.kind}


def needs_of_drafts(o: dict[str, Any], *, is_sampled: bool, is_virtual: bool) -> dict[str, tuple[bool, str]]:
    """Say of each of these options whether it has an effect here, and what it needs to."""
    draft, shape = o["draft"], o["shape"]
    has_drafts, has_model = draft != "none", draft == "fake"
    has_min_prob = draft == "suffix" or (has_drafts and shape == "best_first")
    by_shape: dict[str, list[str]] = {}
    for name, fields in SHAPES.items():
        for field in fields:
            by_shape.setdefault(field, []).append(name)
    needs = {
        field: (has_drafts and shape in names, f"drafts (--draft) and --shape {' or '.join(names)}")
        for field, names in by_shape.items()
    }
    return needs | {
        "shape": (has_drafts, "drafts, without --draft none"),
        "p_min": (has_model and shape == "chain", "--draft fake and --shape chain"),
        "min_prob": (has_min_prob, "--draft suffix or --shape best_first"),
        "children": (has_model, "--draft fake"),
        "agreement": (has_model, "--draft fake"),
        "layer_ms": (has_model and is_virtual, "--draft fake and --clock virtual"),
        "max_ngram": (draft in ("ngram", "prompt_lookup"), "--draft ngram or prompt_lookup"),
        "min_ngram": (draft == "prompt_lookup", "--draft prompt_lookup"),
        "occurrence": (draft == "prompt_lookup", "--draft prompt_lookup"),
        "max_depth": (draft == "suffix", "--draft suffix"),
        "factor": (draft == "suffix", "--draft suffix"),
        "finished_prompts": (draft == "suffix", "--draft suffix"),
        "adaptive": (has_drafts and is_virtual, "drafts and --clock virtual, where costs are known"),
        "baseline": (has_drafts and is_virtual, "drafts and --clock virtual"),
        "verify": (has_drafts and is_sampled, "drafts and a --temperature above 0"),
    }


def _has_min_prob(o: dict[str, Any]) -> bool:
    return bool(o["draft"] == "suffix" and o["shape"] == "chain")


def _default(field: str) -> Any:
    return next(each.default for each in msgspec.structs.fields(SpecConfig) if each.name == field)


def _option(*names: str, show_default: bool | str = True, **settings: Any) -> Callable[[Command], Command]:
    return click.option(*names, cls=SimOption, show_default=show_default, **settings)

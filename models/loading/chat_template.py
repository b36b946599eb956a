"""A conversation as a model's own template writes it."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class ChatTemplate:
    """A template in the dialect of model hubs: Jinja with break and continue, `generation` blocks and `tojson`."""

    def __init__(
        self, source: str, bos_token: str, eos_token: str, strftime_now: Callable[[str], str] | None = None
    ) -> None:
        """Compile `source`. ValueError where it is no template.

        `strftime_now` tells the date in a format; without it, a template that needs one is refused as it is rendered.
        """
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
        )
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": _refuse, "bos_token": bos_token, "eos_token": eos_token}
        if strftime_now is not None:
            environment.globals["strftime_now"] = strftime_now
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise ValueError(f"chat template: line {getattr(error, 'lineno', '?')}: {error}") from error
        self._knows_tool_calls = "tool_calls" in source

    def render(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Write messages up to where the assistant speaks. ValueError for messages that the template refuses."""
        for index, message in enumerate(messages):
            if message.get("tool_calls") and not self._knows_tool_calls:
                raise ValueError(f"messages[{index}].tool_calls: this model's chat template has no place for them")
        try:
            return self._template.render(
                messages=list(messages), add_generation_prompt=True, tools=None, documents=None
            )
        except _RefusedError as error:
            raise ValueError(f"chat template: {error}") from None
        except Exception as error:  # a template is a program: it can raise anything
            raise ValueError(f"chat template: {type(error).__name__}: {error}") from error


class _Generation(Extension):
    """`{% generation %}` marks what an assistant wrote, for training; here it is its content."""

    tags = {"generation"}  # noqa: RUF012  # as the class it extends has it

    def parse(self, parser: Parser) -> nodes.Node:
        """Give the content, with a scope of its own."""
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class _RefusedError(Exception):
    """What a template raises of itself."""


def _refuse(message: str) -> None:
    raise _RefusedError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it is: Jinja's own filter escapes it for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

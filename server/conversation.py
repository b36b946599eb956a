"""A conversation as a chat template takes it."""

from collections.abc import Sequence
from typing import Any

import msgspec

from server.errors import ApiError, invalid
from server.tokens import Tokenizer
from server.wire import ChatMessage, ToolCall

Message = dict[str, Any]


def read_messages(messages: Sequence[ChatMessage]) -> list[Message]:
    """Put messages as templates expect them. Raises ApiError, naming the place, for what makes no sense."""
    return [_message(message, f"messages[{i}]") for i, message in enumerate(messages)]


def encode_messages(tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
    """Ids of a conversation. Raises ApiError where the template cannot render all that it says."""
    try:
        ids = tokenizer.chat(messages)
        if any("tool_calls" in message for message in messages):
            silent = [{key: value for key, value in m.items() if key != "tool_calls"} for m in messages]
            if tokenizer.chat(silent) == ids:
                raise invalid("messages", "tool_calls are not rendered by this model's chat template")
        answers = [message for message in messages if message["role"] == "tool"]
        if answers and tokenizer.chat([m for m in messages if m not in answers]) == ids:
            raise invalid("messages", "the role 'tool' is not rendered by this model's chat template")
    except ValueError as error:
        raise invalid("messages", str(error)) from None
    return ids


def _message(message: ChatMessage, place: str) -> Message:
    content = message.content
    if isinstance(content, list):
        content = "".join(part.text for part in content)
    if content is None and message.role != "assistant":
        raise ApiError(400, f"{place}.content is missing", f"{place}.content", "missing_required_parameter")
    told: Message = {"role": "system" if message.role == "developer" else message.role, "content": content or ""}
    if message.tool_calls is not None:
        _check_role(message, "tool_calls", "assistant", place)
        told["tool_calls"] = [_call(call, f"{place}.tool_calls[{i}]") for i, call in enumerate(message.tool_calls)]
    if message.tool_call_id is not None:
        _check_role(message, "tool_call_id", "tool", place)
        told["tool_call_id"] = message.tool_call_id
    if message.reasoning_content is not None:
        _check_role(message, "reasoning_content", "assistant", place)
        told["reasoning_content"] = message.reasoning_content
    return told


def _check_role(message: ChatMessage, field: str, role: str, place: str) -> None:
    if message.role != role:
        raise invalid(f"{place}.{field}", f"the role is {message.role!r}: {role!r}")


def _call(call: ToolCall, place: str) -> Message:
    """Give a call with its arguments as an object: templates write it out in a way of their own."""
    try:
        arguments = msgspec.json.decode(call.function.arguments or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise invalid(f"{place}.function.arguments", f"they are no JSON object: {error}") from None
    told: Message = {"type": call.type, "function": {"name": call.function.name, "arguments": arguments}}
    return told if call.id is None else {"id": call.id, **told}

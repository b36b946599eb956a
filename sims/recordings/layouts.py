"""What each kind of recording is known by, and the conversations in its rows."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from sims.layouts import Layout, UnusableError
from sims.recordings.conversations import Conversation, Message

Found = Conversation | UnusableError
"""A conversation of a row, or why one in it cannot be used."""

_ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bing": "assistant", "bard": "assistant"}


class _Pair(msgspec.Struct):
    prompt: str | list[int]
    completion: str | list[int]


class _Turn(msgspec.Struct):
    value: str | None = None
    content: str | list[dict[str, Any]] | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    role: str | None = None
    tool_calls: list[Any] | None = None


class _Answer(msgspec.Struct):
    message: _Turn | None = None
    text: str | None = None


class _Body(msgspec.Struct):
    choices: list[_Answer] | None = None
    messages: list[_Turn] | None = None
    prompt: str | list[int] | None = None
    body: "_Body | None" = None


class _Exchange(msgspec.Struct):
    request: _Body
    response: _Body


def _pair(row: dict[str, Any]) -> Iterator[Found]:
    said = msgspec.convert(row, _Pair)
    if isinstance(said.prompt, str) != isinstance(said.completion, str):
        yield UnusableError("text on one side and ids on the other")
    elif min([*_ids(said.prompt), *_ids(said.completion)], default=0) < 0:
        yield UnusableError("a negative id")
    else:
        yield Conversation(said.prompt, said.completion, _category(row))


def _chat(row: dict[str, Any]) -> Iterator[Found]:
    yield from _answers(msgspec.convert(row["messages"], list[_Turn]), _category(row))


def _sharegpt(row: dict[str, Any]) -> Iterator[Found]:
    turns = row["conversations"] if "conversations" in row else row["items"]
    yield from _answers(msgspec.convert(turns, list[_Turn]), _category(row))


def _exchange(row: dict[str, Any]) -> Iterator[Found]:
    said = msgspec.convert(row, _Exchange)
    request, response = (body.body or body for body in (said.request, said.response))
    if request.prompt is None and not request.messages:
        yield UnusableError("no prompt and no messages in the request")
        return
    if not response.choices:
        yield UnusableError("no choices in the response")
        return
    prompt: str | list[int] | list[Message]
    try:
        prompt = _history(request.messages or []) if request.prompt is None else request.prompt
    except UnusableError as error:
        yield error
        return
    # of several samples for one prompt, the first: a recording says what was answered, once
    answer = response.choices[0]
    text = answer.text if answer.message is None else _text(answer.message)
    if not text:
        yield UnusableError("an answer without text")
    elif not isinstance(prompt, str) and prompt and isinstance(prompt[0], int):
        yield UnusableError("text on one side and ids on the other")
    else:
        yield Conversation(prompt, text, _category(row))


def _answers(turns: Sequence[_Turn], category: str | None) -> Iterator[Found]:
    """Give each answer of a conversation with all that came before it."""
    has_answer = False
    for at, turn in enumerate(turns):
        if _role(turn) != "assistant" or at == 0:
            continue
        has_answer = True
        try:
            if not (text := _text(turn)):
                raise UnusableError("an answer without text")
            yield Conversation(_history(turns[:at]), text, category)
        except UnusableError as error:
            yield error
    if not has_answer:
        yield UnusableError("a conversation without an answer")


def _history(turns: Sequence[_Turn]) -> list[Message]:
    messages = []
    for turn in turns:
        text, role = _text(turn), _role(turn)
        if turn.tool_calls:
            raise UnusableError("calls of tools before the answer")
        if text is None or role is None:
            raise UnusableError("a message without text or role before the answer")
        messages.append(Message(role, text))
    return messages


def _text(turn: _Turn) -> str | None:
    content = turn.content if turn.value is None else turn.value
    if content is None or isinstance(content, str):
        return content
    if any(part.get("type") != "text" or not isinstance(part.get("text"), str) for part in content):
        raise UnusableError("content that is not text")
    return "".join(part["text"] for part in content)


def _role(turn: _Turn) -> str | None:
    role = turn.role if turn.from_ is None else turn.from_
    return None if role is None else _ROLES.get(role, role)


def _ids(part: str | list[int]) -> list[int]:
    return [] if isinstance(part, str) else part


def _category(row: dict[str, Any]) -> str | None:
    category = row.get("category")
    return None if category is None or isinstance(category, (dict, list)) else str(category)


LAYOUTS: tuple[Layout[list[Found]], ...] = (
    Layout(
        "pairs",
        "prompt and completion, text or token ids",
        (frozenset({"prompt", "completion"}),),
        lambda row: list(_pair(row)),
    ),
    Layout(
        "exchanges",
        "request (messages or prompt) and response (choices), as OpenAI's API has them",
        (frozenset({"request", "response"}),),
        lambda row: list(_exchange(row)),
    ),
    Layout(
        "chat",
        "messages with role and content, as OpenAI's chats have them",
        (frozenset({"messages"}),),
        lambda row: list(_chat(row)),
    ),
    Layout(
        "sharegpt",
        "conversations (or items) with from and value",
        (frozenset({"conversations"}), frozenset({"items"})),
        lambda row: list(_sharegpt(row)),
    ),
)

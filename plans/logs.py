"""Recorded requests as token ids, one by one, and what there is to say of those that cannot be used."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from plans.errors import PlanError
from plans.lookup import Ids
from plans.tokens import Encoder
from sims.errors import SimError
from sims.recordings import Conversation, nothing_to_use, stream_conversations

_REPLIES = ("response", "reply", "completion")
_MOST_ID = 2**24
"""Beyond any vocabulary: an id from there on is no id."""


class Recording(NamedTuple):
    """A request as it was answered: its tokens, of which the first `num_prompt` were asked."""

    tokens: Ids
    num_prompt: int
    category: str | None

    @property
    def num_completion(self) -> int:
        """Tokens of the answer."""
        return len(self.tokens) - self.num_prompt


class Log:
    """Recordings in files, read anew each time they are gone through.

    What is counted is of the last time; `unused` by reason.
    """

    def __init__(self, paths: Sequence[Path], layout: str | None, encoder: Encoder, most: int | None = None) -> None:
        self._paths = paths
        self._layout = layout
        self._encoder = encoder
        self._most = most
        self.unused = Counter[str]()
        self.num_used = 0
        self.has_text = False

    def __iter__(self) -> Iterator[Recording]:
        """Give the recordings in order. PlanError for a file that cannot be read or that has nothing to use."""
        self.unused = Counter()
        self.num_used = 0
        for path in self._paths:
            before = self.num_used
            of_file = Counter[str]()
            try:
                layout, conversations = stream_conversations(path, self._layout, of_file, as_recorded)
                for conversation in conversations:
                    recording = self._recording(conversation, of_file)
                    if recording is None:
                        continue
                    self.num_used += 1
                    yield recording
                    if self.num_used == self._most:
                        self.unused += of_file
                        return
                if self.num_used == before:
                    raise nothing_to_use(path, layout, of_file)
            except SimError as error:
                raise PlanError(str(error)) from None
            self.unused += of_file

    def _recording(self, found: Conversation, unused: Counter[str]) -> Recording | None:
        encoder = self._encoder
        try:
            if isinstance(found.prompt, str):
                prompt = encoder.encode(found.prompt)
            elif found.prompt and not isinstance(found.prompt[0], int):
                prompt = encoder.render(found.prompt)
            else:
                prompt = found.prompt  # type: ignore[assignment]
            is_text = isinstance(found.completion, str)
            completion = encoder.encode(found.completion) if isinstance(found.completion, str) else found.completion
        except ValueError as error:
            unused[f"text that is none ({str(error).partition(' at ')[0]})"] += 1
            return None
        if not completion:
            unused["an empty answer"] += 1
            return None
        bound = _MOST_ID if encoder.vocab_size is None else encoder.vocab_size
        if not is_text and max([*prompt, *completion]) >= bound:
            unused[f"an id out of range [0, {bound:,})"] += 1
            return None
        self.has_text = self.has_text or is_text
        return Recording(np.array([*prompt, *completion], np.int64), len(prompt), found.category)

    def told(self) -> tuple[str | None, bool, list[str]]:
        """Name the tokenizer, None where there was no text; say if it is approximate, and what else is to be said."""
        if not self.has_text:
            return None, False, []
        encoder = self._encoder
        warnings = [] if (suspicion := encoder.suspicion()) is None else [suspicion]
        if encoder.is_approximate:
            warnings.append(
                "tokens are words, which is approximate: give --tokenizer the model's own to have its acceptance"
            )
        return encoder.name, encoder.is_approximate, warnings


def as_recorded(row: Any) -> Any:
    """Bring a row into one of the layouts: a reply beside its messages is the last of them, calls of tools are text."""
    return tool_calls_as_text(_with_reply(row))


def _with_reply(row: Any) -> Any:
    messages = row.get("messages") if isinstance(row, Mapping) else None
    key = next((key for key in _REPLIES if row.get(key) is not None), None) if isinstance(messages, list) else None
    if not messages or key is None or (isinstance(messages[-1], Mapping) and messages[-1].get("role") == "assistant"):
        return row
    reply = row[key]
    if isinstance(reply, Mapping) and isinstance(reply.get("choices"), list) and reply["choices"]:
        choice = reply["choices"][0]
        reply = choice.get("message") if isinstance(choice, Mapping) else choice
    if isinstance(reply, str):
        reply = {"role": "assistant", "content": reply}
    if not isinstance(reply, Mapping):
        return row
    return {name: value for name, value in row.items() if name != key} | {"messages": [*messages, reply]}


def tool_calls_as_text(row: Any) -> Any:
    """Write the calls of tools in a row's messages as text after their content: it is what the model has said."""
    if isinstance(row, list):
        return [tool_calls_as_text(part) for part in row]
    if not isinstance(row, Mapping):
        return row
    changed = {
        key: tool_calls_as_text(value) if isinstance(value, (dict, list)) else value for key, value in row.items()
    }
    calls = changed.get("tool_calls")
    if isinstance(calls, list) and calls and ("role" in changed or "from" in changed):
        said = [call.get("function", call) if isinstance(call, dict) else call for call in calls]
        content = changed.get("content")
        del changed["tool_calls"]
        changed["content"] = (content if isinstance(content, str) else "") + msgspec.json.encode(said).decode()
    return changed

"""What was asked and what was answered, however it was recorded."""

from collections.abc import Sequence

import msgspec


class Message(msgspec.Struct, frozen=True):
    """One message of a conversation, as text."""

    role: str
    content: str


class Conversation(msgspec.Struct, frozen=True):
    """One answer with all that came before it, as text, as token ids, or, where it is known, message by message."""

    prompt: str | list[int] | list[Message]
    completion: str | list[int]
    category: str | None = None
    """What kind of conversation the recording says it is."""


class Conversations(msgspec.Struct):
    """The conversations of a file, in its order; `unused` counts by reason the answers and rows that are left out."""

    name: str
    format: str
    conversations: list[Conversation]
    unused: dict[str, int]

    @property
    def num_rows(self) -> int:
        """Answers and rows in all: a row with several answers counts once for each."""
        return len(self.conversations) + sum(self.unused.values())


def transcript(messages: Sequence[Message]) -> str:
    """Write messages as one text, up to where the assistant speaks, for who has no chat template."""
    said = "".join(f"<|im_start|>{message.role}\n{message.content}<|im_end|>\n" for message in messages)
    return f"{said}<|im_start|>assistant\n"

"""A timeline in Chrome's trace event format: what Perfetto (ui.perfetto.dev) shows."""

from pathlib import Path

from actors.messages import Message


class Timeline:
    """Listens to the messages and turns them into trace events."""

    def __call__(self, time_s: float, sender: str, receiver: str, message: Message) -> None:
        """Take in a message."""

    def write(self, path: Path) -> None:
        """Write all events."""
        path.write_text("{}")

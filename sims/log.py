"""The message log: what a simulation learns from the messages between the actors, as they pass."""

import hashlib
import struct
from array import array
from collections.abc import Callable
from typing import Protocol

from actors.messages import (
    Admit,
    Admitted,
    Cancel,
    ForgetAll,
    Message,
    Reserved,
    Settle,
    Settled,
    Step,
    encode,
)


class Listener(Protocol):
    """Is told of every message after the log has taken it in."""

    def __call__(self, time_s: float, sender: str, receiver: str, message: Message) -> None:
        """Look at a message."""


class MessageLog:
    """An engine's tap. Keeps a digest of all messages, counts, and the few times that clients and report ask for.

    The digest is BLAKE2b over time, sender, receiver and serialised content of every message, in order.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_messages = 0
        self.num_steps = 0
        self.peak_held = 0
        self.blocks_back_s = array("d")
        """From each cancel of a sequence that held blocks to the moment the pool had them back."""
        self.listeners: list[Listener] = []
        self.holding: set[int] = set()
        """Sequences that hold blocks."""
        self._hash = hashlib.blake2b(digest_size=16)
        self._num_blocks = num_blocks
        self._watchers: dict[int, Callable[[int], None]] = {}
        self._admitting: list[int] = []
        self._releasing: list[int] = []
        self._cancelled_at_s: dict[int, float] = {}

    @property
    def digest(self) -> str:
        """The digest so far, in hexadecimal."""
        return self._hash.hexdigest()

    def watch(self, seq: int, watcher: Callable[[int], None]) -> None:
        """Call `watcher` with the tokens of each pass that feeds the sequence, as it is handed to the runner."""
        self._watchers[seq] = watcher

    def unwatch(self, seq: int) -> None:
        """Stop watching a sequence."""
        self._watchers.pop(seq, None)

    def __call__(self, time_s: float, sender: str, receiver: str, message: Message) -> None:
        """Take in a message."""
        self.num_messages += 1
        self._hash.update(struct.pack("<d", time_s) + sender.encode() + b">" + receiver.encode() + encode(message))
        match message:
            case Step():
                self.num_steps += 1
                if self._watchers:
                    self._notify(message)
            case Admit(candidates):
                self._admitting = [candidate.seq for candidate in candidates]
            case Admitted(cached, preempted, available):
                self._note_held(available)
                self.holding.difference_update(preempted)
                admitted = zip(self._admitting, cached, strict=True)
                self.holding.update(seq for seq, found in admitted if found is not None)
            case Reserved(_, available):
                self._note_held(available)
            case Cancel(seq):
                if seq in self.holding:
                    self._cancelled_at_s[seq] = time_s
            case Settle(_, releases):
                self._releasing = releases
                self.holding.difference_update(releases)
            case Settled():
                self._note_back(time_s)
            case ForgetAll():
                self.holding.clear()
        for listener in self.listeners:
            listener(time_s, sender, receiver, message)

    def _notify(self, step: Step) -> None:
        num_tokens = sum(len(feed.ids) for feed in step.feeds)
        for feed in step.feeds:
            if (watcher := self._watchers.get(feed.seq)) is not None:
                watcher(num_tokens)

    def _note_held(self, available: int) -> None:
        self.peak_held = max(self.peak_held, self._num_blocks - available)

    def _note_back(self, time_s: float) -> None:
        for seq in self._releasing:
            if (cancelled_at_s := self._cancelled_at_s.pop(seq, None)) is not None:
                self.blocks_back_s.append(time_s - cancelled_at_s)
        self._releasing = []

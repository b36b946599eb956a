"""An actor's mailbox: two lanes, bounded, lossless, one reader."""

import asyncio
from collections import deque
from typing import NamedTuple

from actors.messages import Message


class Envelope(NamedTuple):
    """A message on its way: who sent it, and where an answer goes, if one is asked for."""

    sender: str
    message: Message
    reply: "asyncio.Future[Message] | None" = None


class Mailbox:
    """Control overtakes work; each lane is first in, first out; nothing is ever dropped.

    `post` never waits: it is for control messages and for answers, whose number is bounded by what was asked. `put`
    waits while the work lane is full. There is one reader, so one future is enough to wake it.
    """

    __slots__ = ("_capacity", "_control", "_reader", "_work", "_writers")

    def __init__(self, capacity: int = 1024) -> None:
        self._capacity = capacity
        self._control: deque[Envelope] = deque()
        self._work: deque[Envelope] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._writers: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._control) + len(self._work)

    def post(self, envelope: Envelope) -> None:
        """Add to the control lane, at once."""
        self._control.append(envelope)
        self._wake_reader()

    def post_work(self, envelope: Envelope) -> None:
        """Add to the work lane at once, full or not: for senders that are bounded elsewhere and may not wait."""
        self._work.append(envelope)
        self._wake_reader()

    async def put(self, envelope: Envelope) -> None:
        """Add to the work lane; wait while it is full. Cancelled while waiting, nothing was added."""
        while len(self._work) >= self._capacity:
            turn = asyncio.get_running_loop().create_future()
            self._writers.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn in self._writers:
                    self._writers.remove(turn)
                elif not turn.cancelled():
                    self._wake_writer()  # the turn was given and not used: pass it on
                raise
        self.post_work(envelope)

    def take_control(self) -> Envelope | None:
        """Take the oldest control message, if there is one."""
        return self._control.popleft() if self._control else None

    def take(self) -> Envelope | None:
        """Take the next message, control first, if there is one."""
        if self._control:
            return self._control.popleft()
        if self._work:
            envelope = self._work.popleft()
            self._wake_writer()
            return envelope
        return None

    async def wait(self) -> None:
        """Wait until there is a message. Taking it is a step of its own, so a cancelled wait loses none."""
        while not self._control and not self._work:
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _wake_writer(self) -> None:
        while self._writers:
            turn = self._writers.popleft()
            if not turn.done():
                turn.set_result(None)
                return

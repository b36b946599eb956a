"""What every actor is: a name, a mailbox, and messages taken one at a time."""

import asyncio
from typing import Protocol, TypeVar

from actors.mailbox import Envelope, Mailbox
from actors.messages import Message

Answer = TypeVar("Answer", bound=Message)


class Tap(Protocol):
    """Sees every message as it is handed over, before it is handled."""

    def __call__(self, time_s: float, sender: str, receiver: str, message: Message) -> None:
        """Look at a message; time is the event loop's."""


class ActorCrashed(RuntimeError):
    """An actor died and has been restarted, its state new.

    `is_of_this`: it was over the message that was asked. `is_excess`: it was one crash too many, and was let pass.
    """

    is_of_this = True
    is_excess = False


class ActorGivenUp(RuntimeError):
    """An actor died too often and is not restarted."""


def told(error: BaseException) -> str:
    """Name an error by its kind and what it says, as failures are told."""
    return f"{type(error).__name__}: {error}"


class Actor:
    """A mailbox with a name. A subclass says in `run` what it does with its messages."""

    def __init__(self, name: str, tap: Tap | None) -> None:
        self.name = name
        self.mailbox = Mailbox()
        self.last_crash = ""
        self._tap = tap
        self._in_hand: Envelope | None = None
        self._untold: ActorCrashed | ActorGivenUp | None = None  # a crash that nobody has been told of

    async def run(self) -> None:
        """Take messages until cancelled, one at a time; what `handle` raises ends it."""
        while True:
            envelope = self.mailbox.take()
            if envelope is None:
                await self.mailbox.wait()
                continue
            if self._untold is not None and _fail(envelope, self._untold):
                self._untold = None
                continue
            self._in_hand = envelope
            answer = await self.handle(envelope.message)
            self._in_hand = None
            self._answer(envelope, answer)

    @property
    def is_at_it(self) -> bool:
        """Whether it has a message in hand."""
        return self._in_hand is not None

    async def handle(self, message: Message) -> Message:
        """Do what a message asks and give the answer. TypeError for one this actor does not know."""
        raise TypeError(f"{self.name} does not know {type(message).__name__}")

    def restart(self) -> None:
        """Start again with new state; the mailbox stays."""

    def disown(self, error: ActorCrashed | ActorGivenUp) -> None:
        """Tell whoever waits for an answer that there will be none; where nobody waits, whoever asks next is told."""
        envelope, self._in_hand = self._in_hand, None
        was_told = envelope is not None and _fail(envelope, error)
        self._untold = None if was_told else error
        if isinstance(error, ActorCrashed):
            error.is_of_this = was_told
        if isinstance(error, ActorGivenUp):
            self._untold = error
            while (waiting := self.mailbox.take()) is not None:
                _fail(waiting, error)

    def see(self, sender: str, message: Message) -> None:
        """Show a message for this actor to the tap."""
        if self._tap is not None:
            self._tap(asyncio.get_running_loop().time(), sender, self.name, message)

    async def ask(self, receiver: "Actor", message: Message, kind: type[Answer]) -> Answer:
        """Send a message and wait for its answer. Raises ActorCrashed or ActorGivenUp where there is none."""
        reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        receiver.see(self.name, message)
        await receiver.mailbox.put(Envelope(self.name, message, reply))
        answer = await reply
        if not isinstance(answer, kind):
            raise TypeError(f"{receiver.name} answered {type(answer).__name__}, not {kind.__name__}")
        self.see(receiver.name, answer)
        return answer

    def _answer(self, envelope: Envelope, answer: Message) -> None:
        if envelope.reply is not None and not envelope.reply.done():
            envelope.reply.set_result(answer)


def _fail(envelope: Envelope, error: Exception) -> bool:
    """Give an error for an answer; False where nobody waits for one."""
    if envelope.reply is None or envelope.reply.done():
        return False
    envelope.reply.set_exception(error)
    return True

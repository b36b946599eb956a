"""Tokens to text that may be shown: whole characters, and nothing in which a stop string can still begin."""

import codecs
from collections.abc import Sequence


class TextOfTokens:
    """The text of one completion as it grows, byte by byte and token by token.

        released ............ | held ............
        never taken back      | the longest end that begins a stop string, or an unfinished character

    The text ends before the stop string that is complete first (of two that end together, the one that begins
    first), wherever the borders of tokens and rounds lie. Joined, what `push` and `finish` give is that text.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.is_stopped = False
        self._stops = tuple(stops)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def push(self, data: bytes, *, may_stop: bool = True) -> str:
        """Take a token's bytes and give what is released; sets `is_stopped` where a stop string is complete.

        Until `may_stop`, text is passed on as it is, and no stop string begins in it.
        """
        return self._release(self._decoder.decode(data), may_stop)

    def finish(self) -> str:
        """Give what is left at the end; an unfinished character becomes a replacement character."""
        if self.is_stopped:
            return ""
        released = self._release(self._decoder.decode(b"", final=True), may_stop=True)
        return released if self.is_stopped else released + self._held

    def _release(self, text: str, may_stop: bool) -> str:
        if not may_stop or not self._stops:
            return text
        self._held += text
        found = [(start + len(stop), start) for stop in self._stops if (start := self._held.find(stop)) >= 0]
        if found:
            self.is_stopped = True
            return self._held[: min(found)[1]]
        keep = max(map(self._overlap, self._stops))
        cut = len(self._held) - keep
        released, self._held = self._held[:cut], self._held[cut:]
        return released

    def _overlap(self, stop: str) -> int:
        """Length of the longest end of what is held that begins `stop`."""
        for length in range(min(len(stop) - 1, len(self._held)), 0, -1):
            if self._held.endswith(stop[:length]):
                return length
        return 0


class Ruler:
    """Where tokens begin in their text, in characters: one within a character begins where that does."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._num_chars = 0

    def advance(self, data: bytes) -> int:
        """Take a token's bytes, and give the place where it begins."""
        start = self._num_chars
        self._num_chars += len(self._decoder.decode(data))
        return start

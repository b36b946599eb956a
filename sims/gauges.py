"""Gauges over time, in bounded space."""

from array import array
from collections.abc import Callable

from actors import EngineStats
from actors.messages import Message, Settled

_MOST = 1024


class Gauges:
    """Samples an engine's gauges as steps settle: every one at first, fewer and fewer evenly spaced as more come.

    `emitted`, `drafted`, `accepted` (tokens) and `passes` count from the start.
    """

    FIELDS = (
        *("time_s", "free", "evictable", "held", "running", "waiting"),
        *("emitted", "drafted", "accepted", "passes"),
    )

    def __init__(self, read: Callable[[], EngineStats]) -> None:
        self._read = read
        self._columns = {field: array("d") for field in self.FIELDS}
        self._stride = 1
        self._num_seen = 0

    def __call__(self, time_s: float, sender: str, receiver: str, message: Message) -> None:
        """Take a sample if one is due."""
        if not isinstance(message, Settled):
            return
        self._num_seen += 1
        if self._num_seen % self._stride == 0:
            self.sample(time_s)
            if len(self._columns["time_s"]) >= _MOST:
                self._columns = {field: column[1::2] for field, column in self._columns.items()}
                self._stride *= 2

    def sample(self, time_s: float) -> None:
        """Take a sample now."""
        stats = self._read()
        blocks, counters = stats.blocks, stats.counters
        row = (
            *(time_s, blocks.free, blocks.evictable, blocks.held, stats.num_running, stats.num_waiting),
            *(counters.num_emitted_tokens, counters.num_drafted, counters.num_accepted, counters.num_steps),
        )
        for column, value in zip(self._columns.values(), row, strict=True):
            column.append(value)

    def series(self) -> dict[str, list[float]]:
        """Give the samples: a list for each of `FIELDS`."""
        return {field: column.tolist() for field, column in self._columns.items()}

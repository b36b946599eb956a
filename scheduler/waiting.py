"""The queue of those that hold nothing yet."""

import heapq
from collections.abc import Iterator

from scheduler.sequence import Sequence


class WaitingQueue:
    """Sequences by rank. Taking one out of the middle costs nothing now and a skip later."""

    __slots__ = ("_heap", "_members")

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[int, int], Sequence]] = []
        self._members: dict[int, Sequence] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence.seq in self._members

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._members.values())

    def push(self, sequence: Sequence) -> None:
        """Add a sequence at its rank."""
        self._members[sequence.seq] = sequence
        heapq.heappush(self._heap, (sequence.rank, sequence))

    def first(self) -> Sequence | None:
        """Show the sequence that goes first."""
        while self._heap:
            sequence = self._heap[0][1]
            if sequence.seq in self._members:
                return sequence
            heapq.heappop(self._heap)
        return None

    def remove(self, sequence: Sequence) -> None:
        """Take out a sequence, wherever it stands."""
        del self._members[sequence.seq]
        if self._heap[0][1] is sequence:
            heapq.heappop(self._heap)
        elif len(self._heap) > 2 * len(self._members) + 64:
            self._heap = [(member.rank, member) for member in self._members.values()]
            heapq.heapify(self._heap)

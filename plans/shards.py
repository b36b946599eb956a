"""A log replayed in shards, wherever an executor takes them: only sums come back.

What is drafted from a request alone gives the same sums in shards, to the last bit. What requests learn from each
other - drafts from finished requests, adaptive choice - starts over with each shard.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from plans.adaptive import AdaptiveReplay
from plans.counted import Categories, Counted, DraftSeconds
from plans.gain import Cost
from plans.logs import Recording
from plans.methods import Method
from plans.replay import Replay
from plans.tally import Tally

NUM_REQUESTS = 512
"""Of a shard."""

STARTS_OVER = (
    f"replayed in shards of {NUM_REQUESTS} requests: adaptive choice, and drafts from finished requests, start over "
    "with each"
)


class Shard(NamedTuple):
    """Requests of a log that follow each other, the first of them number `first`."""

    first: int
    recordings: list[Recording]


def shards(recordings: Iterable[Recording]) -> Iterator[Shard]:
    """Cut a log into shards, as it comes; categories are named as in the whole."""
    categories = Categories()
    taken: list[Recording] = []
    first = 0
    for recording in recordings:
        taken.append(recording._replace(category=categories.name(recording.category)))
        if len(taken) == NUM_REQUESTS:
            yield Shard(first, taken)
            first += len(taken)
            taken = []
    if taken:
        yield Shard(first, taken)


class ReplayShard(NamedTuple):
    """Replays a shard by all methods and sizes."""

    methods: Sequence[Method]
    sizes: Sequence[int]
    draft_s: DraftSeconds
    cost: Cost
    batch: int

    def replay(self, shard: Shard) -> Counted:
        """Give its sums."""
        replay = Replay(self.methods, self.sizes)
        counted = Counted(replay.configs, self.draft_s, self.cost, self.batch)
        for number, recording in enumerate(shard.recordings, shard.first):
            counted.add(number, recording, replay.rounds(recording))
        return counted


class AdaptiveShard(NamedTuple):
    """Replays a shard with drafts cut as the engine cuts them, at each batch by its method."""

    entries: Sequence[tuple[int, Method]]
    size: int
    cost: Cost
    context: float

    def replay(self, shard: Shard) -> Tally:
        """Give its sums."""
        replay = AdaptiveReplay(self.entries, self.size, self.cost, self.context)
        tally = Tally()
        for number, recording in enumerate(shard.recordings, shard.first):
            tally.add(number, recording, replay.rounds(recording))
        return tally

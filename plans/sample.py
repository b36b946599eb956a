"""A few requests of a log, each as likely as any other, kept while it goes by."""

import numpy as np

from plans.logs import Recording


class Reservoir:
    """Keeps `most` of the recordings that it is offered, every set of so many as likely as another (Vitter 1985)."""

    def __init__(self, most: int, seed: int) -> None:
        self._most = most
        self._rng = np.random.default_rng(seed)
        self._kept: list[tuple[int, Recording]] = []
        self._num_offered = 0

    def offer(self, recording: Recording) -> None:
        """Keep it, or not; one that was kept may go."""
        place = self._num_offered
        self._num_offered += 1
        if place >= self._most:
            place = int(self._rng.integers(self._num_offered))
        if place < len(self._kept):
            self._kept[place] = (self._num_offered, recording)
        elif place < self._most:
            self._kept.append((self._num_offered, recording))

    def recordings(self) -> list[Recording]:
        """Give those that are kept, in the order in which they came."""
        return [recording for _, recording in sorted(self._kept, key=lambda kept: kept[0])]

"""What the live page shows, as JSON: sequences, blocks, the last minute, and who has left."""

import time
from collections import deque
from collections.abc import Collection
from typing import Any

import anyio

from actors import Engine
from server.generation import Generation

MINUTE_S = 60
_MAX_SEQUENCES = 200
_MAX_BLOCKS = 16384
_FRESH_S = 0.2  # viewers share one look


class Live:
    """Samples the engine every second and remembers the last minute."""

    def __init__(self, engine: Engine, model_name: str) -> None:
        self._engine = engine
        self._model_name = model_name
        self._samples: deque[dict[str, float]] = deque(maxlen=MINUTE_S + 1)
        self._departures: deque[dict[str, Any]] = deque(maxlen=30)
        self._states: dict[int, tuple[float, dict[str, Any]]] = {}

    async def sample(self) -> None:
        """Take a sample every second, for ever."""
        while True:
            stats = self._engine.stats()
            counters = stats.counters
            self._samples.append(
                {
                    "time_s": anyio.current_time(),
                    "tokens": counters.num_emitted_tokens,
                    "passes": counters.num_steps,
                    "drafted": counters.num_drafted,
                    "accepted": counters.num_accepted,
                    "cancelled": counters.num_cancelled,
                    "running": stats.num_running,
                    "waiting": stats.num_waiting,
                    "held": stats.blocks.held,
                }
            )
            await anyio.sleep(1)

    def left(self, generation: Generation) -> None:
        """Take note of a client that left before its answer was complete."""
        is_admitted = any(stream.num_cached_tokens is not None for stream in generation.streams)
        num_tokens = sum(stream.num_emitted for stream in generation.streams)
        where = "waiting" if not is_admitted else "before the first token" if not num_tokens else "between tokens"
        self._departures.appendleft(
            {"id": generation.job.id, "unix_s": time.time(), "where": where, "num_tokens": num_tokens}
        )

    def state(self, open_generations: Collection[Generation], first_sequence: int) -> dict[str, Any]:
        """Give everything the page draws: of the sequences a page, from `first_sequence` on."""
        now = anyio.current_time()
        self._states = {at: known for at, known in self._states.items() if now - known[0] < _FRESH_S}
        if first_sequence not in self._states:
            self._states[first_sequence] = now, self._look(open_generations, first_sequence)
        return self._states[first_sequence][1]

    def _look(self, open_generations: Collection[Generation], first_sequence: int) -> dict[str, Any]:
        stats, snapshot = self._engine.stats(), self._engine.snapshot(_MAX_SEQUENCES, _MAX_BLOCKS, first_sequence)
        names = {stream.seq: stream.id for generation in open_generations for stream in generation.streams}
        return {
            "model": self._model_name,
            "stats": stats,
            "blocks": stats.blocks._asdict(),
            "block_tokens": self._engine.config.block_tokens,
            "speculative": self._engine.config.speculative,
            "sequences": snapshot.sequences,
            "num_sequences": snapshot.num_sequences,
            "first_sequence": first_sequence,
            "page_sequences": _MAX_SEQUENCES,
            "names": {view.seq: names.get(view.seq, "") for view in snapshot.sequences},
            "owners": snapshot.owners,
            "shared": snapshot.shared,
            "samples": list(self._samples),
            "departures": list(self._departures),
        }

"""Ray Serve's request router, with a choice of its own: the replica that has read the beginning of the prompt."""

from collections import Counter
from typing import Any

from models.extras import need
from server.replicas import roster
from server.replicas.affinity import Affinity
from server.replicas.asked import Asked

_RequestRouter: Any = need("ray.serve.request_router", "ray").RequestRouter


class PrefixRouter(_RequestRouter):  # type: ignore[misc]  # of a package that need not be there
    """Ranks the replicas for each request; Ray Serve asks them in that order whether they take it."""

    def initialize_state(self, **_: Any) -> None:
        """Begin, as Ray Serve asks for it."""
        self._affinity = Affinity()
        self._num_open: Counter[str] = Counter()

    def update_replicas(self, replicas: list[Any]) -> None:
        """Take note of who there is."""
        super().update_replicas(replicas)
        names = tuple(sorted(replica.replica_id.unique_id for replica in replicas))
        self._num_open = Counter({name: self._num_open[name] for name in names})
        roster.names = names

    async def choose_replicas(self, candidate_replicas: list[Any], pending_request: Any = None) -> list[list[Any]]:
        """Rank the candidates, best first, each a rank of its own."""
        asked = pending_request.args[0] if pending_request is not None and pending_request.args else None
        if not isinstance(asked, Asked):
            return [candidate_replicas]
        pending_request.routing_context.should_backoff = True
        by_name = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        if asked.replica in by_name:
            return [[by_name[asked.replica]]]
        num_open = {name: self._num_open[name] for name in by_name}
        return [[by_name[name]] for name in self._affinity.rank(asked.keys, num_open)]

    def on_request_routed(self, pending_request: Any, replica_id: Any, result: Any) -> None:
        """Remember who got a request."""
        super().on_request_routed(pending_request, replica_id, result)
        self._num_open[replica_id.unique_id] += 1
        self._affinity.note(pending_request.args[0].keys, replica_id.unique_id)

    def on_request_completed(self, replica_id: Any, internal_request_id: str) -> None:
        """Count a request out, however it ended."""
        super().on_request_completed(replica_id, internal_request_id)
        if self._num_open[replica_id.unique_id] > 0:
            self._num_open[replica_id.unique_id] -= 1

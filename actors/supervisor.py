"""Who keeps the actors alive: one that crashes is restarted, one that crashes too often is given up."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from actors.actor import Actor, ActorCrashed, ActorGivenUp


class Supervisor:
    """At most `max_restarts` crashes within `period_s` seconds, counted over all its actors."""

    def __init__(self, max_restarts: int, period_s: float) -> None:
        self._max_restarts = max_restarts
        self._period_s = period_s
        self._crashes: deque[float] = deque()

    async def keep(self, actor: Actor, together: Sequence[Actor], give_up: Callable[[str], None]) -> None:
        """Run an actor; when it crashes restart it and those that cannot outlive it.

        Past the intensity, when it cannot be restarted, or when an actor it needs was given up, `give_up` is called
        with the reason, and that is the end of it.
        """
        while True:
            try:
                await actor.run()
            except Exception as error:
                reason = f"{actor.name}: {type(error).__name__}: {error}"
                is_over = isinstance(error, ActorGivenUp) or self._is_too_often(error)
            else:
                return
            if not is_over:
                try:
                    for restarted in (actor, *together):
                        restarted.restart()
                except Exception as error:
                    reason += f"; then, restarting: {type(error).__name__}: {error}"
                    is_over = True
            if is_over:
                actor.disown(ActorGivenUp(reason))
                give_up(reason)
                return
            actor.disown(ActorCrashed(reason))

    def _is_too_often(self, error: Exception) -> bool:
        if isinstance(error, ActorCrashed):  # the crash of another, which has been counted
            return False
        now = asyncio.get_running_loop().time()
        self._crashes.append(now)
        while self._crashes[0] <= now - self._period_s:
            self._crashes.popleft()
        return len(self._crashes) > self._max_restarts

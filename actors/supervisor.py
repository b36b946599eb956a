"""Who keeps the actors alive: one that crashes is restarted, one that crashes too often is given up."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from actors.actor import Actor, ActorCrashed, ActorGivenUp, told


class Supervisor:
    """At most `max_restarts` crashes within `period_s` seconds, counted over all its actors.

    One more is let pass where `may_excuse` the actor: the crash can be laid to something that will be gone.
    """

    def __init__(self, max_restarts: int, period_s: float, may_excuse: Callable[[Actor], bool]) -> None:
        self._may_excuse = may_excuse
        self._max_restarts = max_restarts
        self._period_s = period_s
        self._crashes: deque[float] = deque()

    async def keep(self, actor: Actor, together: Sequence[Actor], give_up: Callable[[str], None]) -> None:
        """Run an actor; when it crashes restart it and those that cannot outlive it.

        Past the intensity, when it cannot be restarted, or when an actor it needs was given up, `give_up` is called
        with the reason, and that is the end of it.
        """
        task = asyncio.current_task()
        assert task is not None
        while True:
            try:
                await actor.run()
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:
                if _was_sent(error, task):
                    raise
                reason = f"{actor.name}: {told(error)}"
                is_excess = self._is_too_often(error)
                is_over = isinstance(error, ActorGivenUp) or (is_excess and not self._may_excuse(actor))
            else:
                return
            actor.last_crash = reason
            if not is_over:
                try:
                    for restarted in (actor, *together):
                        restarted.restart()
                except (KeyboardInterrupt, SystemExit):
                    raise
                except BaseException as error:
                    reason += f"; then, restarting: {told(error)}"
                    is_over = True
            if is_over:
                give_up(reason)
                actor.disown(ActorGivenUp(reason))
                return
            crash = ActorCrashed(reason)
            crash.is_excess = is_excess
            actor.disown(crash)

    def forgive(self) -> None:
        """Count the crashes so far no longer: what caused them is known, and gone."""
        self._crashes.clear()

    def _is_too_often(self, error: BaseException) -> bool:
        if isinstance(error, ActorCrashed):  # the crash of another, which has been counted
            return False
        now = asyncio.get_running_loop().time()
        self._crashes.append(now)
        while self._crashes[0] <= now - self._period_s:
            self._crashes.popleft()
        return len(self._crashes) > self._max_restarts


def _was_sent(error: BaseException, task: "asyncio.Task[None]") -> bool:
    """Tell whether an actor was ended from outside: its task cancelled, or its coroutine closed.

    A pass can raise the same two errors by itself, and is then as any pass that raises.
    """
    match error:
        case asyncio.CancelledError():
            return task.cancelling() > 0
        case GeneratorExit():
            try:
                return asyncio.current_task() is not task
            except RuntimeError:  # no loop runs any more
                return True
        case _:
            return False

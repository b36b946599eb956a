"""Cells that run on the machines of a Ray cluster."""

from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import Any, TypeVar

from models.extras import need
from sims.sweep.executor import WorkerDied

T = TypeVar("T")
R = TypeVar("R")


class RayPool:
    """The cluster that this process is connected to. Every machine of it has the project, in the same version."""

    def __init__(self) -> None:
        self._ray = need("ray", "ray")
        self._errors = need("ray.exceptions", "ray")
        self._num_workers = max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    @property
    def num_workers(self) -> int:
        """How many items are worked on at a time: one on each core of the cluster."""
        return self._num_workers

    def run(self, task: Callable[[T], R], items: Iterable[T]) -> Generator[tuple[T, R | Exception], None, None]:
        """Run the task over the items; see `Executor.run`. An item is tried once: what kills a worker would again."""
        remote = self._ray.remote(_call).options(max_retries=0)
        left, sent = iter(items), self._ray.put(task)
        running: dict[Any, T] = {}
        try:
            while True:
                for item in islice(left, self._num_workers - len(running)):
                    running[remote.remote(sent, item)] = item
                if not running:
                    return
                done, _ = self._ray.wait(list(running), num_returns=1)
                for answer in done:
                    yield running.pop(answer), self._answer(answer)
        finally:
            for answer in running:
                self._ray.cancel(answer, force=True)

    def _answer(self, answer: Any) -> Any:
        """Give what a task gave, or the exception that it raised itself."""
        try:
            return self._ray.get(answer)
        except self._errors.RayTaskError as error:
            return error.cause if isinstance(error.cause, Exception) else error
        except (self._errors.WorkerCrashedError, self._errors.NodeDiedError) as error:
            return WorkerDied(f"its process was killed, or ended itself: {str(error).splitlines()[0]}")


def _call(task: Callable[[T], R], item: T) -> R:
    return task(item)

"""Where the cells of a sweep run: here, in processes of their own, or wherever an executor takes them."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from itertools import islice
from typing import Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class WorkerDied(RuntimeError):
    """The process that worked on an item ended before it had an answer."""


class Executor(Protocol):
    """Runs one task over many items."""

    @property
    def num_workers(self) -> int:
        """How many items are worked on at a time."""

    def run(self, task: Callable[[T], R], items: Iterable[T]) -> Generator[tuple[T, R | Exception], None, None]:
        """Give each item with what the task gave for it, or raised, as they are done and in whatever order.

        Task, items and answers can be pickled; the task is found by its module and name. Items are taken as workers
        come free. An item whose worker died is given with WorkerDied. Whoever closes the iterator, or is interrupted
        in it, ends what still runs.
        """


class LocalPool:
    """Processes on this machine. They end when this one does, however it ends."""

    def __init__(self, num_workers: int) -> None:
        self._num_workers = num_workers

    @property
    def num_workers(self) -> int:
        """How many items are worked on at a time."""
        return self._num_workers

    def run(self, task: Callable[[T], R], items: Iterable[T]) -> Generator[tuple[T, R | Exception], None, None]:
        """Run the task over the items; see `Executor.run`."""
        items, suspects = iter(items), list[T]()
        while True:
            yield from self._run_until_broken(task, items, suspects, self._num_workers)
            if not suspects:
                return
            #   one of those that ran when a worker died has killed it: alone, each answers for itself
            alone, suspects = suspects, []
            for item in alone:
                killed = list[T]()
                yield from self._run_until_broken(task, iter([item]), killed, 1)
                if killed:
                    yield item, WorkerDied("its process was killed, or ended itself")

    def _run_until_broken(
        self, task: Callable[[T], R], items: Iterator[T], suspects: list[T], num_workers: int
    ) -> Iterator[tuple[T, R | Exception]]:
        """Run until all is done, or a worker has died: then those without an answer are the suspects."""
        before = set(multiprocessing.active_children())
        context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
        pool = ProcessPoolExecutor(num_workers, context, _end_with_parent)
        running: dict[Future[R], T] = {}
        try:
            while not suspects:
                for item in islice(items, num_workers - len(running)):
                    running[pool.submit(task, item)] = item
                if not running:
                    return
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in sorted(done, key=list(running).index):
                    item, error = running.pop(future), future.exception()
                    if isinstance(error, BrokenExecutor):
                        suspects.append(item)
                    elif isinstance(error, Exception):
                        yield item, error
                    else:
                        yield item, future.result()
            suspects += running.values()
        finally:
            for worker in set(multiprocessing.active_children()) - before:
                worker.terminate()
            pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """Prepare a worker: an interrupt is the parent's to hear, and who has lost its parent works for nobody."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()

"""Many seeds, one after the other: what was covered, what was found, and a summary that can be taken up again."""

import itertools
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec

from sims.errors import SimError
from sims.explore.coverage import Coverage
from sims.explore.draw import draw
from sims.explore.run import Outcome, run
from sims.explore.scenario import Scenario, to_json
from sims.explore.shrink import shrink
from sims.explore.twice import run_twice
from sims.sweep.executor import Executor

_MOST_OTHERS = 20


class Failure(msgspec.Struct):
    """A kind of failure: the first seed that showed it, and the smallest scenario found that breaks the same law.

    Of one kind are those that break the same law and say the same of it but for the numbers, or died at the same place.
    """

    seed: int
    law: str
    what: str
    scenario: str
    traceback: str = ""
    """Of what died, if something did."""
    num_seeds: int = 1
    others: list[int] = []
    """The next seeds that showed it, a few."""

    @property
    def kind(self) -> tuple[str, str]:
        """What tells it from other kinds."""
        place = re.findall(r'File "([^"]+)", line (\d+)', self.traceback)[-1:]
        said = re.sub(r"\d+(, \d+)*", "#", self.what)
        return self.law, f"{place[0]} {said.partition(': ')[2]}" if place else said


class Campaign(msgspec.Struct):
    """Where a campaign stands; all times are wall seconds."""

    next_seed: int = 0
    num_runs: int = 0
    num_messages: int = 0
    num_callbacks: int = 0
    seconds: float = 0.0
    coverage: Coverage = msgspec.field(default_factory=Coverage)
    failures: list[Failure] = []
    """One for each kind."""

    @property
    def num_failed(self) -> int:
        """Seeds that broke a law."""
        return sum(found.num_seeds for found in self.failures)

    @property
    def runs_per_s(self) -> float:
        """Scenarios explored per second."""
        return self.num_runs / self.seconds if self.seconds else 0.0

    def go_on(
        self,
        seeds: Iterable[int],
        *,
        twice: bool = False,
        shrinks: bool = True,
        until_s: float | None = None,
        after_each: Callable[["Campaign"], None] | None = None,
        executor: Executor | None = None,
    ) -> None:
        """Explore seeds until there are no more, or `time.monotonic()` is past `until_s`.

        With `twice` each is run a second time, and must give the same messages. An executor runs seeds elsewhere, many
        at a time; what comes of them is taken in the order of the seeds, and findings are made smaller here, so that a
        campaign over the same seeds comes to the same, wherever it ran. Raises SimError for a seed that killed its
        worker.
        """
        run_one = run_twice if twice else run
        last_s = time.monotonic()
        timely = itertools.takewhile(lambda _: until_s is None or time.monotonic() < until_s, seeds)
        for seed, outcome in _outcomes(partial(_run_seed, run_one), timely, executor):
            self._take(seed, outcome, run_one, after_each, shrinks=shrinks)
            now_s = time.monotonic()
            self.seconds += now_s - last_s
            last_s = now_s
            if after_each is not None:
                after_each(self)

    def _take(
        self,
        seed: int,
        outcome: Outcome,
        run: Callable[[Scenario], Outcome],
        after_each: Callable[["Campaign"], None] | None,
        *,
        shrinks: bool,
    ) -> None:
        self.num_runs += 1
        self.next_seed = seed + 1  # what is broken off from here on is known by what was found
        self.num_messages += outcome.num_messages
        self.num_callbacks += outcome.num_callbacks
        self.coverage.add(outcome.coverage)
        if outcome.violation is not None:
            law, what, died = outcome.violation.law, outcome.violation.what, outcome.violation.traceback
            scenario = draw(seed)
            found = Failure(seed, law, what, to_json(scenario), died)
            for known in self.failures:
                if known.kind == found.kind:
                    known.num_seeds += 1
                    known.others += [seed] if len(known.others) < _MOST_OTHERS else []
                    return

            def watched(smaller: Scenario) -> Outcome:
                if after_each is not None:
                    after_each(self)
                return run(smaller)

            self.failures.append(found)
            if shrinks:
                found.scenario = to_json(shrink(scenario, law, watched))


def _run_seed(run: Callable[[Scenario], Outcome], seed: int) -> Outcome:
    return run(draw(seed))


def _outcomes(
    run: Callable[[int], Outcome], seeds: Iterable[int], executor: Executor | None
) -> Iterator[tuple[int, Outcome]]:
    """Give what each seed came to, in the order of the seeds, here or wherever the executor runs them."""
    if executor is None:
        yield from ((seed, run(seed)) for seed in seeds)
        return
    order: deque[int] = deque()
    early: dict[int, Outcome] = {}

    def noted() -> Iterator[int]:
        for seed in seeds:
            order.append(seed)
            yield seed

    with closing(executor.run(run, noted())) as answers:
        for seed, answer in answers:
            if isinstance(answer, Exception):
                raise SimError(f"seed {seed}: {answer}") from answer
            early[seed] = answer
            while order and order[0] in early:
                yield order[0], early.pop(order.popleft())


def load(path: Path) -> Campaign:
    """Read a campaign's summary, or begin one where there is no file. Raises SimError for a file that is none."""
    if not path.exists():
        return Campaign()
    try:
        return msgspec.json.decode(path.read_bytes(), type=Campaign)
    except msgspec.MsgspecError as error:
        raise SimError(f"{path}: not the summary of a campaign: {error}") from None


def save(campaign: Campaign, path: Path) -> None:
    """Write a campaign's summary; whenever it is broken off, the file is the old one or the new one, whole."""
    beside = path.with_name(path.name + ".new")
    beside.write_bytes(msgspec.json.format(msgspec.json.encode(campaign)))
    os.replace(beside, path)

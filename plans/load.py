"""A choice and plain decoding under load: requests of the log as they would come.

At load the batch is not a constant: it follows from how fast requests come and go, which drafts change.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from models.checked_kv import chained, checksum
from plans.answers import LoadAnswer
from plans.errors import PlanError
from plans.gain import Cost
from plans.logs import Recording
from scheduler import NO_DRAFTS, PassCost
from sims.arrivals import Open
from sims.service import Arrival, Speculating, Targets, serve

_MOST_ROWS = 4096
_PLAIN = Speculating(NO_DRAFTS, is_adaptive=False, draft_s=0.0)


class Load(NamedTuple):
    """How requests come, and by when they should be answered."""

    rates: Sequence[float]
    times_s: Sequence[float] | None
    """Those of a trace, from its first request; in place of rates."""
    num_requests: int
    """The first so many of the log, or as many as there are."""
    seed: int
    targets: Targets


class Choice(NamedTuple):
    """What is held against plain decoding."""

    how: Speculating
    batch: int
    context: float
    """Where the engine has its costs of passes by rows from, for adaptive choice."""


def take_requests(recordings: Iterable[Recording], most: int) -> tuple[list[Recording], int]:
    """Take the first recordings that can be replayed beside each other, and count those left out on the way."""
    taken: list[Recording] = []
    following: dict[int, int] = {}
    num_left_out = 0
    for recording in recordings:
        steps = dict(_steps(recording))
        if recording.num_prompt == 0 or any(following.get(h, token) != token for h, token in steps.items()):
            num_left_out += 1
            continue
        following.update(steps)
        taken.append(recording)
        if len(taken) == most:
            break
    return taken, num_left_out


def _steps(recording: Recording) -> Iterable[tuple[int, int]]:
    """Give for each context of the answer its checksum and the token that follows."""
    tokens = recording.tokens.tolist()
    h = checksum(tokens[: recording.num_prompt])
    for token in tokens[recording.num_prompt :]:
        yield h, token
        h = chained(h, token)


def answer_load(
    taken: Sequence[Recording], choice: Choice, cost: Cost, load: Load, watch: Callable[[str, int], None]
) -> list[LoadAnswer]:
    """Serve the requests at every rate, plainly and with the choice. PlanError for fewer than two requests."""
    if len(taken) < 2:
        raise PlanError(f"load: {len(taken)} requests of the log can be served beside each other: at least 2")
    known_cost = _by_rows(cost, choice.batch, choice.context)

    def pass_s(num_rows: int, batch: int, context: float) -> float:
        return float(cost.pass_s(np.array([float(num_rows)]), batch, context)[0])

    rates: Sequence[float | None] = load.rates if load.times_s is None else [None]
    answers = []
    for rate in rates:
        times_s: Iterable[float] = load.times_s or ()
        if rate is not None:
            times_s = Open(rate).times_s(np.random.default_rng(load.seed))
        arriving = [Arrival(at_s, *_parts(each)) for at_s, each in zip(times_s, taken, strict=False)]
        at_rate = "" if rate is None else f" at {rate:g} a second"
        plain, drafted = (
            serve(arriving, how, pass_s, known_cost, load.targets, partial(watch, f"requests served {name}{at_rate}"))
            for name, how in (("plainly", _PLAIN), ("with drafts", choice.how))
        )
        num_tokens = sum(len(arrival.completion) for arrival in arriving)
        speed = plain.mean_e2e_ms / drafted.mean_e2e_ms
        answers.append(LoadAnswer(rate, len(arriving), num_tokens, plain, drafted, speed))
    return answers


def _parts(recording: Recording) -> tuple[list[int], list[int]]:
    tokens = recording.tokens.tolist()
    return tokens[: recording.num_prompt], tokens[recording.num_prompt :]


def _by_rows(cost: Cost, batch: int, context: float) -> PassCost:
    """Give the table of costs that an engine has of its machine: rows beside those of a batch of plain rounds."""
    rows = np.unique(np.geomspace(1, _MOST_ROWS, 49).astype(int))
    seconds = np.maximum.accumulate(cost.pass_s(rows.astype(float), batch, context))
    return PassCost(tuple(rows.tolist()), tuple(seconds.tolist()))

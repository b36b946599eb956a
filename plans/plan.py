"""The plan: what each method would gain on a log, on a machine, and what to configure."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from plans.adaptive import AdaptiveReplay
from plans.advice import NO_DRAFTS, advice
from plans.errors import PlanError
from plans.gain import Cost, Given, plain_s, speedups
from plans.logs import Log
from plans.methods import BEST, ORACLE, Config, Method
from plans.replay import NUM_LENGTHS, Replay
from plans.tally import Tally, interval

SPEED_EDGES = tuple(float(2**x) for x in np.linspace(-2, 4, 25))
"""Between which speed-ups requests are counted; what lies beyond counts at the ends."""

_MOST_CATEGORIES = 32
OTHER = "(other)"

Verdict = Literal["gains", "costs", "unclear"]


class Estimate(msgspec.Struct, frozen=True):
    """A value, and between which values it would lie for 95 of 100 logs of the same kind; None where unknown."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def verdict(self) -> Verdict:
        """Say of a speed-up whether it gains or costs, and not by chance."""
        if (self.value if self.low is None else self.low) > 1:
            return "gains"
        return "costs" if (self.value if self.high is None else self.high) < 1 else "unclear"


class SizeAnswer(msgspec.Struct, frozen=True):
    """A method with drafts of at most `size` tokens, or a limit, of size 0."""

    method: str
    size: int
    tokens_per_round: Estimate
    drafted_per_token: float
    accept_rate: float
    drafted_by_position: list[int]
    """Rounds that drafted at least 1, 2, ... tokens (nodes, where drafts are trees)."""
    accepted_by_position: list[int]
    """Rounds of which at least 1, 2, ... drafted tokens were accepted."""
    speed: list[Estimate]
    """Speed-up at each of the plan's batches."""
    costs_from: int | None
    """The first batch at which it is slower than plain decoding; None where it is at none."""
    requests_by_speed: list[int]
    """Requests by their own speed-up at the batch that is planned for, between `speed_edges`."""


class BatchAnswer(msgspec.Struct, frozen=True):
    """What is best at a batch."""

    batch: int
    plain_ms: float
    """Milliseconds of a pass without drafts."""
    method: str
    size: int
    speed: Estimate
    adaptive: Estimate | None
    """The best method that was replayed, with drafts of up to the largest size, cut as the engine cuts them."""
    adaptive_method: str | None
    verdict: Verdict


class CategoryAnswer(msgspec.Struct, frozen=True):
    """What the recommended method, or the best one where none is, does for a kind of request."""

    category: str
    num_requests: int
    num_tokens: int
    tokens_per_round: Estimate
    speed: Estimate
    verdict: Verdict


class Recommendation(msgspec.Struct, frozen=True):
    """What to configure."""

    batch: int
    """For which it is."""
    method: str | None
    """None: do not speculate."""
    size: int
    is_adaptive: bool
    speed: Estimate | None
    costs_from: int | None
    reason: str
    configuration: dict[str, str]
    """By engine: what to write."""


class LogAnswer(msgspec.Struct, frozen=True):
    """What the plan rests on."""

    num_requests: int
    num_tokens: int
    num_prompt_tokens: int
    mean_context: float
    unused: dict[str, int]
    tokenizer: str | None
    """None where the log has token ids."""
    is_approximate: bool
    warnings: list[str]


class Plan(msgspec.Struct, frozen=True):
    """The answer."""

    log: LogAnswer
    cost: list[str]
    batches: list[int]
    speed_edges: list[float]
    methods: dict[str, str]
    """About each method."""
    sizes: list[SizeAnswer]
    limits: list[SizeAnswer]
    best: list[BatchAnswer]
    categories: list[CategoryAnswer]
    recommendation: Recommendation


class Asked(NamedTuple):
    """What a plan is made of, beside the log."""

    methods: Sequence[Method]
    sizes: Sequence[int]
    given: Sequence[Given]
    cost: Cost
    batches: Sequence[int]
    batch: int
    """To recommend for."""


class _Replayed:
    """The sums over a log, in all and by category."""

    def __init__(self) -> None:
        self.whole = Tally()
        self.categories: dict[str, Tally] = {}
        self.by_speed: np.ndarray[tuple[int, int], np.dtype[np.int64]] | None = None


def make_plan(log: Log, asked: Asked, watch: Callable[[str, int], None] = lambda what, num: None) -> Plan:
    """Go through the log, twice where there is adaptive choice to replay, and answer.

    `watch` is told what is being done and how many requests are. PlanError for a log with nothing to use.
    """
    replay = Replay(asked.methods, asked.sizes)
    draft_us = np.array([_draft_us(config, asked.methods) for config in replay.configs])
    replayed = _replay(log, replay, draft_us, asked, watch)
    whole = replayed.whole
    if not whole.num_tokens:
        raise PlanError("the log has no tokens of answers")
    unused = dict(log.unused)
    context = whole.mean_context
    answers = _sizes(replay.configs, replayed, draft_us, asked)
    answers += [_given(given, size, asked, context) for given in asked.given for size in range(1, len(given.rates) + 1)]
    choices = [answer for answer in answers if answer.size]
    replayed_ones = [answer for answer in choices if answer.drafted_by_position]
    entries = [
        (batch, method)
        for i, batch in enumerate(asked.batches)
        for method in asked.methods
        if method.name == max(replayed_ones, key=lambda a, i=i: a.speed[i].value).method  # type: ignore[misc]
    ]
    adaptive = _adaptive(log, entries, asked, context, watch) if entries else {}
    of_adaptive = {batch: method.name for batch, method in entries}
    best = []
    for i, batch in enumerate(asked.batches):
        top = max(choices, key=lambda answer: answer.speed[i].value)
        plain_ms = plain_s(asked.cost, batch, context) * 1e3
        speed = top.speed[i]
        cut = adaptive.get(batch)
        verdict = cut.verdict if cut is not None and cut.value > speed.value else speed.verdict
        best.append(BatchAnswer(batch, plain_ms, top.method, top.size, speed, cut, of_adaptive.get(batch), verdict))
    recommendation = _recommend(best, choices, asked)
    of = next(answer for answer in best if answer.batch == asked.batch)
    config = Config(of.method, of.size)
    categories = []
    if config in replay.configs:
        at = replay.configs.index(config)
        categories = [
            _category(name, tally, at, draft_us, asked) for name, tally in sorted(replayed.categories.items())
        ]
    return Plan(
        LogAnswer(whole.num_requests, whole.num_tokens, whole.num_prompt_tokens, context, unused, *log.told()),
        asked.cost.explain() + _explain_drafts(asked),
        list(asked.batches),
        list(SPEED_EDGES),
        {method.name: method.about for method in asked.methods} | {given.name: "as given" for given in asked.given},
        choices,
        [answer for answer in answers if not answer.size],
        best,
        categories,
        recommendation,
    )


def _replay(
    log: Log, replay: Replay, draft_us: np.ndarray[tuple[int], np.dtype[np.float64]], asked: Asked,
    watch: Callable[[str, int], None],
) -> _Replayed:  # fmt: skip
    replayed = _Replayed()
    edges = np.array(SPEED_EDGES[1:-1])
    by_speed = np.zeros((len(replay.configs), len(SPEED_EDGES) - 1), np.int64)
    rows = np.arange(len(replay.configs))
    for number, recording in enumerate(log):
        watch("requests replayed", number)
        rounds = replay.rounds(recording)
        replayed.whole.add(number, recording, rounds)
        n = recording.num_completion
        context = recording.num_prompt + (n - 1) / 2
        speeds = speedups(rounds.astype(float), np.array(float(n)), draft_us, asked.cost, asked.batch, context)
        by_speed[rows, np.searchsorted(edges, speeds)] += 1
        if recording.category is not None:
            name = recording.category
            if name not in replayed.categories and len(replayed.categories) >= _MOST_CATEGORIES:
                name = OTHER
            replayed.categories.setdefault(name, Tally()).add(number, recording, rounds)
    replayed.by_speed = by_speed
    return replayed


def _adaptive(
    log: Log, entries: Sequence[tuple[int, Method]], asked: Asked, context: float, watch: Callable[[str, int], None]
) -> dict[int, Estimate]:
    replay = AdaptiveReplay(entries, asked.sizes[-1], asked.cost, context)
    tally = Tally()
    for number, recording in enumerate(log):
        watch("requests replayed with adaptive drafts", number)
        tally.add(number, recording, replay.rounds(recording))
    draft_us = np.array([method.draft_us for _, method in entries])
    return {
        batch: _estimate(
            speedups(tally.rounds, tally.tokens, draft_us, asked.cost, batch, context)[:, i], tally.num_requests
        )
        for i, (batch, _) in enumerate(entries)
    }


def _estimate(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], num_requests: int) -> Estimate:
    return Estimate(float(values[0]), *(interval(values[1:], num_requests) or (None, None)))


def _sizes(
    configs: Sequence[Config], replayed: _Replayed, draft_us: np.ndarray[tuple[int], np.dtype[np.float64]], asked: Asked
) -> list[SizeAnswer]:
    whole, by_speed = replayed.whole, replayed.by_speed
    assert by_speed is not None
    rounds, tokens, num = whole.rounds, whole.tokens, whole.num_requests
    with np.errstate(invalid="ignore", divide="ignore"):
        per_round = tokens[:, None] / rounds[:, :, 0].sum(axis=-1)
    speeds = [speedups(rounds, tokens, draft_us, asked.cost, batch, whole.mean_context) for batch in asked.batches]
    answers = []
    for i, config in enumerate(configs):
        of_batches = [_estimate(of_batch[:, i], num) for of_batch in speeds]
        drafted, accepted = rounds[0, i]
        lengths = np.arange(NUM_LENGTHS)
        num_drafted, num_accepted = float(drafted @ lengths), float(accepted @ lengths)
        most = config.size or asked.sizes[-1]
        answers.append(
            SizeAnswer(
                config.method,
                config.size,
                _estimate(per_round[:, i], num),
                num_drafted / whole.num_tokens,
                num_accepted / num_drafted if num_drafted else 0.0,
                [int(drafted[j:].sum()) for j in range(1, most + 1)],
                [int(accepted[j:].sum()) for j in range(1, most + 1)],
                of_batches,
                _costs_from(asked.batches, of_batches),
                by_speed[i].tolist(),
            )
        )
    return answers


def _given(given: Given, size: int, asked: Asked, context: float) -> SizeAnswer:
    per_round = given.tokens_per_round(size)
    speed = [Estimate(given.speedup(size, asked.cost, batch, context)) for batch in asked.batches]
    return SizeAnswer(
        given.name,
        size,
        Estimate(per_round),
        size / per_round,
        (per_round - 1) / size,
        [],
        [],
        speed,
        _costs_from(asked.batches, speed),
        [],
    )


def _category(
    name: str, tally: Tally, at: int, draft_us: np.ndarray[tuple[int], np.dtype[np.float64]], asked: Asked
) -> CategoryAnswer:
    rounds, num = tally.rounds[:, at : at + 1], tally.num_requests
    with np.errstate(invalid="ignore", divide="ignore"):
        per_round = tally.tokens / rounds[:, 0, 0].sum(axis=-1)
    speed = _estimate(
        speedups(rounds, tally.tokens, draft_us[at : at + 1], asked.cost, asked.batch, tally.mean_context)[:, 0], num
    )
    return CategoryAnswer(name, num, tally.num_tokens, _estimate(per_round, num), speed, speed.verdict)


def _recommend(best: Sequence[BatchAnswer], choices: Sequence[SizeAnswer], asked: Asked) -> Recommendation:
    of = next(answer for answer in best if answer.batch == asked.batch)
    is_adaptive = of.adaptive is not None and of.adaptive.value > of.speed.value
    speed = of.adaptive if is_adaptive and of.adaptive is not None else of.speed
    config = Config(of.method, of.size)
    if is_adaptive and of.adaptive_method is not None:
        config = Config(of.adaptive_method, asked.sizes[-1])
    chosen = next(answer for answer in choices if (answer.method, answer.size) == (of.method, of.size))
    if of.verdict != "gains":
        reason = (
            f"do not: at batch {of.batch} the best choice, {config.name}, gives {speed.value:.2f}x"
            + (f" ({speed.low:.2f} to {speed.high:.2f})" if speed.low is not None else "")
            + (", which may be chance" if of.verdict == "unclear" else "")
        )
        return Recommendation(of.batch, None, 0, False, speed, chosen.costs_from, reason, NO_DRAFTS)
    known: list[Method | Given] = [*asked.methods, *asked.given]
    method = next(method for method in known if method.name == config.method)
    reason = f"{config.name}{', adaptive' if is_adaptive else ''}: {speed.value:.2f}x at batch {of.batch}" + (
        f" ({speed.low:.2f} to {speed.high:.2f})" if speed.low is not None else ""
    )
    return Recommendation(
        of.batch,
        config.method,
        config.size,
        is_adaptive,
        speed,
        chosen.costs_from,
        reason,
        advice(config, method, is_adaptive=is_adaptive),
    )


def _costs_from(batches: Sequence[int], speed: Sequence[Estimate]) -> int | None:
    return next((batch for batch, at in zip(batches, speed, strict=True) if at.value < 1), None)


def _draft_us(config: Config, methods: Sequence[Method]) -> float:
    if config.method == BEST:
        return 0.0
    name = config.method.removesuffix(f", {ORACLE}")
    return next(method.draft_us for method in methods if method.name == name)


def _explain_drafts(asked: Asked) -> list[str]:
    lines = [f"a draft of {method.name} takes {method.draft_us:g} us of a sequence's round" for method in asked.methods]
    return lines + [f"a token of {given.name} takes {given.step:g} of a plain pass to draft" for given in asked.given]

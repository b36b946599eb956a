"""The plan: what each method would gain on a log, on a machine, and what to configure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple, TypeVar

import numpy as np

from models.protocol import Model
from plans.adaptive import AdaptiveReplay
from plans.advice import NO_DRAFTS, advice
from plans.answers import BatchAnswer, Estimate, LoadAnswers, LogAnswer, Plan, Recommendation, SampleAnswer, SizeAnswer
from plans.counted import SPEED_EDGES, Counted, costs_from, estimate
from plans.errors import PlanError
from plans.gain import Cost, Given, Rows, plain_s, speedups
from plans.load import Choice, Load, answer_load, take_requests
from plans.logs import Log, Recording
from plans.methods import BEST, ORACLE, Config, Method
from plans.model_replay import ModelMethod, ModelReplay
from plans.replay import Replay
from plans.sample import Reservoir
from plans.shards import NUM_REQUESTS, STARTS_OVER, AdaptiveShard, ReplayShard, Shard, shards
from plans.tally import Tally
from sims.service import Speculating
from sims.sweep.executor import Executor, WorkerDied

R = TypeVar("R")


class Models(NamedTuple):
    """Methods that are measured by running them on a sample of the log."""

    target: Model
    """It keeps the hidden states that they read."""
    name: str
    methods: Sequence[ModelMethod]
    num_sampled: int
    seed: int


class Asked(NamedTuple):
    """What a plan is made of, beside the log."""

    methods: Sequence[Method]
    sizes: Sequence[int]
    given: Sequence[Given]
    cost: Cost
    batches: Sequence[int]
    batch: int
    """To recommend for."""
    models: Models | None = None
    load: Load | None = None


Watch = Callable[[str, int], None]
"""Is told what is being done, and how many requests are."""


def make_plan(log: Log, asked: Asked, watch: Watch = lambda what, num: None, executor: Executor | None = None) -> Plan:
    """Go through the log, twice where there is adaptive choice to replay, and answer.

    With an `executor` drafts of text are replayed there, in shards. PlanError for a log with nothing to use, or with
    none that a model can be run on.
    """
    replay = Replay(asked.methods, asked.sizes)
    of_text = Counted(replay.configs, _TextDrafts(replay.configs, asked.methods), asked.cost, asked.batch)
    sampling = _Sampling(asked.models, asked) if asked.models is not None else None
    offered = _offered(log, sampling)
    if executor is None:
        for number, recording in enumerate(offered):
            watch("requests replayed", number)
            of_text.add(number, recording, replay.rounds(recording))
    else:
        task = ReplayShard(asked.methods, asked.sizes, of_text.draft_s, asked.cost, asked.batch)
        for counts in _in_shards(task.replay, offered, executor):
            of_text.merge(counts)
            watch("requests replayed", of_text.whole.num_requests)
    whole = of_text.whole
    if not whole.num_tokens:
        raise PlanError("the log has no tokens of answers")
    unused = dict(log.unused)
    told, is_approximate, warnings = log.told()
    if executor is not None and whole.num_requests > NUM_REQUESTS:
        warnings.append(STARTS_OVER)
    counted = [of_text]
    sample = None
    if sampling is not None:
        sample = sampling.run(watch, is_of_ids=not log.has_text)
        counted.append(sampling.counted)
    context = whole.mean_context
    answers = [answer for each in counted for answer in each.sizes(asked.batches, asked.sizes[-1])]
    answers += [_given(given, size, asked, context) for given in asked.given for size in range(1, len(given.rates) + 1)]
    choices = [answer for answer in answers if answer.size]
    names = {method.name for method in asked.methods}
    of_texts = [answer for answer in choices if answer.method in names]
    entries = [
        (batch, method)
        for i, batch in enumerate(asked.batches)
        for method in asked.methods
        if method.name == max(of_texts, key=lambda a, i=i: a.speed[i].value).method  # type: ignore[misc]
    ]
    adaptive = _adaptive(log, entries, asked, context, watch, executor) if entries else {}
    of_adaptive = {batch: method.name for batch, method in entries}
    best = []
    for i, batch in enumerate(asked.batches):
        top = max(choices, key=lambda answer: answer.speed[i].value)
        plain_ms = plain_s(asked.cost, batch, context) * 1e3
        speed = top.speed[i]
        cut = adaptive.get(batch)
        verdict = cut.verdict if cut is not None and cut.value > speed.value else speed.verdict
        best.append(BatchAnswer(batch, plain_ms, top.method, top.size, speed, cut, of_adaptive.get(batch), verdict))
    of = next(answer for answer in best if answer.batch == asked.batch)
    config = Config(of.method, of.size)
    recommendation = _recommend(best, choices, asked)
    return Plan(
        LogAnswer(
            whole.num_requests,
            whole.num_tokens,
            whole.num_prompt_tokens,
            context,
            unused,
            told,
            is_approximate,
            warnings,
            sample,
        ),
        asked.cost.explain() + _explain_drafts(asked),
        list(asked.batches),
        list(SPEED_EDGES),
        {method.name: method.about for method in asked.methods}
        | {method.name: method.about for method in _models(asked)}
        | {
            given.name: f"a method with given rates of acceptance: {', '.join(map(str, given.rates))}"
            for given in asked.given
        },
        choices,
        [answer for answer in answers if not answer.size],
        best,
        next((each.by_category(config) for each in counted if config in each.configs), []),
        recommendation,
        None
        if asked.load is None
        else _under_load(log, recommendation, of, of_texts, asked, asked.load, context, watch),
    )


class _TextDrafts:
    """What drafts of text cost: each sequence drafts after the other."""

    def __init__(self, configs: Sequence[Config], methods: Sequence[Method]) -> None:
        self._each_s = np.array([_draft_us(config, methods) for config in configs]) * 1e-6

    def __call__(self, batch: int, context: float) -> Rows:
        """Give the seconds of a batch's drafts: `[configs]`."""
        del context
        return batch * self._each_s


class _Sampling:
    """Some of the requests of a log, and the models that are run on them."""

    def __init__(self, models: Models, asked: Asked) -> None:
        self._models = models
        self._replay = ModelReplay(models.target, models.methods, asked.sizes)
        self._reservoir = Reservoir(models.num_sampled, models.seed)
        self._num_left_out = 0
        self.counted = Counted(self._replay.configs, self._draft_s, asked.cost, asked.batch)

    def offer(self, recording: Recording) -> None:
        """Let a request be drawn, if models can be run on it."""
        if self._replay.can_take(recording):
            self._reservoir.offer(recording)
        else:
            self._num_left_out += 1

    def run(self, watch: Watch, *, is_of_ids: bool) -> SampleAnswer:
        """Run the models on what was drawn. PlanError for nothing, and for ids that are not the target's."""
        recordings = self._reservoir.recordings()
        if not recordings:
            raise PlanError(
                f"no request that {self._models.name} could be run on: all {self._num_left_out:,} have no prompt or "
                "more tokens than the models have places for"
            )
        for number, recording in enumerate(recordings):
            watch("requests replayed with models", number)
            self.counted.add(number, recording, self._replay.rounds(recording))
        if is_of_ids:
            self._replay.check()
        whole, replay = self.counted.whole, self._replay
        return SampleAnswer(
            whole.num_requests,
            whole.num_tokens,
            self._num_left_out,
            self._models.seed,
            self._models.name,
            replay.best_share,
            replay.mean_logprob,
        )

    def _draft_s(self, batch: int, context: float) -> Rows:
        methods = {method.name: method for method in self._models.methods}
        return np.array([methods[name].draft_s(size, batch, context) for name, size in self._replay.configs])


def _offered(log: Log, sampling: "_Sampling | None") -> Iterator[Recording]:
    """Go through the log, and let models have their sample."""
    for recording in log:
        if sampling is not None:
            sampling.offer(recording)
        yield recording


def _in_shards(task: Callable[[Shard], R], recordings: Iterable[Recording], executor: Executor) -> Iterator[R]:
    """Give the sums of every shard. Raises what a task raised, or PlanError for a worker that died."""
    with closing(executor.run(task, shards(recordings))) as answers:
        for shard, answer in answers:
            if isinstance(answer, WorkerDied):
                raise PlanError(f"a worker died at requests {shard.first} and on: {answer}")
            if isinstance(answer, Exception):
                raise answer
            yield answer


def _adaptive(
    log: Log,
    entries: Sequence[tuple[int, Method]],
    asked: Asked,
    context: float,
    watch: Watch,
    executor: Executor | None,
) -> dict[int, Estimate]:
    what = "requests replayed with adaptive drafts"
    tally = Tally()
    if executor is None:
        replay = AdaptiveReplay(entries, asked.sizes[-1], asked.cost, context)
        for number, recording in enumerate(log):
            watch(what, number)
            tally.add(number, recording, replay.rounds(recording))
    else:
        task = AdaptiveShard(entries, asked.sizes[-1], asked.cost, context)
        for sums in _in_shards(task.replay, log, executor):
            tally.merge(sums)
            watch(what, tally.num_requests)
    each_s = np.array([method.draft_us for _, method in entries]) * 1e-6
    return {
        batch: estimate(
            speedups(tally.rounds, tally.tokens, batch * each_s, asked.cost, batch, context)[:, i], tally.num_requests
        )
        for i, (batch, _) in enumerate(entries)
    }


def _under_load(
    log: Log,
    recommendation: Recommendation,
    best: BatchAnswer,
    of_texts: Sequence[SizeAnswer],
    asked: Asked,
    load: Load,
    context: float,
    watch: Watch,
) -> LoadAnswers:
    """Serve requests of the log plainly and as recommended; where that needs a model, with the best drafts of text."""
    methods = {method.name: method for method in asked.methods}
    at = asked.batches.index(asked.batch)
    is_recommended = recommendation.method in methods
    is_adaptive = recommendation.is_adaptive
    if is_recommended and recommendation.method is not None:
        config = Config(recommendation.method, recommendation.size)
    else:
        top = max(of_texts, key=lambda answer: answer.speed[at].value)
        is_adaptive = best.adaptive is not None and best.adaptive.value > top.speed[at].value
        config = Config(top.method, asked.sizes[-1] if is_adaptive else top.size)
    method = methods[config.method]
    how = Speculating(method.config(config.size), is_adaptive, method.draft_us * 1e-6)
    choice = Choice(how, asked.batch, context)
    taken, num_left_out = take_requests(log, load.num_requests)
    answers = answer_load(taken, choice, asked.cost, load, watch)
    name = config.name + (", adaptive" if is_adaptive else "")
    return LoadAnswers(name, is_recommended, *load.targets, num_left_out, answers)


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
        costs_from(asked.batches, speed),
        [],
    )


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
    known: list[Method | Given | ModelMethod] = [*asked.methods, *asked.given, *_models(asked)]
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


def _draft_us(config: Config, methods: Sequence[Method]) -> float:
    if config.method == BEST:
        return 0.0
    name = config.method.removesuffix(f", {ORACLE}")
    return next(method.draft_us for method in methods if method.name == name)


def _explain_drafts(asked: Asked) -> list[str]:
    lines = [f"a draft of {method.name} takes {method.draft_us:g} us of a sequence's round" for method in asked.methods]
    for method in _models(asked):
        for layer in dict.fromkeys((method.first, method.later)):
            what, *details = layer.explain()
            lines += [f"a layer of {method.name} drafts: {what}"]
            lines += [f"    {line}" for line in details if method.top == 1]  # those of a tree are the same
    return lines + [f"a token of {given.name} takes {given.step:g} of a plain pass to draft" for given in asked.given]


def _models(asked: Asked) -> Sequence[ModelMethod]:
    return asked.models.methods if asked.models is not None else ()

"""A log replayed in shards: the sums of the whole to the last bit, and what is learnt starts over with each."""

import json
import pickle

import numpy as np
import pytest

from plans import plan, shards
from plans.counted import Counted
from plans.errors import PlanError
from plans.logs import Log, Recording
from plans.methods import methods
from plans.plan import Asked, make_plan
from plans.replay import Replay
from plans.shards import STARTS_OVER, ReplayShard, Shard
from plans.tokens import Words
from sims.sweep.executor import WorkerDied
from tests.plans.test_load import PerPass
from tests.plans.test_plan import write

KNOWN = methods()
ALONE = [KNOWN[name] for name in ("lookup", "lookup-earliest", "ngram", "suffix", "suffix-tree")]


class Elsewhere:
    """Runs what comes to it by pickle, the last first."""

    num_workers = 2

    def run(self, task, items):
        task, items = pickle.loads(pickle.dumps(task)), list(items)
        self.num_items = len(items)
        for item in reversed(items):
            yield item, pickle.loads(pickle.dumps(task(pickle.loads(pickle.dumps(item)))))


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch):
    monkeypatch.setattr(shards, "NUM_REQUESTS", 9)
    monkeypatch.setattr(plan, "NUM_REQUESTS", 9)


@pytest.fixture
def log(tmp_path):
    rng = np.random.default_rng(0)
    rows = [
        {
            "prompt": " ".join(rng.choice(list("abcdef"), 20)),
            "completion": " ".join(rng.choice(list("abcdef"), int(rng.integers(1, 40)))),
            **({"category": f"c{i % 40}"} if i % 3 else {}),
        }
        for i in range(100)
    ]
    return Log([write(tmp_path / "log.jsonl", *rows)], None, Words(), None)


def asked(chosen):
    return Asked(chosen, [1, 3, 8], [], PerPass(row_s=0.05), [1, 4], 1)


def test_sums_of_drafts_from_a_request_alone_are_those_of_the_whole_log(log):
    elsewhere = Elsewhere()
    here, there = make_plan(log, asked(ALONE)), make_plan(log, asked(ALONE), executor=elsewhere)
    assert elsewhere.num_items == 12
    assert (there.sizes, there.limits, there.categories) == (here.sizes, here.limits, here.categories)
    assert len(there.categories) == 33, "32 names and the others"
    assert there.log.warnings == [*here.log.warnings, STARTS_OVER]
    assert json.dumps([of.speed.value for of in there.best]) == json.dumps([of.speed.value for of in here.best])


def test_a_log_of_one_shard_is_as_without(log, monkeypatch):
    monkeypatch.setattr(shards, "NUM_REQUESTS", 100)
    monkeypatch.setattr(plan, "NUM_REQUESTS", 100)
    every = asked(list(KNOWN.values()))
    assert make_plan(log, every, executor=Elsewhere()) == make_plan(log, every)


def test_finished_requests_are_those_of_the_shard():
    rng = np.random.default_rng(1)
    said = rng.integers(0, 50, 30)
    recordings = [Recording(np.array([100 + i, *said], np.int64), 1, None) for i in range(4)]
    chosen = [KNOWN["suffix-finished"]]
    task = ReplayShard(chosen, [4], lambda batch, context: np.zeros(2), PerPass(), 1)
    whole = task.replay(Shard(0, recordings))
    apart = task.replay(Shard(0, recordings[:2]))
    apart.merge(task.replay(Shard(2, recordings[2:])))
    assert (whole.whole.num_tokens, apart.whole.num_tokens) == (120, 120)
    num_rounds = [float(counted.whole.rounds[0, 0, 0].sum()) for counted in (whole, apart)]
    assert num_rounds[0] < num_rounds[1], "the first of each shard has nobody before it"
    replay = Replay(chosen, [4])
    first_two = Counted(replay.configs, lambda batch, context: np.zeros(2), PerPass(), 1)
    for number, recording in enumerate(recordings[:2]):
        first_two.add(number, recording, replay.rounds(recording))
    assert num_rounds[1] == 2 * float(first_two.whole.rounds[0, 0, 0].sum())


def test_a_worker_that_dies_or_raises_is_told_of(log):
    class Broken:
        num_workers = 1

        def __init__(self, answer):
            self.answer = answer

        def run(self, task, items):
            for item in items:
                yield item, self.answer

    with pytest.raises(PlanError, match="a worker died at requests 0 and on: killed"):
        make_plan(log, asked(ALONE), executor=Broken(WorkerDied("killed")))
    with pytest.raises(OSError, match="no room"):
        make_plan(log, asked(ALONE), executor=Broken(OSError("no room")))

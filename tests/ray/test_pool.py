import os

import pytest

pytest.importorskip("ray", reason="Ray is not installed: make test-ray")

import cli.sweep
from cli.ray_option import LOCAL, connect
from sims.explore.campaign import Campaign
from sims.sweep.executor import WorkerDied
from sims.sweep.ray_pool import RayPool
from tests.explore.test_campaign import without_time
from tests.sweep.test_sweep import Here, digests, table, write


@pytest.fixture(scope="module")
def pool():
    connect(LOCAL, min_cpus=2)
    import ray

    yield RayPool()
    ray.shutdown()


def square_or_die(number):
    if number == 2:
        os._exit(9)
    if number == 3:
        raise ValueError("three")
    return number * number


def test_every_item_is_answered_by_what_its_task_gave_or_raised_or_that_it_died(pool):
    answers = dict(pool.run(square_or_die, iter(range(6))))
    assert isinstance(answers.pop(2), WorkerDied)
    error = answers.pop(3)
    assert isinstance(error, ValueError)
    assert str(error) == "three"
    assert answers == {n: n * n for n in (0, 1, 4, 5)}


def test_items_are_taken_as_workers_come_free(pool):
    taken = []
    answers = pool.run(square_or_die, (taken.append(n) or n for n in range(10, 60)))
    next(answers)
    assert len(taken) <= 2 * pool.num_workers
    answers.close()


def test_a_campaign_on_the_cluster_comes_to_what_it_comes_to_here(pool):
    here, there = Campaign(), Campaign()
    here.go_on(range(20))
    there.go_on(range(20), executor=pool)
    assert without_time(here) == without_time(there)


def test_a_cell_has_the_same_digest_on_the_cluster_and_here(pool, tmp_path, monkeypatch):
    path = write(tmp_path)
    monkeypatch.setattr(cli.sweep, "_executor", lambda *_: Here())
    here = table(path)
    monkeypatch.setattr(cli.sweep, "_executor", lambda *_: pool)
    assert table(path, "--out", str(tmp_path / "there" / "grid.sweep")) == here
    assert digests(tmp_path / "there") == digests(tmp_path)

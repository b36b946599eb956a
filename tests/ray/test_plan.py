"""A plan on a cluster is the plan that is made here, bit for bit."""

import pytest

pytest.importorskip("ray", reason="Ray is not installed: make test-ray")

from click.testing import CliRunner

from cli.main import main
from tests.plans.test_plan import write


@pytest.fixture(autouse=True)
def _ends():
    """A command leaves Ray to end with its process."""
    import ray

    yield
    ray.shutdown()


def test_a_plan_on_the_cluster_is_that_which_is_made_here(tmp_path):
    rows = [
        {"prompt": f"a b c d e{i} a b c", "completion": "d e f a b c d e f " * (1 + i % 4), "category": f"c{i % 3}"}
        for i in range(80)
    ]
    log = str(write(tmp_path / "log.jsonl", *rows))
    here, there = (CliRunner().invoke(main, ["plan", log, "--json", "-", *more]) for more in ([], ["--ray"]))
    assert here.exit_code == there.exit_code == 0, there.output
    assert there.stdout == here.stdout

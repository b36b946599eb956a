"""What `outrider measure` writes is a cost that `outrider plan` takes."""

import json

import pytest
from click.testing import CliRunner

from cli import measure as measure_command
from cli.main import main
from models import FakeModel
from models.loading import Loaded
from plans.measured import read_costs


@pytest.fixture(autouse=True)
def _fake(monkeypatch):
    monkeypatch.setattr(
        measure_command, "load", lambda *source: Loaded(FakeModel(3, 26, 1, 30.0, max_model_len=256), None)
    )


def run(*args):
    return CliRunner().invoke(main, ["measure", *map(str, args)])


def test_points_are_of_each_batch_and_context_and_a_cost_to_plan_with(tmp_path):
    file = tmp_path / "c.json"
    options = ["--rows", "1,3", "--batches", "1,2", "--contexts", "8,32", "--repeat", "1", "--json", file]
    shown = run(*options)
    assert shown.exit_code == 0, shown.output
    points = json.loads(file.read_text())["points"]
    assert [(p["rows"], p["batch"], p["context"]) for p in points] == [
        (n * batch, batch, context) for context in (8, 32) for batch in (1, 2) for n in (1, 3)
    ]
    assert all(p["seconds"] > 0 for p in points)
    assert "6 rows, batch   2, context    32" in shown.output
    for point in points:  # a fake model's times are noise
        point["seconds"] = point["rows"] / 1e3
    file.write_text(json.dumps(json.loads(file.read_text()) | {"points": points}))
    assert len(read_costs([file]).points) == len(points)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--rows", "1", "--batches", "1"], "two or more"),
        (["--rows", "0,1"], "0: 1 to 17"),
        (["--rows", "1-99999999999"], "no list of integers"),
        (["--contexts", "250"], "281 positions"),
        (["--kernel", "numpy", "--threads", "2"], "--threads has no effect"),
        (["--rows", "1,18"], "18: 1 to 17"),
        (["--rows", "1,9", "--contexts", "8,64"], "--contexts: 8: at least 9, the most of --rows"),
    ],
)
def test_what_cannot_be_measured_is_said(options, told):
    shown = run(*options)
    assert shown.exit_code == 2
    assert told in " ".join(shown.output.split())

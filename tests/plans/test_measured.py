"""Costs from measured points: between them, beyond them, and what is no cost."""

import json

import numpy as np
import pytest

from plans.errors import PlanError
from plans.measured import FORMAT, Measured, Point, read_costs


def write(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def points(*rows):
    return {
        "format": FORMAT,
        "model": "m",
        "points": [dict(zip(Point.__struct_fields__, r, strict=True)) for r in rows],
    }


def test_times_go_linearly_between_points_and_on_beyond_them():
    cost = Measured([Point(1, 1, 64, 1.0), Point(3, 1, 64, 2.0), Point(5, 1, 64, 2.5)], "x")
    assert cost.pass_s(np.array([1.0, 2, 4, 5, 9]), 1, 64).tolist() == [1.0, 1.5, 2.25, 2.5, 3.5]


@pytest.mark.parametrize(("cached_s", "attended_s"), [(0.002, 0.0), (0.0, 0.001), (0.002, 0.001), (0.0, 0.0)])
def test_other_contexts_and_batches_add_a_time_for_each_cached_and_each_attended_token(cached_s, attended_s):
    def seconds(rows, batch, context):
        return 0.5 + rows / 2 + cached_s * (batch * context - 100) + attended_s * rows * (context - 100)

    kinds = [(1, 1, 100), (2, 1, 100), (3, 1, 100), (4, 1, 100), (1, 1, 600), (3, 1, 1100), (4, 2, 100), (4, 4, 300)]
    cost = Measured([Point(*kind, seconds(*kind)) for kind in kinds], "x")
    for rows, batch, context in [(1, 1, 300), (3, 3, 100), (4, 2, 2000)]:
        assert cost.pass_s(np.array([float(rows)]), batch, context) == pytest.approx([seconds(rows, batch, context)])


def test_a_cost_never_falls_with_the_context():
    cost = Measured([Point(1, 1, 100, 1.0), Point(3, 1, 100, 2.0), Point(1, 1, 600, 0.9)], "x")
    assert cost.pass_s(np.array([1.0]), 1, 600).tolist() == [1.0]


def test_a_small_dip_is_noise_and_flattened_a_large_one_is_refused():
    cost = Measured([Point(1, 1, 64, 1.0), Point(2, 1, 64, 0.95), Point(3, 1, 64, 2.0)], "x")
    assert cost.pass_s(np.array([2.0]), 1, 64).tolist() == [1.0]
    with pytest.raises(PlanError, match=r"x: a pass of 2 rows takes 500\.00 ms, less than one of 1 with 1,000\.00 ms"):
        Measured([Point(1, 1, 64, 1.0), Point(2, 1, 64, 0.5)], "x")
    with pytest.raises(PlanError, match="a pass of 2 rows"):  # each with a batch of its own
        Measured([Point(1, 1, 64, 1.0), Point(2, 2, 64, 0.5)], "x")


def test_files_of_other_programs_are_read(tmp_path):
    bench = [
        {"n_prompt": 0, "n_gen": 10, "avg_ns": 50_000_000, "n_depth": 0, "n_ubatch": 512},
        {"n_prompt": 4, "n_gen": 0, "avg_ns": 8_000_000, "n_depth": 0, "n_ubatch": 512},
        {"n_prompt": 4096, "n_gen": 0, "avg_ns": 9_000_000_000, "n_ubatch": 512},
        {"n_prompt": 4, "n_gen": 10, "avg_ns": 9_000_000_000},
    ]
    assert read_costs([write(tmp_path / "a.json", bench)]).points == [Point(4, 1, 0, 0.008), Point(1, 1, 5, 0.005)]
    lines = "\n".join(json.dumps({"pp": 100, "tg": 20, "pl": pl, "t_tg": 0.02 * pl**0.5}) for pl in (1, 4))
    assert read_costs([write(tmp_path / "b.jsonl", lines)]).points == [
        Point(1, 1, 110, 0.001),
        Point(4, 4, 110, 0.002),
    ]
    served = [
        write(
            tmp_path / f"{n}.json",
            {
                "max_concurrency": n,
                "mean_tpot_ms": 9.0 + n,
                "median_tpot_ms": 8.0 + n,
                "completed": 2,
                "total_input_tokens": 200,
                "total_output_tokens": 100,
            },
        )
        for n in (1, 8)
    ]
    cost = read_costs(served)
    assert cost.points == [Point(1, 1, 125, 0.009), Point(8, 8, 125, 0.016)]
    assert cost.pass_s(np.array([8.0]), 8, 9999).tolist() == [0.016]
    assert any("not told apart" in line for line in cost.explain())


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "no pass can be told"),
        ("not json", "neither JSON nor JSON lines"),
        ({"points": []}, "missing required field"),
        (points(), "no points|no pass"),
        (points((1, 1, 64, 1.0)), "one number of rows"),
        (points((1, 1, 64, 1.0), (2, 1, 64, 0.0)), "seconds a finite number > 0"),
        (points((0, 1, 64, 1.0), (2, 1, 64, 1.0)), "rows and batch are integers >= 1"),
        (points((1, 1, 64, 1.0), (2, 1, 64, 0.1)), "measure again"),
        (points((1, 1, 64, 1.0), (2, 1, 64, 1.1)) | {"format": "x"}, "format is 'x': 'outrider-cost-1'"),
        ([{"what": 1}], "no pass can be told.*outrider measure"),
        ([1], "no JSON objects"),
        ({"mean_tpot_ms": 3.0, "completed": 1}, "--max-concurrency"),
        ([{"n_prompt": 0, "n_gen": 1, "avg_ns": "x"}], "ValueError"),
    ],
)
def test_what_is_no_cost_is_refused(tmp_path, content, told):
    with pytest.raises(PlanError, match=told):
        read_costs([write(tmp_path / "c.json", content)])


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(PlanError, match="No such file"):
        read_costs([tmp_path / "c.json"])

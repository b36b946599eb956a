"""`outrider sweep`: what is refused, what is kept, what goes on, and what it comes to."""

import csv
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import cli.sweep
from cli.main import main
from cli.sweep_cells import run_cell
from sims.sweep.executor import LocalPool, WorkerDied
from sims.sweep.figures import figures_of, is_one_of, names_of
from sims.sweep.grid import Cell
from sims.sweep.store import Came, Store
from sims.sweep.table import Spread
from tests.test_house import ROOT

SMALL = """
command = "sim"
seeds = [3, 5]
figures = ["tokens.emitted", "cached_share"]

[options]
requests = 12
compare = 2
output-tokens = "1-12"

[axes]
draft = ["none", "prompt_lookup"]
k = [2, 4]
"""
FAILS = """
command = "sim"
seeds = [3, 5]

[options]
requests = 12
prompt-tokens = "20"

[axes]
blocks = [64, 1]
"""


class Here:
    """An executor without processes, that notes what it runs; `dies` says for which cells its worker does."""

    num_workers = 1

    def __init__(self):
        self.run_ids = []
        self.dies = lambda cell: False
        self.breaks_off_after = None

    def run(self, task, items):
        for item in items:
            if len(self.run_ids) == self.breaks_off_after:
                raise KeyboardInterrupt
            self.run_ids.append(item.id)
            yield item, WorkerDied("its process was killed") if self.dies(item) else task(item)


@pytest.fixture
def here(monkeypatch):
    executor = Here()
    monkeypatch.setattr(cli.sweep, "_executor", lambda *_: executor)
    return executor


def write(folder, text=SMALL):
    path = folder / "grid.toml"
    path.write_text(text)
    return path


def sweep(path, *args):
    return CliRunner().invoke(main, ["sweep", str(path), *args])


def table(path, *args):
    result = sweep(path, *args, "--json", "-")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def kept(folder, kind="cells"):
    return {path.stem: json.loads(path.read_bytes()) for path in (folder / "grid.sweep" / kind).glob("*.json")}


def digests(folder):
    return {name: cell["digest"] for name, cell in kept(folder).items()}


def test_every_combination_and_seed_is_run_and_what_has_no_effect_is_left_out(here, tmp_path):
    found = table(write(tmp_path))
    assert [row["values"] for row in found["rows"]] == [
        {"draft": "none", "k": None},
        {"draft": "prompt_lookup", "k": 2},
        {"draft": "prompt_lookup", "k": 4},
    ]
    assert all(row["seeds"] == [3, 5] for row in found["rows"])
    assert len(here.run_ids) == len(set(here.run_ids)) == 6
    assert found["failed"] == []


def test_a_cell_is_what_its_command_line_gives(here, tmp_path):
    table(write(tmp_path))
    for cell in kept(tmp_path).values():
        program, *words = shlex.split(cell["command"])
        assert program == "outrider"
        report = json.loads(CliRunner().invoke(main, [*words, "--json", "-"]).stdout)
        assert cell["came"]["report"]["digest"] == report["digest"]
        assert cell["came"]["figures"]["tokens.emitted"] == report["tokens"]["emitted"]
        assert report["config"]["seed"] == cell["seed"]
        assert "wall_s" not in cell["came"]["report"]


def test_the_same_cell_has_the_same_digest_in_processes_of_their_own(here, tmp_path, monkeypatch):
    path = write(tmp_path)
    table(path)
    before = digests(tmp_path)
    monkeypatch.setattr(cli.sweep, "_executor", lambda *_: LocalPool(2))
    assert table(path, "--out", str(tmp_path / "other" / "grid.sweep"))["rows"]
    assert digests(tmp_path / "other") == before


def test_what_is_there_is_not_run_again(here, tmp_path):
    path = write(tmp_path)
    first = table(path)
    here.run_ids.clear()
    assert table(path) == first
    assert here.run_ids == []
    write(tmp_path, SMALL.replace('"cached_share"', '"requests.completed"'))
    assert table(path)["shown"] == ["tokens.emitted", "requests.completed"]
    assert here.run_ids == []


@pytest.mark.parametrize(
    ("old", "new", "num_new"),
    [
        ("requests = 12", "requests = 13", 6),
        ("k = [2, 4]", "k = [2, 4, 6]", 2),
        ("seeds = [3, 5]", "seeds = [3, 5, 7]", 3),
        ("k = [2, 4]", "k = [4, 2]", 0),
    ],
)
def test_a_result_of_a_changed_file_is_not_mistaken_for_the_present_one(old, new, num_new, here, tmp_path):
    path = write(tmp_path)
    table(path)
    before = digests(tmp_path)
    here.run_ids.clear()
    write(tmp_path, SMALL.replace(old, new))
    changed = table(path)
    assert len(here.run_ids) == num_new
    assert before.items() <= digests(tmp_path).items()
    shown = {digest for row in changed["rows"] for digest in row["digests"]}
    assert all((name in before) == (name not in here.run_ids) for name in kept(tmp_path))
    assert bool(shown & set(before.values())) == (num_new < 6)


def test_a_file_that_an_option_names_counts_by_its_content(here, tmp_path, monkeypatch):
    trace = tmp_path / "trace.jsonl"
    rows = [{"input_length": 20 + i, "output_length": 5, "timestamp": i} for i in range(4)]
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, 'command = "sim"\n[options]\ntrace = "trace.jsonl"\ncompare = 1\nblocks = 99')
    (row,) = table(path)["rows"]
    (cell,) = kept(tmp_path).values()
    assert shlex.quote(str(trace)) in cell["command"]
    assert cell["options"]["trace"] == "trace.jsonl"
    trace.write_text("".join(json.dumps(row | {"output_length": 9}) + "\n" for row in rows))
    (changed,) = table(path)["rows"]
    assert len(here.run_ids) == 2
    assert changed["figures"]["tokens.emitted"]["mean"] == 36 != row["figures"]["tokens.emitted"]["mean"]
    other = tmp_path / "elsewhere"
    other.mkdir()
    trace.rename(other / "trace.jsonl")
    monkeypatch.chdir(other)
    assert table(path)["rows"] == [changed]
    assert len(here.run_ids) == 2


def torn(path, data):
    path.write_bytes(data[: len(data) // 2])


def of_another_cell(path, data):
    path.write_bytes(next(each for each in path.parent.glob("*.json") if each != path).read_bytes())


def changed_by_hand(path, data):
    path.write_bytes(data.replace(b'"tokens.emitted":', b'"tokens.emitted":1'))


def of_another_format(path, data):
    path.write_bytes(data.replace(b'"format":1', b'"format":99'))


@pytest.mark.parametrize("spoil", [torn, of_another_cell, changed_by_hand, of_another_format])
def test_a_result_that_is_not_whole_is_told_and_run_again(spoil, here, tmp_path):
    path = write(tmp_path)
    first = table(path)
    spoilt = sorted((tmp_path / "grid.sweep" / "cells").iterdir())[2]
    data = spoilt.read_bytes()
    spoil(spoilt, data)
    assert spoilt.read_bytes() != data
    here.run_ids.clear()
    result = sweep(path, "--json", "-")
    assert here.run_ids == [spoilt.stem]
    assert f"{spoilt} is no whole result" in result.stderr
    assert json.loads(result.stdout) == first
    assert spoilt.read_bytes() == data


def test_what_a_killed_sweep_has_left_half_written_is_swept_away(here, tmp_path):
    path = write(tmp_path)
    cells = tmp_path / "grid.sweep" / "cells"
    cells.mkdir(parents=True)
    (cells / "abc.json.new").write_text('{"half')
    table(path)
    assert not list(cells.glob("*.new"))


def test_a_file_is_replaced_when_all_of_it_is_on_disk(monkeypatch, tmp_path):
    from sims.sweep import store

    (tmp_path / "f").write_text("old")
    seen = []

    def killed(source, target):
        seen.append((Path(source).read_bytes(), Path(target).read_text()))
        raise KeyboardInterrupt

    synced = []
    monkeypatch.setattr(store.os, "fsync", synced.append)
    monkeypatch.setattr(store.os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        store.replace(tmp_path / "f", b"new")
    assert seen == [(b"new", "old")]
    assert synced
    assert (tmp_path / "f").read_text() == "old"


def test_a_cell_that_fails_is_kept_apart_and_the_others_go_on(here, tmp_path):
    path = write(tmp_path, FAILS)
    result = sweep(path)
    assert result.exit_code == 1
    failures = list(kept(tmp_path, "failed").values())
    assert [failure["seed"] for failure in sorted(failures, key=lambda each: each["seed"])] == [3, 5]
    assert len(kept(tmp_path)) == 2
    for failure in failures:
        assert "nothing was shown: none of 12 requests completed" in failure["error"]
        assert failure["options"]["blocks"] == 1
        assert f"failed: {failure['command']}\n" in result.stderr
        assert f"--seed {failure['seed']}" in failure["command"]
        alone = CliRunner().invoke(main, shlex.split(failure["command"])[1:])
        assert alone.exit_code == 1
        assert failure["error"].splitlines()[0] in alone.stderr
    assert "2 of 4 cells failed" in result.stderr


def test_what_failed_is_tried_again_and_forgotten_when_it_comes_to_something(here, tmp_path):
    path = write(tmp_path)
    here.dies = lambda cell: cell.values["k"] == 4 and cell.seed == 5
    assert sweep(path).exit_code == 1
    ((name, failure),) = kept(tmp_path, "failed").items()
    assert "its process was killed" in failure["error"]
    assert len(kept(tmp_path)) == 5
    here.dies = lambda cell: False
    here.run_ids.clear()
    assert sweep(path).exit_code == 0
    assert here.run_ids == [name]
    assert kept(tmp_path, "failed") == {}


def test_whatever_a_run_raises_is_its_own_failure(monkeypatch):
    def broken(config):
        raise ZeroDivisionError("of our own")

    monkeypatch.setattr("cli.sweep_cells.simulate", broken)
    trouble = run_cell(Cell("id", ("sim", "--requests", "5"), {}, {}, 0))
    assert trouble.error == "ZeroDivisionError: of our own"
    assert "in broken" in trouble.traceback


def test_ctrl_c_says_how_to_go_on_and_leaves_whole_results(here, tmp_path):
    path = write(tmp_path)
    here.breaks_off_after = 4
    result = sweep(path)
    assert result.exit_code == 130
    assert "4 of 6 cells are done" in result.stderr
    assert "the same command goes on" in result.stderr
    assert len(kept(tmp_path)) == 4
    here.breaks_off_after = None
    here.run_ids.clear()
    assert "4 of 6 cells are there already" in sweep(path).stderr
    assert len(here.run_ids) == 2


LONG = SMALL.replace("seeds = [3, 5]", "seeds = 40").replace("requests = 12", "requests = 60")


@pytest.mark.parametrize(("how", "status"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_a_sweep_that_is_killed_goes_on_where_it_was(how, status, here, tmp_path):
    path = write(tmp_path, LONG)
    command = [sys.executable, "-m", "outrider", "sweep", str(path), "--workers", "2"]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(list((tmp_path / "grid.sweep" / "cells").glob("*.json"))) < 3:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(how)
    _, said = process.communicate(timeout=30)
    assert process.returncode == status
    assert how == signal.SIGKILL or b"the same command goes on" in said
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "grid.sweep" / "cells").glob("*.json")}
    assert 3 <= len(before) < 120
    write(tmp_path, LONG.replace("seeds = 40", "seeds = 2"))  # the rest need not be waited for
    found = table(path)
    assert all(file.stat().st_mtime_ns == when for file, when in before.items())
    wanted = {digest for row in found["rows"] for digest in row["digests"]}
    assert not {file.stem for file in before} & set(here.run_ids)
    assert len(wanted) == 6


def test_two_sweeps_cannot_work_in_one_folder(here, tmp_path):
    path = write(tmp_path)
    with Store(tmp_path / "grid.sweep"):
        result = sweep(path)
    assert result.exit_code == 2
    assert "another sweep is at work" in result.stderr
    assert here.run_ids == []
    assert sweep(path).exit_code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("command = 7", "command: 7 is not the name of a command"),
        ("seeds = 7", "command: it is missing"),
        ('command = "sim"\nseeds = "x"', "seeds: 'x' is not a count from 1 on, or a list of seeds"),
        ('command = "sim"\nseeds = [1, true]', "seeds: [1, True] is not a count"),
        ('command = "sim"\nfigures = "x"', "figures: 'x' is not a list of names"),
        ('command = "sim"\noptions = 3', "options: 3 is not a table of options"),
        ('command = "serve"', "'serve' is none of sim, plan, explore"),
        ('command = "sim"\nseed = 3', "seed: there is no such field; there are command, seeds"),
        ('command = "sim"\n[options]\nno-such = 3', "options.no-such: sim has no such option; there are config, "),
        ('command = "sim"\n[axes]\nblocks = [8, "x"]', "grid.toml: axes.blocks = 'x': 'x' is not a valid integer"),
        ('command = "sim"\n[axes]\nblocks = [8, 0]', "axes.blocks = 0: 0 is not in the range"),
        ('command = "sim"\n[options]\nblocks = true', "options.blocks = True: a text or a number"),
        ('command = "sim"\n[options]\nblocks = [8, 9]', "grid.toml: options.blocks = [8, 9]: one value"),
        ('command = "sim"\n[options]\nshuffle = 1', "options.shuffle = 1: true or false"),
        ('command = "sim"\n[options]\ncancel-rate = 30', "options.cancel-rate = 30: 30 is not in the range 0<=x<=1"),
        ('command = "sim"\n[options]\nrate = 5', "options.rate: has no effect in any cell: it needs --arrivals"),
        ('command = "sim"\n[axes]\nblocks = 8', "axes.blocks: 8 is no list"),
        ('command = "sim"\n[axes]\nblocks = []', "axes.blocks: [] is no list of one value or more"),
        ('command = "sim"\n[axes]\nblocks = [8, 8]', "axes.blocks: 8 is there twice"),
        ('command = "sim"\n[options]\nblocks = 9\n[axes]\nblocks = [8]', "blocks is in [options] and in [axes]"),
        ('command = "sim"\nseeds = 0', "seeds: 0 is not a count from 1 on"),
        ('command = "sim"\nseeds = [1, 1]', "seeds: [1, 1] is no list of different seeds"),
        ('command = "sim"\nseeds = [-1]', "seeds: -1 is not in the range"),
        ('command = "sim"\nseeds = 10001', "a grid of 10,001 cells; at most 10,000"),
        ('command = "sim"\n[options]\nseed = 1', "options.seed: not an option of a sweep: say `seeds` at the top"),
        ('command = "sim"\n[options]\njson = "x"', "options.json: not an option of a sweep"),
        ('command = "sim"\n[options]\nclock = "wall"', "clock: 'wall' gives other figures each time"),
        ('command = "sim"\nfigures = ["ttft"]', "figures: 'ttft' is none of requests.total, "),
        ('command = "sim"\n[options]\ntrace = "no/such"', "options.trace = 'no/such': File"),
        ('command = "sim"\n[options]\nreplicas = 2\n[axes]\ncrash = ["1@1+1", "9@1+1"]', "cell crash=9@1+1: "),
        ('command = "plan"', "options: logs is missing"),
        ('command = "plan"\nseeds = 2\n[options]\nlogs = "x"', "seeds: plan draws nothing"),
        ('command = "plan"\n[options]\nlogs = "LOG"\n[axes]\nhardware = ["h100", "x"]', "x: hardware 'x' is not"),
        ('command = "explore"\n[options]\nminutes = 1', "options.minutes: not an option of a sweep"),
        ("command = ", "grid.toml: no TOML: "),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named_and_nothing_is_run(text, said, here, tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"prompt": [1, 2], "completion": [3]}\n')
    result = sweep(write(tmp_path, text.replace("LOG", str(log))))
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert here.run_ids == []
    assert not (tmp_path / "grid.sweep").exists()


def test_a_flag_says_both(here, tmp_path):
    found = table(write(tmp_path, SMALL.replace("k = [2, 4]", "prefix-cache = [true, false]\nshuffle = [true, false]")))
    lines = {cell["command"] for cell in kept(tmp_path).values()}
    assert len(found["rows"]) == 8
    assert len([line for line in lines if "--no-prefix-cache" in line]) == len(lines) / 2
    assert len([line for line in lines if "--fifo" in line]) == len(lines) / 2


def test_what_can_be_given_more_than_once_is_a_list(here, tmp_path):
    found = table(write(tmp_path, SMALL.replace("k = [2, 4]", "temperature = [[0], [0, 0.5], 1]")))
    assert [row["values"]["temperature"] for row in found["rows"]][:3] == [[0], [0, 0.5], 1]
    assert any("--temperature 0 --temperature 0.5" in cell["command"] for cell in kept(tmp_path).values())


def test_plans_are_swept(here, tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"prompt": [1, 2, 3, 1, 2], "completion": [3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 4]}\n' * 4)
    text = f'command = "plan"\n[options]\nlogs = ["{log}"]\nsizes = "1-3"\nbatches = "1,64"\n[axes]\nbatch = [1, 64]\n'
    found = table(write(tmp_path, text + 'method = ["lookup", "suffix"]'))
    assert len(found["rows"]) == 4
    by_digest = {cell["digest"]: cell for cell in kept(tmp_path).values()}
    for row in found["rows"]:
        cell = by_digest[row["digests"][0]]
        plan = cell["came"]["report"]
        best = next(each for each in plan["best"] if each["batch"] == row["values"]["batch"])
        assert row["figures"]["speed"]["values"] == [best["speed"]["value"]]
        assert f"speed_of.{row['values']['method']}" in row["figures"]
        assert row["seeds"] == [None]


def test_campaigns_are_swept_one_after_the_other(here, tmp_path):
    found = table(
        write(tmp_path, 'command = "explore"\nseeds = 2\n[options]\nseeds = 3\n[axes]\ntwice = [true, false]')
    )
    assert [row["seeds"] for row in found["rows"]] == [[0, 3], [0, 3]]
    twice, once = found["rows"]
    assert once["figures"]["num_runs"]["values"] == [3, 3]
    assert once["digests"] == twice["digests"]
    assert once["figures"]["num_messages"]["values"][0] != once["figures"]["num_messages"]["values"][1]


def test_the_table_has_means_and_deviations_and_csv_has_every_run(here, tmp_path):
    found = table(write(tmp_path))
    emitted = found["rows"][1]["figures"]["tokens.emitted"]
    first, second = emitted["values"]
    assert emitted["mean"] == (first + second) / 2
    assert emitted["deviation"] == pytest.approx(abs(first - second) / 2**0.5)
    lines = list(csv.DictReader(io.StringIO((tmp_path / "grid.sweep" / "table.csv").read_text())))
    assert [(line["draft"], line["k"], line["seed"]) for line in lines][:3] == [
        ("none", "-", "3"),
        ("none", "-", "5"),
        ("prompt_lookup", "2", "3"),
    ]
    assert [float(line["tokens.emitted"]) for line in lines[2:4]] == [first, second]
    assert {line["digest"] for line in lines} == set(digests(tmp_path).values())
    text = sweep(write(tmp_path)).stdout
    assert "sim: 6 cells, 3 combinations" in text
    assert str(Spread.of([first, second])) in text
    assert "cached_share" in text


def test_a_figure_that_was_not_measured_everywhere_is_of_where_it_was():
    assert Spread.of([1.0, None, 3.0]) == Spread(2.0, pytest.approx(2**0.5), [1.0, None, 3.0])
    assert Spread.of([None, 4]) == Spread(4.0, None, [None, 4])
    assert str(Spread.of([20000.25])) == "20,000"
    assert str(Spread.of([0.123456, 0.1])) == "0.1117 ± 0.017"


def test_figures_are_the_numbers_of_a_report_that_are_no_ones_choice():
    report = {"a": 1, "config": {"k": 4}, "b": {"c": 2.5, "d": [1], "e": True, "f": None}, "wall_s": 3.0}
    assert figures_of(report) == {"a": 1, "b.c": 2.5}
    names = names_of(Came)
    assert is_one_of("figures.whatever", names)
    assert not is_one_of("report", names)


def test_options_that_do_nothing_are_refused(tmp_path):
    result = sweep(write(tmp_path), "--ray", "--workers", "2")
    assert result.exit_code == 2
    assert "--workers has no effect here" in result.stderr

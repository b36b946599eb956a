import asyncio
import json
import signal
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from actors.scheduling import SchedulerActor
from cli.main import main
from cli.progress import Progress
from models import FakeModel

SMALL = [
    *("sim", "--requests", "40", "--concurrency", "12", "--blocks", "64", "--block-tokens", "4"),
    *("--prompt-tokens", "2-20", "--output-tokens", "2-20", "--compare", "20", "--seed", "3"),
]


def run(*args, base=SMALL):
    return CliRunner().invoke(main, [*base, *args])


def test_the_text_report_tells_the_outcome():
    result = run()
    assert result.exit_code == 0, result.output
    for word in ("40 submitted", "completed", "cancelled", "TTFT", "TPOT", "ITL", "evictable", "preemptions"):
        assert word in result.output
    assert "Every block is back" in result.output
    assert "15 outputs compared, 0 different" in " ".join(result.output.split())  # the other 5 left before any token
    assert "times the tokens/s of the same requests without drafts" in " ".join(result.output.split())


def test_json_to_standard_output_is_the_report_alone_and_the_same_each_time():
    first, second = (json.loads(run("--json", "-").stdout) for _ in range(2))
    assert first.pop("wall_s") > 0
    second.pop("wall_s")
    assert first == second
    assert first["requests"]["submitted"] == 40
    assert first["config"]["seed"] == 3
    other = json.loads(run("--json", "-", "--seed", "4").stdout)
    assert other["digest"] != first["digest"]


def test_files_are_written_where_asked(tmp_path):
    names = {"--json": "r.json", "--report": "r.html", "--timeline": "t.json"}
    result = run(*(str(part) for option, name in names.items() for part in (option, tmp_path / name)))
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "r.json").read_text())["blocks"]["leaked"] == 0
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


def test_nothing_is_written_unless_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run().exit_code == 0
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_output_makes_the_exit_status_1_and_names_request_and_seed(monkeypatch):
    forward = FakeModel.forward
    monkeypatch.setattr(
        FakeModel,
        "forward",
        lambda self, chunks: forward(self, chunks)[:, ::-1] if len(chunks) > 3 else forward(self, chunks),
    )
    result = run()
    assert result.exit_code == 1
    assert "FAILED, seed 3" in result.output
    assert "seed 3: request r0000" in result.stderr


def test_a_deadlock_is_told_with_its_seed(monkeypatch):
    async def hang(self):
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(SchedulerActor, "tick", hang)
    result = run("--seed", "9")
    assert result.exit_code == 1
    assert "seed 9: deadlock" in result.stderr
    assert "scheduler at" in result.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--draft", "magic"], ["--draft", "prompt_lookup"]),
        (["--k", "17"], ["--k", "[1, 16]"]),
        (["--cancel-rate", "1.5"], ["--cancel-rate", "0<=x<=1"]),
        (["--prompt-tokens", "many"], ["--prompt-tokens", "'many'", "LOW-HIGH"]),
        (["--blocks", "0"], ["--blocks", "1<=x<="]),
        (["--blocks", "99999999999"], ["--blocks", "1<=x<=4194304"]),
        (["--requests", "99999999999"], ["--requests", "1<=x<=10000000"]),
        (["--temperature", "nan"], ["--temperature", "nan is not a finite number"]),
        (["--rate", "inf", "--arrivals", "poisson"], ["--rate", "inf is not a finite number"]),
        (["--prompt-tokens", "99999"], ["--prompt-tokens is 99999", "[1, 8192]"]),
        (["--output-tokens", "99999999999"], ["--output-tokens", "LOW-HIGH", "to 2147483647"]),
        (["--arrivals", "gamma", "--burstiness", "1e-300"], ["--burstiness is 1e-300", "[0.001, 1000]"]),
        (["--clock", "wall", "--shuffle"], ["--shuffle", "--clock virtual"]),
        (["--fault-hang", "0.1"], ["--fault-hang is 0.1", "--pass-timeout-ms"]),
        (["--clock", "sundial"], ["virtual", "wall"]),
        (["--batch-tokens", "4", "--k", "4"], ["--k is 4: less than --batch-tokens (4)"]),
        (["--overhead-ms", "0", "--per-token-us", "0"], ["--overhead-ms and --per-token-us is 0", "> 0"]),
        (["--trace", "/nowhere.jsonl"], ["--trace", "does not exist"]),
        (["--arrivals", "trace"], ["only a trace has times"]),
        (["--json", "/nowhere/r.json"], ["--json", "'/nowhere' does not exist"]),
        (["--json", "/dev/full"], ["--json", "/dev/full: No space left on device"]),
        (["--report", "/"], ["--report", "/: Is a directory"]),
        (["--config", __file__], ["--config", "neither a report"]),
    ],
)
def test_wrong_values_are_refused_with_what_is_allowed(args, said):
    base = [*SMALL[:3], *SMALL[5:9]] if {"trace", "gamma"} & set(args) else SMALL
    result = run(*args, base=base)
    assert result.exit_code == 2
    for words in said:
        assert words in result.output


@pytest.mark.parametrize(
    ("args", "option", "needed"),
    [
        (["--rate", "5"], "--rate", "poisson or gamma"),
        (["--burstiness", "5"], "--burstiness", "gamma"),
        (["--arrivals", "poisson", "--rate", "5"], "--concurrency", "closed"),
        (["--draft", "none", "--k", "4"], "--k", "--draft"),
        (["--slow-delay-ms", "5"], "--slow-delay-ms", "--slow-rate above 0"),
        (["--clock", "wall", "--overhead-ms", "1"], "--overhead-ms", "--clock virtual"),
        (["--temperature", "0", "--verify", "match"], "--verify", "--temperature above 0"),
        (["--speedup", "2"], "--speedup", "--arrivals trace"),
        (["--tenants", "2", "--no-prefix-cache"], "--tenants", "--prefix-cache"),
        (["--shared-rate", "0", "--shared-tokens", "8"], "--shared-tokens", "--shared-rate above 0"),
    ],
)
def test_options_without_effect_are_refused(args, option, needed):
    result = run(*args)
    assert result.exit_code == 2
    assert f"{option} has no effect here" in result.output
    assert needed in result.output


def test_every_option_is_documented_with_its_default():
    result = CliRunner().invoke(main, ["sim", "--help"])
    assert result.exit_code == 0
    text = " ".join(result.output.split())
    sim = main.commands["sim"]
    for option in sim.params:
        assert option.opts[0] in text
        assert option.help
    assert text.count("default:") >= 35


def test_a_trace_is_run_and_its_unused_rows_are_reported(tmp_path):
    path = tmp_path / "t.jsonl"
    rows = [
        {"timestamp": i * 10, "input_length": 600, "output_length": 4, "hash_ids": [1, 2 + i % 3]} for i in range(12)
    ]
    rows.append({"timestamp": 5, "input_length": 5000, "output_length": 4, "hash_ids": list(range(10))})
    path.write_text("\n".join(map(json.dumps, rows)) + "\nnonsense\n")
    args = ["sim", "--trace", str(path), "--max-model-len", "1000", "--cancel-rate", "0", "--json", "-"]
    result = CliRunner().invoke(main, args)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["source"] == {
        "name": "t.jsonl",
        "rows": 14,
        "used": 12,
        "unused": {"not JSON": 1, "longer than max_model_len (1000)": 1},
    }
    assert report["requests"]["completed"] == 12
    assert report["tokens"]["emitted"] == 48
    #   512 tokens of every prompt but the first are known, and of nine of them all but the last KV block's
    assert report["tokens"]["cached"] >= 11 * 512
    text = CliRunner().invoke(main, args[:-2]).output
    assert "12 of 14 rows used" in " ".join(text.split())
    refused = CliRunner().invoke(main, [*args, "--repetition", "0.5"])
    assert "--repetition has no effect here" in refused.output


def test_a_recording_is_recited(tmp_path):
    path = tmp_path / "r.jsonl"
    code = "def add(a, b):\n    return a + b\n"
    rows = [{"prompt": f"# {i}\n{code}", "completion": code * 2} for i in range(5)]
    path.write_text("\n".join(map(json.dumps, rows)))
    result = CliRunner().invoke(main, ["sim", "--replay", str(path), "--cancel-rate", "0", "--json", "-"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["requests"]["completed"] == report["requests"]["stopped"] == 5
    assert report["audit"]["outputs_compared"] == 5
    assert report["spec"]["accept_rate"] > 0.8
    warm = CliRunner().invoke(main, ["sim", "--replay", str(path), "--temperature", "0.5"])
    assert warm.exit_code == 2
    assert "a recording is greedy" in warm.output


def test_the_report_is_read_back_from_its_json(tmp_path):
    from sims.report import Report

    path = tmp_path / "r.json"
    run("--json", str(path))
    assert msgspec.json.decode(path.read_bytes(), type=Report).config.requests == 40


def test_what_a_report_was_made_with_is_run_again(tmp_path):
    path, again = tmp_path / "r.json", tmp_path / "again.json"
    odd = [*SMALL, "--draft", "ngram", "--k", "3", "--temperature", "0.4", "--arrivals", "gamma", "--rate", "400"]
    odd = [part for i, part in enumerate(odd) if i not in (3, 4)]
    odd += ["--slow-rate", "0.2", "--vanish-at", "0.1", "--pass-timeout-ms", "900", "--fault-raise", "0.01"]
    CliRunner().invoke(main, [*odd, "--max-waiting", "30", "--no-prefix-cache", "--json", str(path)])
    first = json.loads(path.read_text())
    assert CliRunner().invoke(main, ["sim", "--config", str(path), "--json", str(again)]).stderr == ""
    second = json.loads(again.read_text())
    assert second["config"] == first["config"]
    assert second["digest"] == first["digest"]
    path.write_text(json.dumps(first["config"]))
    changed = CliRunner().invoke(main, ["sim", "--config", str(path), "--seed", "4", "--draft", "none", "--json", "-"])
    told = json.loads(changed.stdout)
    wanted = first["config"] | {"seed": 4, "baseline": False}
    wanted["engine"]["speculative"] |= {"draft": "none", "k": 1}
    assert told["config"] == wanted


def test_an_unknown_key_of_a_configuration_is_refused(tmp_path):
    path = tmp_path / "c.json"
    path.write_text('{"seed": 1, "sede": 2}')
    result = CliRunner().invoke(main, ["sim", "--config", str(path)])
    assert result.exit_code == 2
    assert "sede" in result.output


@pytest.mark.parametrize(
    ("args", "status", "said"),
    [
        ([], 0, "Every block is back"),
        (
            ["--blocks", "1", "--output-tokens", "20"],
            1,
            "nothing was shown: none of 40 requests completed (40 refused)",
        ),
        (["--fault-die-scheduler", "0.02", "--max-restarts", "1000"], 0, "failed under the planted faults"),
        (["--fault-die-scheduler", "0.5", "--max-restarts", "2"], 1, "the engine gave up"),
        (["--max-waiting", "0", "--max-running", "4"], 0, "were refused"),
        (["--compare", "0"], 0, "no outputs were compared"),
    ],
)
def test_the_verdict_says_what_was_shown_and_what_was_not(args, status, said, tmp_path):
    path = tmp_path / "r.json"
    result = run(*args, "--json", str(path))
    assert said in " ".join(result.stdout.split())
    assert result.exit_code == status
    report = json.loads(path.read_text())
    assert (report["problems"] == []) == (status == 0)
    bins = report["requests"]
    assert bins["total"] == 40 == bins["submitted"] + bins["never_submitted"]
    assert bins["submitted"] == sum(bins[name] for name in ("completed", "cancelled", "failed", "refused"))


def test_no_baseline_unless_there_is_something_to_gain():
    assert json.loads(run("--json", "-", "--draft", "none").stdout)["baseline"] is None
    assert json.loads(run("--json", "-", "--no-baseline").stdout)["baseline"] is None
    report = json.loads(run("--json", "-").stdout)
    plain = json.loads(run("--json", "-", "--draft", "none").stdout)
    baseline = report["baseline"]
    assert baseline["tokens_per_s"] == plain["throughput"]["tokens_per_s"]
    assert baseline["speedup"] == pytest.approx(report["throughput"]["tokens_per_s"] / baseline["tokens_per_s"])
    refused = run("--draft", "none", "--baseline")
    assert "--baseline has no effect here" in refused.output


def test_recordings_are_not_left_unless_asked(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": f"a b c {i}", "completion": "d e f g"}) for i in range(30)))
    command = ["sim", "--replay", str(path), "--json", "-"]
    assert json.loads(CliRunner().invoke(main, command).stdout)["requests"]["completed"] == 30
    asked = CliRunner().invoke(main, [*command, "--cancel-rate", "0.5"]).stdout
    assert json.loads(asked)["requests"]["cancelled"] > 5


@pytest.mark.parametrize("phase", ["requests", "outputs compared", "requests without drafts"])
def test_ctrl_c_gives_the_report_of_what_was(monkeypatch, tmp_path, phase):
    path = tmp_path / "r.json"
    num_shown = 0

    def show(self, what, *args):
        nonlocal num_shown
        num_shown += what == phase
        if num_shown == 10 and what == phase:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Progress, "show", show)
    result = run("--json", str(path))
    assert result.exit_code == 130, result.output
    report = json.loads(path.read_text())
    assert report["is_broken_off"]
    assert report["blocks"]["held"] == 0
    assert report["problems"] == []
    assert "Broken off by Ctrl-C" in result.stdout
    assert report["audit"]["outputs_compared"] == {"requests": 0, "outputs compared": 10}.get(phase, 15)
    assert (report["requests"]["never_submitted"] > 0) == (phase == "requests")
    assert report["baseline"] is None


def test_an_output_that_was_there_stays_until_there_is_a_new_one(tmp_path, monkeypatch):
    path, new = tmp_path / "r.json", tmp_path / "new.json"
    path.write_text("what was")
    assert run("--json", str(path), "--k", "17").exit_code == 2
    assert run("--report", str(new), "--draft", "none", "--k", "3").exit_code == 2
    assert path.read_text() == "what was"
    assert not new.exists()


def test_a_fault_of_our_own_leaves_its_traceback_in_a_file(monkeypatch):
    monkeypatch.setattr("cli.sim.simulate", lambda *_args, **_options: 1 / 0)
    result = run()
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    name = result.output.split("its traceback is in ")[1].split(")")[0]
    assert "ZeroDivisionError" in Path(name).read_text()
    Path(name).unlink()

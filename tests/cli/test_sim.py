import asyncio
import json

import msgspec
import pytest
from click.testing import CliRunner

from actors.scheduling import SchedulerActor
from cli.main import main
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
    assert "20 outputs compared, 0 different" in " ".join(result.output.split())


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
        (["--k", "17"], ["--k", "1<=x<=16"]),
        (["--cancel-rate", "1.5"], ["--cancel-rate", "0<=x<=1"]),
        (["--prompt-tokens", "many"], ["--prompt-tokens", "'many'", "LOW-HIGH"]),
        (["--blocks", "0"], ["--blocks", "x>=1"]),
        (["--clock", "sundial"], ["virtual", "wall"]),
        (["--batch-tokens", "4", "--k", "4"], ["max_batch_tokens (4)"]),
        (["--overhead-ms", "0", "--per-token-us", "0"], ["overhead_ms and per_token_us", "> 0"]),
        (["--trace", "/nowhere.jsonl"], ["--trace", "does not exist"]),
        (["--arrivals", "trace"], ["only a trace has times"]),
        (["--json", "/nowhere/r.json"], ["--json", "'/nowhere' does not exist"]),
    ],
)
def test_wrong_values_are_refused_with_what_is_allowed(args, said):
    base = [*SMALL[:3], *SMALL[5:9]] if "trace" in args else SMALL
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
        "unused": {"malformed": 1, "longer than max_model_len (1000)": 1},
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

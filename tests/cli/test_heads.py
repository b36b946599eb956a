"""`outrider heads` on a tiny model: from text to a file that drafts, and what it says of one."""

import json

import pytest
from click.testing import CliRunner

from cli import heads as heads_command
from cli.main import main
from models import RunnerTarget
from models.heads.features import collect
from models.kernel_choice import build_llama
from models.loading import open_model
from models.proposers import check_drafts
from plans.gain import Given
from scheduler import NO_DRAFTS
from spec import SamplingParams, SpecConfig, generate
from tests.models.folders import LETTERS, bpe, write_model

NAMES = [*LETTERS, "hello", *(f"<{i}>" for i in range(97 - len(LETTERS) - 4))]


@pytest.fixture
def target(tmp_path):
    pytest.importorskip("tokenizers", reason="tokenizers come with outrider[real]")
    folder = tmp_path / "target"
    folder.mkdir()
    write_model(folder, bpe(vocabulary=NAMES))
    return folder


def run(*args):
    return CliRunner().invoke(main, ["heads", *map(str, args)])


def logs(path, num=60):
    rows = [
        {"prompt": [i % 90, 3], "completion": [(i * j) % 90 for j in range(1, 40)], "category": ("even", "odd")[i % 2]}
        for i in range(num)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


SMALL = ("--tokens", 2000, "--words", 60, "--epochs", 1, "--kernel", "numpy", "--float")


def test_heads_are_fitted_to_a_log_and_judged_by_it(target, tmp_path):
    log, out = logs(tmp_path / "log.jsonl"), tmp_path / "heads.safetensors"
    trained = run("train", target, "--text", log, *SMALL, "--out", out)
    assert trained.exit_code == 0, trained.output
    assert "2,000 tokens of" in trained.output
    assert "later, epoch 1 of 1" in trained.output
    check_drafts(target, SpecConfig("linear", 2, model=str(out)))
    judged = run("eval", target, out, "--text", log, "--kernel", "numpy", "--every", 9, "--json", "-")
    assert judged.exit_code == 0, judged.output
    report = json.loads(judged.stdout)
    assert report["kind"] == "linear"
    of_all = report["all"]
    assert len(of_all["first"]) == len(of_all["of_three"]) == len(of_all["accepted"]) == 4
    assert all(one <= three <= 1 for one, three in zip(of_all["first"], of_all["of_three"], strict=True))
    assert of_all["accepted"][0] == of_all["first"][0]
    assert 0 < of_all["covered"] < 1
    assert 0 <= report["said_wrong"] <= 1
    categories = report["by_category"]
    assert categories.keys() == {"even", "odd"}
    assert sum(part["num_places"] for part in categories.values()) == of_all["num_places"]
    assert report["speed"] >= 1
    shown = run("eval", target, out, "--text", log, "--kernel", "numpy", "--every", 40)
    assert "linear heads" in shown.stdout
    assert "as fast" in shown.stdout
    rates = shown.stdout.partition("--acceptance ")[2].strip()
    assert len(Given.parse(rates).rates) == 4
    assert "odd" in shown.stdout


def test_without_text_the_model_writes_its_own(target, tmp_path):
    trained = run("train", target, *SMALL, "--out", tmp_path / "folder")
    assert trained.exit_code == 0, trained.output
    assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == ["config.json", "model.safetensors"]
    again = run("train", target, *SMALL, "--out", tmp_path / "again")
    assert again.exit_code == 0
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("folder", "again"))
    assert one == other


def test_prompts_of_logs_are_answered_by_the_model_itself(target, tmp_path, monkeypatch):
    seen = []

    def recorded(model, texts, into, watch):
        seen.extend(texts)
        return collect(model, seen, into, watch)

    monkeypatch.setattr(heads_command, "collect", recorded)
    log = logs(tmp_path / "log.jsonl")
    trained = run("train", target, "--text", log, "--answers", 7, *SMALL, "--out", tmp_path / "x.safetensors")
    assert trained.exit_code == 0, trained.output
    own, taken = seen[:7], seen[7:]
    assert len(taken) == 60
    file = open_model(target)
    model = build_llama(file.config(), file.weights(file.config()), "numpy")
    for i, (text, record) in enumerate(zip(own, taken, strict=False)):
        assert text.ids[:2] == record.ids[:2] == [i % 90, 3]
        assert text.num_prompt == record.num_prompt == 2
        #   a request is held out with every answer to it
        assert text.is_held_out is record.is_held_out is (i % 10 == 0)
        target_alone = RunnerTarget(model, num_blocks=20, block_tokens=8)
        params = SamplingParams(temperature=0)
        alone = generate(target_alone, NO_DRAFTS, text.ids[:2], params, 0, 128, file.tokenizer().eos_ids)
        assert text.ids[2:] == alone.tokens
    judged = run(
        "eval", target, tmp_path / "x.safetensors", "--text", log, "--answers", 7, "--kernel", "numpy", "--json", "-"
    )
    num_answered = sum(len(text.ids) - text.num_prompt for text in own)
    assert (
        json.loads(judged.stdout)["all"]["num_places"]
        == sum(-(-(len(text.ids) - 2) // 3) for text in own)
        < num_answered
    )


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--answers", "3"], "--answers has no effect here: it needs --text"),
        (["--taps", "0,1"], "--taps: [0, 1] must rise to 2, all layers"),
        (["--words", "98"], "--words: 98, and"),
        (["--format", "sharegpt"], "--format has no effect here: it needs --text"),
        (["--held-out", "1"], "--held-out"),
    ],
)
def test_what_cannot_be_is_refused(target, tmp_path, args, said):
    result = run("train", target, "--out", tmp_path / "x", "--kernel", "numpy", "--tokens", 2000, *args)
    assert result.exit_code == 2
    assert said in result.output
    assert not (tmp_path / "x").exists()


def test_files_that_are_none_are_refused(target, tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    assert run("train", tmp_path / "gone", "--out", tmp_path / "x").exit_code == 2
    refused = run("train", target, "--text", empty, *SMALL, "--out", tmp_path / "x")
    assert refused.exit_code == 2
    assert "empty.jsonl" in refused.output
    other = run("eval", target, target, "--text", logs(tmp_path / "log.jsonl"), "--kernel", "numpy")
    assert other.exit_code == 2
    assert "heads" in other.output

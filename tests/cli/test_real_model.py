"""The commands that run a model, with a model that needs no weights."""

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time

import msgspec
import pytest
from click.testing import CliRunner

from cli import chat as chat_command
from cli import generate as generate_command
from cli import real_model
from cli.main import main
from models import FakeModel
from models.calibration import measure_cost
from models.loading import Loaded
from scheduler import PassCost


class Letters:
    """26 ids, a letter each; the last is the end."""

    eos_ids = frozenset({25})

    def encode(self, text):
        return [ord(c) - ord("a") for c in text if c.isalpha()]

    def token_bytes(self, token):
        return bytes([token + ord("a")])

    def decode(self, ids):
        return b"".join(map(self.token_bytes, ids)).decode()

    def chat(self, messages):
        return self.encode("".join(m["content"] for m in messages))


@pytest.fixture
def _letters(monkeypatch):
    loaded = Loaded(FakeModel(3, 26, 1, 30.0, max_model_len=512), Letters())

    def load(choices, console):
        return loaded, PassCost(*measure_cost(loaded.model, None, time.perf_counter)) if choices.is_adaptive else None

    monkeypatch.setattr(real_model, "locate", lambda name: name)
    monkeypatch.setattr(real_model, "default_heads", lambda name: None)  # those are another model's
    for module in (generate_command, chat_command):
        monkeypatch.setattr(module, "load_model", load)


def run(*args, **settings):
    return CliRunner().invoke(main, ["generate", *args], **settings)


@pytest.mark.usefixtures("_letters")
@pytest.mark.parametrize("options", [[], ["--fixed"], ["--draft", "ngram", "--k", "3"], ["--temperature", "0.7"]])
def test_generate_gives_the_same_text_with_drafts_and_without(options):
    command = ["generate", "abcabc", "--max-tokens", "40", "--ignore-eos", "--compare", *options]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    assert "the text is the same, token for token" in result.stderr
    assert "0 held" in result.stderr
    assert len(result.stdout.replace("\n", "")) == 40


@pytest.mark.usefixtures("_letters")
def test_generate_refuses_a_prompt_without_tokens():
    result = CliRunner().invoke(main, ["generate", "123"])
    assert result.exit_code == 2
    assert "prompt is []" in result.output


@pytest.mark.usefixtures("_letters")
def test_the_second_turn_of_a_chat_finds_the_first_one_cached():
    first = "abcdefgh" * 6
    result = CliRunner().invoke(main, ["chat", "--max-tokens", "20"], input=f"{first}\nxyw\n\n")
    assert result.exit_code == 0, result.output
    cached = [line for line in result.stderr.splitlines() if "cached" in line]
    assert len(cached) == 2
    assert "(0 cached)" in cached[0]
    assert "(0 cached)" not in cached[1]


@pytest.mark.usefixtures("_letters")
def test_a_prompt_comes_from_a_file_or_from_standard_input(tmp_path):
    path = tmp_path / "prompt.txt"
    path.write_text("abcabc")
    told = run("abcabc", "--max-tokens", "9", "--ignore-eos")
    assert told.exit_code == 0
    assert len(told.stdout) == 10
    assert run("--file", str(path), "--max-tokens", "9", "--ignore-eos").stdout == told.stdout
    assert run("-", "--max-tokens", "9", "--ignore-eos", input="abcabc").stdout == told.stdout


@pytest.mark.usefixtures("_letters")
def test_json_has_the_text_the_tokens_and_what_they_took(tmp_path):
    path = tmp_path / "told.json"
    command = ("abcabc", "--max-tokens", "20", "--ignore-eos", "--temperature", "0.8", "--seed", "5")
    text = run(*command, "--json", str(path), "--compare").stdout.strip()
    answer = json.loads(path.read_text())
    assert answer["told"]["text"] == text == Letters().decode(t["id"] for t in answer["told"]["tokens"])
    assert answer["without_drafts"]["tokens"][0].keys() == {"id", "logprob", "index", "is_accepted"}
    assert [t["logprob"] for t in answer["without_drafts"]["tokens"]] == [
        t["logprob"] for t in answer["told"]["tokens"]
    ]
    assert answer["told"]["num_blocks_held"] == 0
    alone = run(*command, "--json", "-")
    assert json.loads(alone.stdout)["told"]["text"] == text


@pytest.mark.usefixtures("_letters")
def test_a_stop_text_ends_it_before_that_text():
    whole = run("abcabc", "--max-tokens", "40", "--ignore-eos").stdout.strip()
    stop = whole[11:13]
    ended = run("abcabc", "--max-tokens", "40", "--ignore-eos", "--stop", stop, "--stop", "no such text")
    assert ended.stdout.strip() == whole[: whole.index(stop)]
    assert "\nstop: " in ended.stderr
    assert "0 held" in ended.stderr


@pytest.mark.usefixtures("_letters")
def test_top_p_and_top_k_narrow_what_is_sampled():
    greedy = run("abcabc", "--max-tokens", "30", "--ignore-eos").stdout
    assert run("abcabc", "--max-tokens", "30", "--ignore-eos", "--temperature", "2").stdout != greedy
    for narrow in (["--top-k", "1"], ["--top-p", "0.000001"]):
        assert run("abcabc", "--max-tokens", "30", "--ignore-eos", "--temperature", "2", *narrow).stdout == greedy


@pytest.mark.usefixtures("_letters")
def test_memory_is_what_the_model_can_use():
    result = run("abcabc", "--max-tokens", "1000000", "--ignore-eos")
    assert "0 held of 33" in result.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "one prompt is needed"),
        (["a", "--file", __file__], "one prompt is needed"),
        (["a", "--temperature", "nan"], "nan is not a finite number"),
        (["a", "--top-p", "0"], "--top-p"),
        (["a", "--stop", ""], "--stop is ''"),
        (["a", "--kernel", "numpy", "--threads", "2"], "--threads has no effect here"),
        (["a", "--draft", "none", "--compare"], "--compare has no effect here"),
        (["a", "--json", "/dev/full"], "No space left"),
        (["a", "--model", "smollm2-135m"], "outrider models pull smollm2-135m"),
    ],
)
def test_what_cannot_be_is_refused_before_a_model_is_loaded(args, said, monkeypatch):
    monkeypatch.setattr(real_model, "locate", lambda name: None if "smollm2-135m" in args else name)
    monkeypatch.setattr(real_model, "load_speculative", None)
    monkeypatch.setattr(real_model, "pull", None)
    result = run(*args)
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.usefixtures("_letters")
def test_a_different_text_without_drafts_is_status_1(monkeypatch):
    tell = generate_command.tell

    def wrong(loaded, request, speculative, *rest):
        other = msgspec.structs.replace(request, prompt=[1])
        return tell(loaded, request if speculative.draft != "none" else other, speculative, *rest)

    monkeypatch.setattr(generate_command, "tell", wrong)
    result = run("abcabc", "--max-tokens", "9", "--compare", "--ignore-eos")
    assert result.exit_code == 1
    assert "the text without drafts is different" in result.stderr


@pytest.mark.usefixtures("_letters")
def test_ctrl_c_keeps_what_was_produced(monkeypatch):
    num_seen = 0

    class Slow(Letters):
        def token_bytes(self, token):
            nonlocal num_seen
            num_seen += 1
            if num_seen == 5:
                signal.raise_signal(signal.SIGINT)
            return super().token_bytes(token)

    loaded = Loaded(FakeModel(3, 26, 1, 30.0, max_model_len=4096), Slow())
    monkeypatch.setattr(generate_command, "load_model", lambda *_: (loaded, None))
    result = run("abcabc", "--max-tokens", "4000", "--ignore-eos", "--compare")
    assert result.exit_code == 130
    assert 5 <= len(result.stdout.strip()) < 4000
    assert "cancelled: " in result.stderr
    assert "0 held" in result.stderr


CHAT = """
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # else Ctrl-C is for nobody
from cli import chat, real_model
from cli.main import main
from models import FakeModel
from models.loading import Loaded
from scheduler import PassCost
from tests.cli.test_real_model import Letters

loaded = Loaded(FakeModel(3, 26, 1, 30.0, max_model_len=512), Letters())
real_model.locate = lambda name: name
real_model.default_heads = lambda name: None
chat.load_model = lambda choices, console: (loaded, None)
main(["chat", "--max-tokens", "8"])
"""


@pytest.mark.parametrize(
    ("turns", "status"), [(["abc\n", "\x03"], 130), (["\x03"], 130), (["abc\n", "\x04"], 0), (["\n"], 0)]
)
def test_a_chat_is_left_at_its_prompt(turns, status):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", CHAT]
    chat = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    shown = ""
    with contextlib.suppress(OSError):  # the other end is closed
        while select.select([ours], [], [], 20)[0] and (piece := os.read(ours, 1000)):
            shown += piece.decode()
            if turns and shown.endswith("> "):
                os.write(ours, turns.pop(0).encode())
    os.close(ours)
    assert chat.wait(20) == status, shown
    assert "Traceback" not in shown


def test_a_model_that_is_nowhere_is_named():
    result = CliRunner().invoke(main, ["generate", "hello", "--model", "no/such/file"])
    assert result.exit_code == 2
    assert "no model at no/such/file" in result.output

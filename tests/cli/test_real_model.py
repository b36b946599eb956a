"""The commands that run a model, with a model that needs no weights."""

import pytest
from click.testing import CliRunner

from cli import chat as chat_command
from cli import generate as generate_command
from cli.main import main
from models import FakeModel
from models.loading import Loaded


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
    for module in (generate_command, chat_command):
        monkeypatch.setattr(module, "load_model", lambda *_args: loaded)


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
    assert result.exit_code == 1
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


def test_a_model_that_is_nowhere_is_named():
    result = CliRunner().invoke(main, ["generate", "hello", "--model", "no/such/file"])
    assert result.exit_code == 1
    assert "no model at no/such/file" in result.output

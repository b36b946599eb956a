"""Traces and recordings, as `outrider sim` takes them."""

import json

import pytest
from click.testing import CliRunner

from cli.main import main

FAST = ("--compare", "2", "--cancel-rate", "0", "--blocks", "200")


def sim(*args):
    return CliRunner().invoke(main, ["sim", *FAST, *map(str, args)])


def lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def lengths(tmp_path):
    return lines(tmp_path / "t", *({"input_length": 40 + i, "output_length": 5, "timestamp": i} for i in range(4)))


def test_prompts_are_made_up_where_a_trace_says_nothing_of_them(lengths, tmp_path):
    assert sim("--trace", lengths, "--repetition", "0.9").exit_code == 0
    hashed = lines(tmp_path / "h", {"input_length": 40, "output_length": 5, "timestamp": 0, "hash_ids": [1]})
    refused = sim("--trace", hashed, "--repetition", "0.9")
    assert refused.exit_code == 2
    assert "--repetition has no effect here" in refused.output


def test_a_format_is_named_and_refused_without_a_file(lengths):
    named = sim("--trace", lengths, "--format", "mooncake", "--json", "-")
    assert json.loads(named.stdout)["config"]["format"] == "mooncake"
    wrong = sim("--trace", lengths, "--format", "vidur")
    assert wrong.exit_code == 2
    assert "is read as a trace in JSON of bailian, sharegpt-hashed, mooncake" in wrong.output
    alone = sim("--format", "mooncake")
    assert alone.exit_code == 2
    assert "--format has no effect here" in alone.output


def test_a_trace_without_times_says_what_to_do(tmp_path):
    path = lines(tmp_path / "t", {"input_length": 40, "output_length": 5})
    refused = sim("--trace", path)
    assert refused.exit_code == 2
    assert "does not say when requests came" in refused.output
    assert sim("--trace", path, "--arrivals", "closed").exit_code == 0


def test_files_of_the_other_kind_are_told_apart(lengths, tmp_path):
    chats = lines(
        tmp_path / "c", {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}
    )
    assert "--replay takes" in " ".join(sim("--trace", chats).output.split())
    assert "--trace takes" in " ".join(sim("--replay", lengths).output.split())
    done = sim("--replay", chats, "--json", "-")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["requests"]["completed"] == 1


def test_what_is_left_out_is_told_by_its_cause(tmp_path):
    said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    path = lines(tmp_path / "c", {"messages": said}, {"messages": said[:1]}, {"messages": []})
    found = json.loads(sim("--replay", path, "--json", "-").stdout)
    assert found["source"] == {
        "name": "c",
        "rows": 3,
        "used": 1,
        "unused": {"a conversation without an answer": 2},
    }

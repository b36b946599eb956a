"""Recorded conversations in the layouts of logs and data sets, and what is left out of them."""

import gzip
import json
import re

import pytest

from sims.errors import SimError
from sims.recordings import FORMATS, Message, read_conversations, transcript
from sims.replay import read_recording
from sims.simulate import simulate
from tests.sims.small import small
from tests.sims.test_traces import write_jsonl

ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
BOTH = [*ASKED, {"role": "assistant", "content": "Hello"}, {"role": "user", "content": "Bye"}]
SYSTEM, USER = (Message(**message) for message in ASKED)


def usable(path):
    file = read_conversations(path)
    return [(c.prompt, c.completion, c.category) for c in file.conversations], file.unused


@pytest.mark.parametrize(
    ("layout", "rows", "expected"),
    [
        (
            "pairs",
            [{"prompt": "a", "completion": "b", "category": "maths", "ttft_ms": 3}, {"prompt": [1], "completion": []}],
            [("a", "b", "maths"), ([1], [], None)],
        ),
        (
            "chat",
            [
                {
                    "messages": [*BOTH, {"role": "assistant", "content": [{"type": "text", "text": "Bye!"}]}],
                    "category": 7,
                }
            ],
            [
                ([SYSTEM, USER], "Hello", "7"),
                ([SYSTEM, USER, Message("assistant", "Hello"), Message("user", "Bye")], "Bye!", "7"),
            ],
        ),
        (
            "sharegpt",
            [
                {
                    "id": "x",
                    "conversations": [
                        {"from": "human", "value": "Hi"},
                        {"from": "gpt", "value": "Hello"},
                        {"from": "human", "value": "Bye"},
                    ],
                },
                {"conversations": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]},
            ],
            [([Message("user", "Hi")], "Hello", None), ([Message("user", "Hi")], "Yo", None)],
        ),
        (
            "exchanges",
            [
                {
                    "request": {"model": "m", "messages": ASKED},
                    "response": {"choices": [{"message": {"role": "assistant", "content": "Hello"}}, {"text": "no"}]},
                },
                {"request": {"prompt": "a"}, "response": {"choices": [{"text": "b", "index": 0}]}},
                {
                    "custom_id": "1",
                    "request": {"method": "POST", "body": {"messages": ASKED}},
                    "response": {"status_code": 200, "body": {"choices": [{"message": {"content": "Hey"}}]}},
                },
            ],
            [([SYSTEM, USER], "Hello", None), ("a", "b", None), ([SYSTEM, USER], "Hey", None)],
        ),
    ],
)
def test_every_layout_is_known_and_may_be_named(tmp_path, layout, rows, expected):
    path = write_jsonl(tmp_path / "r", rows)
    assert usable(path) == (expected, {})
    assert read_conversations(path, layout).format == read_conversations(path).format == layout in FORMATS


def test_what_cannot_be_used_is_counted_by_its_cause(tmp_path):
    image = [{"type": "image_url", "image_url": {}}]
    chats = [
        BOTH,
        ASKED,
        [*ASKED, {"role": "assistant", "content": None, "tool_calls": [{}]}],
        [*ASKED, {"role": "assistant", "content": ""}],
        [{"role": "user", "content": image}, {"role": "assistant", "content": "A cat"}],
        [
            *ASKED,
            {"role": "assistant", "content": None, "tool_calls": [{}]},
            {"role": "tool", "content": "3"},
            {"role": "assistant", "content": "Three"},
        ],
        [{"content": "Hi"}, {"role": "assistant", "content": "Hello"}],
        "Hi",
    ]
    path = write_jsonl(tmp_path / "r", [{"messages": messages} for messages in chats])
    with path.open("a") as file:
        file.write('{"messages": \n{"other": 1}\n3\n\n')
    found = read_conversations(path)
    assert [c.completion for c in found.conversations] == ["Hello"]
    assert found.unused == {
        "a conversation without an answer": 1,
        "an answer without text": 3,
        "content that is not text": 1,
        "calls of tools before the answer": 1,
        "a message without text or role before the answer": 1,
        "Expected array, got str": 1,
        "not JSON": 1,
        "no messages": 1,
        "not a JSON object": 1,
    }
    assert found.num_rows == 12


def test_exchanges_that_failed_are_counted_too(tmp_path):
    request = {"messages": ASKED}
    rows = [
        {"request": request, "response": {"choices": [{"message": {"content": "Hello"}}]}},
        {"request": request, "response": {"error": {"message": "no"}}},
        {"request": {}, "response": {"choices": [{"text": "b"}]}},
        {"request": {"prompt": [1, 2]}, "response": {"choices": [{"text": "b"}]}},
        {"request": request, "response": {"choices": [{"message": {"content": None}}]}},
    ]
    found, unused = usable(write_jsonl(tmp_path / "r", rows))
    assert len(found) == 1
    assert unused == {
        "no choices in the response": 1,
        "no prompt and no messages in the request": 1,
        "text on one side and ids on the other": 1,
        "an answer without text": 1,
    }


def test_a_file_may_be_an_array_have_a_mark_be_packed_and_hold_any_character(tmp_path):
    rows = [{"prompt": "a\u2028b", "completion": "c\x85d"}, {"prompt": "e", "completion": "f"}]
    expected = [("a\u2028b", "c\x85d", None), ("e", "f", None)]
    as_lines = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    for content in (as_lines, "\ufeff" + as_lines, json.dumps(rows, ensure_ascii=False, indent=1)):
        (tmp_path / "r").write_text(content, encoding="utf-8", newline="")
        (tmp_path / "g").write_bytes(gzip.compress(content.encode()))
        assert usable(tmp_path / "r") == usable(tmp_path / "g") == (expected, {})


def test_parquet_is_read_as_json_is(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs outrider[parquet]")
    pyarrow = pytest.importorskip("pyarrow")
    answer = {"role": "assistant", "content": "Hello"}
    rows = [{"messages": [*ASKED, answer], "category": "qa"}, {"messages": ASKED, "category": None}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "r.parquet")
    assert usable(tmp_path / "r.parquet") == usable(write_jsonl(tmp_path / "r.jsonl", rows))
    assert usable(tmp_path / "r.parquet")[0] == [([SYSTEM, USER], "Hello", "qa")]
    (tmp_path / "half.parquet").write_bytes((tmp_path / "r.parquet").read_bytes()[:200])
    with pytest.raises(SimError, match=r"half.parquet cannot be read"):
        read_conversations(tmp_path / "half.parquet")


@pytest.mark.parametrize(
    ("content", "layout", "message"),
    [
        (
            '{"input_length": 3, "output_length": 4}',
            None,
            "of no known layout: .*it may be a trace, which --trace takes",
        ),
        ('{"question_id": 1, "turns": ["Hi"]}', None, "these may be questions without answers"),
        ('{"a": 1}', None, r"its rows have a\. Known.*\n.*pairs: prompt and completion"),
        ('{"prompt": "a", "completion": 3}', None, "no row to use, read as pairs .*unused: 1 Expected"),
        ('{"prompt": "a", "completion": [3]}', None, "unused: 1 text on one side and ids on the other"),
        ('{"prompt": "a", "completion": "b"}', "chat", "read as chat .*unused: 1 no messages"),
        ('{"prompt": "a", "completion": "b"}', "mooncake", "format is 'mooncake': r is read as a recording of pairs"),
        ("", None, "no row to use"),
    ],
)
def test_what_is_no_recording_is_refused_in_words_that_say_what_it_is(tmp_path, content, layout, message):
    (tmp_path / "r").write_text(content)
    with pytest.raises(SimError, match=re.compile(message, re.DOTALL)):
        read_conversations(tmp_path / "r", layout)


def test_a_chat_is_recited_turn_by_turn(tmp_path):
    rows = [{"messages": [*BOTH, {"role": "assistant", "content": "Bye bye bye"}]}]
    path = write_jsonl(tmp_path / "r", rows)
    recording = read_recording(path)
    assert [recording.text(completion) for _, completion in recording.records] == ["Hello", "Bye bye bye"]
    first, second = (recording.text(prompt) for prompt, _ in recording.records)
    assert first == transcript([SYSTEM, USER])
    assert second.startswith(first + "Hello<|im_end|>")
    report = simulate(small(replay=str(path), requests=None, temperatures=(0.0,), compare=2, format="chat"))
    assert report.requests.submitted == 2
    assert report.problems == []


def test_a_recording_of_text_is_reversible(tmp_path):
    texts = ["def f(x):\n    return x + 1\n", "  naïve — ünïcode\t\n\n", "f(f(2))"]
    rows = [{"prompt": text, "completion": text[::-1]} for text in texts]
    recording = read_recording(write_jsonl(tmp_path / "r.jsonl", rows))
    for text, (prompt, completion) in zip(texts, recording.records, strict=True):
        assert recording.text(prompt) == text
        assert recording.text(completion) == text[::-1]
        assert recording.eos not in prompt + completion
    assert recording.unused == {}


def test_a_recording_of_ids_and_the_rows_it_cannot_hold(tmp_path):
    rows = [
        {"prompt": [1, 2], "completion": [3, 4]},
        {"prompt": [1, 2], "completion": [3, 5]},  # continues the same tokens differently
        {"prompt": [1, 2, 3], "completion": [4]},  # continues them as the first one does
        {"prompt": [1, 2, 3, 4], "completion": [9]},  # goes on where the first one ends
        {"prompt": [], "completion": [1]},
        {"prompt": "text", "completion": [1]},
        {"prompt": [-1], "completion": [1]},
        {"prompt": [7]},
    ]
    recording = read_recording(write_jsonl(tmp_path / "r.jsonl", rows))
    assert recording.records == [([1, 2], [3, 4]), ([1, 2, 3], [4])]
    assert recording.eos == 5
    assert recording.num_rows == 8
    assert sum(recording.unused.values()) == 6
    assert recording.unused["another row continues the same tokens differently"] == 2

"""Trace files in the layouts that they are published in, and those that only look like one."""

import asyncio
import json
import re
from itertools import pairwise

import msgspec
import pytest

from sims.arrivals import Closed, Open, Recorded
from sims.clients import _Visit
from sims.config import Cost
from sims.errors import SimError
from sims.leaving import Leaving
from sims.simulate import simulate
from sims.traces import FORMATS, read_trace, says_prompts
from sims.workload import Workload
from tests.sims.small import small
from tests.sims.test_traces import common, write_jsonl

AZURE_2024 = (
    "\ufeffTIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2024-05-10 00:00:00.009930+00:00,2162,5\r\n"
    "2024-05-10 00:00:01+00:00,2399,6\r\n"
    "2024-05-10 01:00:02.5+01:00,10,1\r\n"
)
BURST = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n"
    "45,GPT-4,1087,0,1087,Conversation log\n"
    "118,GPT-4,417,276,693,API log\n"
)
BURST_SESSIONS = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,a,3.5,GPT-4,472,18,490,Conversation log\n"
    "6,,1,GPT-4,3,4,7,API log\n"
    "7,a,2.5,GPT-4,600,20,620,Conversation log\n"
)
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,591,140\n0.125,547.0,248\n1,2.5,3\n"


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def length(num_prompt, num_output=5, **more):
    return {"input_length": num_prompt, "output_length": num_output, **more}


def read(tmp_path, content, layout=None, name="t"):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8", newline="")
    return read_trace(path, layout)


@pytest.mark.parametrize(
    ("layout", "content", "rows", "unused"),
    [
        ("azure", AZURE_2024, [(0.0, 2162, 5), (0.99007, 2399, 6), (2.49007, 10, 1)], {}),
        ("burstgpt", BURST, [(0, 472, 18), (113, 417, 276)], {"no prompt or no output": 1}),
        ("burstgpt", BURST_SESSIONS, [(0, 472, 18), (1, 3, 4), (2, 600, 20)], {}),
        ("vidur", VIDUR, [(0, 591, 140), (0.125, 547, 248)], {"num_prefill_tokens is no whole number": 1}),
        ("vidur", "num_prefill_tokens,num_decode_tokens,pd_ratio\n4,2,2\n", [(0, 4, 2)], {}),
        (
            "vidur",
            "num_prefill_tokens,num_decode_tokens,block_hash_ids\n4,2,\n4,2,1|2\n",
            [(0, 4, 2)],
            {"has block_hash_ids, of blocks of unknown size": 1},
        ),
        (
            "bailian",
            lines(
                length(40, chat_id=7, parent_chat_id=-1, timestamp=1.5, type="text", turn=1, hash_ids=[1, 2, 3]),
                length(90, chat_id=8, parent_chat_id=7, timestamp=4, type="text", turn=2, hash_ids=[*range(6)]),
                length(90, chat_id=9, parent_chat_id=7, timestamp=5, type="text", turn=2, hash_ids=[*range(8)]),
            ),
            [(0, 40, 5), (2.5, 90, 5)],
            {"hash_ids do not fit input_length": 1},
        ),
        (
            "llmservingsim",
            lines(
                {"input_toks": 3, "output_toks": 2, "arrival_time_ns": 10**9, "input_tok_ids": [1, 2, 3]},
                {"input_toks": 3, "output_toks": 2, "arrival_time_ns": 3 * 10**9},
                {"input_toks": 4, "output_toks": 2, "arrival_time_ns": 0, "input_tok_ids": [1, 2, 3]},
                {"session_id": "a", "sub_requests": []},
            ),
            [(0, 3, 2), (2, 3, 2)],
            {"input_tok_ids do not fit input_toks": 1, "a session of sub_requests, which is not read": 1},
        ),
        (
            "mooncake",
            lines(
                length(600, timestamp=0, hash_ids=[1, 2, 3]),
                length(600, timestamp=1000),
                length(600),
                length(600, timestamp="x"),
                length(600, timestamp=0, hash_ids=[1, 2, 3, 4]),
                length(600, text_input="Hi", timestamp=0),
                {"timestamp": 0, "output_length": 3},
                [1],
            ),
            [(0, 600, 5), (1, 600, 5)],
            {
                "no timestamp, where other rows have one": 1,
                "Expected float | null, got str - at timestamp": 1,
                "hash_ids do not fit input_length": 1,
                "has text: lengths alone make a trace, text is for --replay": 1,
                "Object missing required field input_length": 1,
                "not a JSON object": 1,
            },
        ),
    ],
)
def test_every_layout_is_known_and_may_be_named(tmp_path, layout, content, rows, unused):
    for named in (None, layout):
        trace = read(tmp_path, content, named)
        assert trace.format == layout in FORMATS
        found = [(row.at_s, row.num_prompt, row.num_output) for row in trace.rows]
        assert found == [(pytest.approx(at_s, abs=1e-5), *lengths) for at_s, *lengths in rows]
        assert trace.unused == unused
        assert trace.num_rows == len(rows) + sum(unused.values())


def test_rows_may_come_in_one_array_after_a_mark_and_with_any_character(tmp_path):
    rows = [length(600, timestamp=0, note="a\u2028b\u0085c\u2029"), length(10, timestamp=5000, note="d")]
    as_lines = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    for content in (as_lines, "\ufeff" + as_lines, as_lines.replace("\n", "\r\n"), json.dumps(rows, indent=1)):
        trace = read(tmp_path, content)
        assert [(row.at_s, row.num_prompt) for row in trace.rows] == [(0, 600), (5, 10)]
        assert trace.num_rows == 2


def test_only_hashes_say_which_prompts_begin_alike(tmp_path):
    with_hashes = write_jsonl(tmp_path / "a", [length(600, hash_ids=[1, 2]), length(30)])
    without = write_jsonl(tmp_path / "b", [length(600), length(30)])
    assert says_prompts(with_hashes)
    assert not says_prompts(without)
    assert not says_prompts(tmp_path / "nowhere")
    trace = read_trace(with_hashes)
    assert len(trace.prompt(1, 100)) == 30  # of its own


def test_the_tokens_of_a_serving_trace_say_what_prompts_share(tmp_path):
    first, second = [*range(40)], [*range(16), 7, *range(17, 40)]
    rows = [{"input_toks": 40, "output_toks": 1, "input_tok_ids": ids} for ids in (first, second, first)]
    trace = read_trace(write_jsonl(tmp_path / "t", rows))
    a, b, c = (trace.prompt(i, 4096) for i in range(3))
    assert common(a, b) == 16
    assert common(a, c) == 32  # what no full block covers is each row's own


@pytest.mark.parametrize(
    ("content", "layout", "message"),
    [
        (lines({"prompt": "a", "completion": "b"}), None, "its rows have prompt, completion; it may be a recording"),
        (lines({"a": 1, "b": 2}), None, r"of no known layout: its rows have a, b\. Known.*\n.*bailian: Qwen"),
        ("a,b\n1,2\n", None, r"its rows have a, b\. Known.*\n.*azure: Azure"),
        ("hello\n", None, "no row to use"),
        ("[1, 2]", None, "no row to use"),
        ('[{"input_length": 1', None, "no row to use"),
        ("", None, "no row to use"),
        (BURST, "azure", "no row to use, read as azure .*; 3 rows; unused: 3 no TIMESTAMP"),
        (BURST, "mooncake", "format is 'mooncake': t is read as a trace in a table of azure, burstgpt"),
        (lines(length(3)), "azure", "format is 'azure': t is read as a trace in JSON of bailian"),
        (lines(length(0)), None, "no row to use, read as mooncake .*1 rows; unused: 1 no prompt or no output"),
    ],
)
def test_what_is_no_trace_is_refused_in_words_that_say_what_it_is(tmp_path, content, layout, message):
    with pytest.raises(SimError, match=re.compile(message, re.DOTALL)):
        read(tmp_path, content, layout)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x28\xb5\x2f\xfd....", "packed with zstandard"),
        (b"PK\x03\x04....", "packed with zip"),
        ("a,b".encode("utf-16"), "UTF-16"),
        (b"\x1f\x8bx", "cannot be read"),
    ],
)
def test_a_file_that_is_packed_in_another_way_says_so(tmp_path, content, message):
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(SimError, match=message):
        read_trace(tmp_path / "t")


# sessions

SESSIONS = [
    length(40, 4, session_id="a", timestamp=0),
    length(60, 4, session_id="a", delay=500),
    length(40, 4, session_id="b", timestamp=100),
    length(80, 4, session_id="a", delay=0),
    length(50, 4, session_id="b", timestamp=101),
]


def sessions(tmp_path, **changes):
    path = write_jsonl(tmp_path / "s.jsonl", SESSIONS)
    settings = {"trace": str(path), "arrivals": Recorded(), "leaving": Leaving(0.0), "requests": None, "compare": 0}
    return msgspec.structs.replace(small(), **{**settings, **changes})


def test_a_turn_follows_its_session_and_says_how_long_after_the_answer(tmp_path):
    clients = list(Workload(sessions(tmp_path)))
    told = {len(c.request.prompt): (c.session, c.at_s, c.pause_s) for c in clients}
    assert told == {
        40: ("b", 0.1, 0.0),
        60: ("a", None, 0.5),
        80: ("a", None, 0.0),
        50: ("b", 0.101, 0.0),
    }
    by_speed = list(Workload(sessions(tmp_path, arrivals=Recorded(2.0))))
    assert [c.pause_s for c in by_speed if len(c.request.prompt) == 60] == [0.25]


@pytest.mark.parametrize("arrivals", [Recorded(), Recorded(100.0), Closed(1), Closed(4), Open(100.0)])
def test_the_next_turn_comes_after_the_answer(tmp_path, monkeypatch, arrivals):
    visits = []
    visit = _Visit.visit

    async def timed(self):
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        await visit(self)
        visits.append((self._client, start_s, loop.time()))

    monkeypatch.setattr(_Visit, "visit", timed)
    config = sessions(tmp_path, arrivals=arrivals, cost=Cost(overhead_ms=100))
    report = simulate(config)
    assert report.requests.completed == 5
    assert report.problems == []
    for session, num_turns in (("a", 3), ("b", 2)):
        turns = sorted((v for v in visits if v[0].session == session), key=lambda v: v[0].index)
        assert len(turns) == num_turns
        for before, after in pairwise(turns):
            assert after[1] >= before[2] + after[0].pause_s - 1e-9
            if isinstance(arrivals, Recorded) and after[0].at_s is None:
                assert after[1] == pytest.approx(before[2] + after[0].pause_s)


def test_a_trace_without_times_cannot_come_at_its_times(tmp_path):
    path = write_jsonl(tmp_path / "t.jsonl", [length(40), length(50)])
    config = msgspec.structs.replace(small(), trace=str(path), requests=None, compare=0)
    assert simulate(msgspec.structs.replace(config, arrivals=Closed(2), leaving=Leaving(0.0))).requests.completed == 2
    with pytest.raises(SimError, match="does not say when requests came"):
        Workload(msgspec.structs.replace(config, arrivals=Recorded()))

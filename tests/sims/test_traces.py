import gzip
import json

import pytest

from sims.errors import SimError
from sims.traces import read_trace
from tests.shared import shared


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def mooncake(timestamp, input_length, hash_ids, output_length=5):
    return {
        "timestamp": timestamp,
        "input_length": input_length,
        "output_length": output_length,
        "hash_ids": hash_ids,
    }


def common(a, b):
    """How many tokens two prompts begin with in common."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def test_equal_leading_hash_ids_are_equal_tokens_and_nothing_else_is(tmp_path):
    trace = read_trace(
        write_jsonl(
            tmp_path / "t.jsonl",
            [
                mooncake(0, 1536, [1, 2, 3]),
                mooncake(10, 1100, [1, 2, 4]),
                mooncake(20, 1100, [1, 2, 4]),
                mooncake(30, 1536, [9, 2, 3]),
                mooncake(40, 700, [1, 2]),
            ],
        )
    )
    a, b, same_as_b, other_start, cut = (trace.prompt(i, 4096) for i in range(5))
    assert [len(p) for p in (a, b, same_as_b, other_start, cut)] == [1536, 1100, 1100, 1536, 700]
    assert common(a, b) == 1024  # two blocks of 512 are 64 blocks of 16, to the token
    assert b == same_as_b
    assert common(a, other_start) == 0  # the same ids after another beginning are another text
    assert sum(x == y for x, y in zip(a[512:], other_start[512:], strict=True)) < 10
    assert common(a, cut) == 700  # a partial block is the beginning of the block of its id, and no more


def test_the_partial_last_block_is_text_of_its_own(tmp_path):
    """A block cut short and a whole one under another id have nothing in common past their shared beginning."""
    rows = [mooncake(0, 512 + 100, [1, 2]), mooncake(0, 1024, [1, 3])]
    trace = read_trace(write_jsonl(tmp_path / "t.jsonl", rows))
    assert common(trace.prompt(0, 4096), trace.prompt(1, 4096)) == 512


def test_rows_are_put_in_order_and_start_at_zero(tmp_path):
    rows = [mooncake(9000, 10, [1]), mooncake(6500, 20, [2]), mooncake(7000, 30, [3])]
    trace = read_trace(write_jsonl(tmp_path / "t.jsonl", rows))
    assert [(row.at_s, row.num_prompt) for row in trace.rows] == [(0.0, 20), (0.5, 30), (2.5, 10)]


def test_every_row_that_is_not_used_is_counted_by_its_reason(tmp_path):
    path = tmp_path / "t.jsonl"
    good = [mooncake(i, 600, [1, i + 2]) for i in range(3)]
    bad = [mooncake(0, 1600, [1]), mooncake(0, 0, []), mooncake(0, 600, [1, 2], output_length=0), {"timestamp": 3}]
    path.write_text(
        "\n".join(map(json.dumps, good + bad)) + "\nnot json\n\n" + json.dumps(mooncake(5, 5000, [*range(10)]))
    )
    trace = read_trace(path)
    assert trace.num_rows == 9
    assert len(trace.rows) == 4
    assert trace.unused == {
        "hash_ids do not fit input_length": 1,
        "no prompt or no output": 2,
        "Object missing required field input_length": 1,
        "not JSON": 1,
    }
    served = trace.without_too_long(max_model_len=1000, num_positions=10**6)
    assert len(served.rows) == 3
    assert sum(served.unused.values()) + len(served.rows) == served.num_rows
    assert served.unused["longer than max_model_len (1000)"] == 1
    assert "longer than the pool (600 positions)" in trace.without_too_long(10**6, 600).unused
    assert trace.without_too_long(5004, 5004).unused == trace.unused  # the last token of 5,000 + 5 needs no position


def test_sharegpt_hashes_cover_full_blocks_of_16_only(tmp_path):
    base = {"timestamp": 0.5, "output_length": 3, "output_hash_ids": []}
    rows = [
        {**base, "input_length": 40, "hash_ids": [1, 2]},
        {**base, "input_length": 40, "hash_ids": [1, 2]},
        {**base, "input_length": 40, "hash_ids": [1, 2, 3]},
    ]
    trace = read_trace(write_jsonl(tmp_path / "t.jsonl", rows))
    assert trace.unused == {"hash_ids do not fit input_length": 1}
    first, second = trace.prompt(0, 4096), trace.prompt(1, 4096)
    assert len(first) == 40
    assert common(first, second) == 32  # what no hash covers is each row's own


def test_gzip_and_plain_files_read_alike(tmp_path):
    plain = write_jsonl(tmp_path / "t.jsonl", [mooncake(0, 600, [1, 2]), mooncake(3000, 700, [1, 3])])
    packed = tmp_path / "t.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_trace(packed).rows == read_trace(plain).rows


def test_azure_csv(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:50.9951690,396,109\n"
        "2023-11-16 18:15:51,0,5\n"
        "yesterday,1,1\n"
        "2023-11-16 18:15:52.1234567,12\n"
    )
    trace = read_trace(path)
    assert [(row.num_prompt, row.num_output) for row in trace.rows] == [(374, 44), (396, 109)]
    assert trace.rows[1].at_s == pytest.approx(4.314579)
    assert trace.unused == {"no prompt or no output": 1, "TIMESTAMP is no time": 1, "no GeneratedTokens": 1}
    assert trace.num_rows == 5


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"TIMESTAMP,ContextTokens\n1,2\n", "GeneratedTokens"),
        ("a.jsonl", b"\n", "no row to use"),
        ("a.jsonl", b"{}\n", "no fields"),
        ("a.jsonl.gz", b"not gzip", "cannot be read"),
        ("a.jsonl", b"\xff\xfe", "cannot be read"),
    ],
)
def test_files_that_are_no_traces_are_refused(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(SimError, match=message):
        read_trace(path)


@pytest.mark.parametrize(
    ("name", "num_rows", "hash_block"),
    [
        ("mooncake/conversation_trace.jsonl.gz", 12031, 512),
        ("mooncake/synthetic_trace.jsonl", 3993, 512),
        ("azure/AzureLLMInferenceTrace_code.csv", 8819, 0),
        ("azure/AzureLLMInferenceTrace_conv.csv", 19366, 0),
        ("sharegpt/sharegpt-llama-3.1-8b-300-sps10.lengths-hash16.jsonl", 300, 16),
    ],
)
def test_public_traces_are_read_whole(name, num_rows, hash_block):
    trace = read_trace(shared("data/" + name))
    assert len(trace.rows) == trace.num_rows == num_rows
    assert trace.unused == {}
    assert trace.hash_block == hash_block


def test_two_rows_of_a_public_trace_share_what_their_hashes_say():
    trace = read_trace(shared("data/mooncake/conversation_trace.jsonl.gz"))
    for i in range(1, 30):
        before, row = trace.rows[i - 1], trace.rows[i]
        num_blocks = common(before.hash_ids, row.hash_ids)
        num_tokens = min(512 * num_blocks, before.num_prompt, row.num_prompt)
        assert num_tokens <= common(trace.prompt(i - 1, 4096), trace.prompt(i, 4096)) < num_tokens + 3

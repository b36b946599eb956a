"""Recorded traffic: when requests came, how long they were, and which of them began alike."""

import csv
import gzip
import io
import zlib
from collections import Counter
from datetime import datetime
from pathlib import Path

import msgspec

from kvpool import blocks_for
from sims.errors import SimError
from sims.prompts import mix, text_of

_MOONCAKE_BLOCK = 512
_SHAREGPT_BLOCK = 16


class TraceRow(msgspec.Struct, frozen=True):
    """One request: its arrival in seconds from the trace's first, its lengths in tokens, its prompt's hash ids."""

    at_s: float
    num_prompt: int
    num_output: int
    hash_ids: list[int] = []


class Trace(msgspec.Struct):
    """A trace in order of arrival.

    With hashes, every id stands for `hash_block` tokens of the prompt and for all that came before them.
    `unused` counts the rows of the file that cannot be served, by reason.
    """

    name: str
    rows: list[TraceRow]
    hash_block: int
    num_rows: int
    unused: dict[str, int]

    def without_too_long(self, max_model_len: int, num_positions: int) -> "Trace":
        """Set aside the rows that a sequence, or the whole pool, has no room for: the last token needs none."""
        unused = Counter(self.unused)
        rows = []
        for row in self.rows:
            needed = row.num_prompt + row.num_output - 1
            if needed > max_model_len:
                unused[f"longer than max_model_len ({max_model_len})"] += 1
            elif needed > num_positions:
                unused[f"longer than the pool ({num_positions} positions)"] += 1
            else:
                rows.append(row)
        return msgspec.structs.replace(self, rows=rows, unused=dict(unused))

    def prompt(self, index: int, vocab_size: int) -> list[int]:
        """Write the prompt of a row with hashes: equal leading ids give equal tokens, and nothing else does.

        hash blocks   |---- id 0 ----|---- id 1 ----|- id 2 -|        the last may be cut short, or be missing:
        KV blocks     |--|--|--|--|--|--|--|--|--|--|--|--|--         what no id covers is the row's own
        """
        row = self.rows[index]
        tokens: list[int] = []
        state = 0
        for hash_id in row.hash_ids:
            state = mix(state, hash_id)
            tokens += text_of(state, min(self.hash_block, row.num_prompt - len(tokens)), vocab_size).tolist()
        if len(tokens) < row.num_prompt:
            own = mix(mix(state, -1), index)
            tokens += text_of(own, row.num_prompt - len(tokens), vocab_size).tolist()
        return tokens


def read_trace(path: Path) -> Trace:
    """Read a Mooncake or ShareGPT-derived JSONL file (plain or .gz) or an Azure CSV file.

    A row that cannot be used is counted, never an error; SimError for a file of no known format or without any row.
    """
    try:
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise SimError(f"{path} cannot be read: {error}") from None
    trace = _read_csv(path.name, text) if text.lstrip().startswith("TIMESTAMP") else _read_jsonl(path.name, text)
    if not trace.rows:
        raise SimError(f"{path} has no row to use ({trace.num_rows} rows; unused: {trace.unused or 'none'})")
    first_s = min(row.at_s for row in trace.rows)
    rows = [msgspec.structs.replace(row, at_s=row.at_s - first_s) for row in trace.rows]
    return msgspec.structs.replace(trace, rows=sorted(rows, key=lambda row: row.at_s))


class _JsonRow(msgspec.Struct):
    timestamp: float  # ms from the start
    input_length: int
    output_length: int
    hash_ids: list[int]
    output_hash_ids: list[int] | None = None


def _read_jsonl(name: str, text: str) -> Trace:
    decoder = msgspec.json.Decoder(_JsonRow)
    rows, unused = [], Counter[str]()
    lines = [line for line in text.splitlines() if line.strip()]
    hash_block = 0
    for line in lines:
        try:
            row = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            unused["malformed"] += 1
            continue
        # Only the ShareGPT-derived files hash their outputs; they hash full blocks alone.
        has_outputs = row.output_hash_ids is not None
        block = _SHAREGPT_BLOCK if has_outputs else _MOONCAKE_BLOCK
        num_hashes = row.input_length // block if has_outputs else blocks_for(row.input_length, block)
        hash_block = hash_block or block
        if row.input_length < 1 or row.output_length < 1:
            unused["no prompt or no output"] += 1
        elif len(row.hash_ids) != num_hashes:
            unused["hash_ids do not fit input_length"] += 1
        elif block != hash_block:
            unused["hash blocks of another size than the first row's"] += 1
        else:
            rows.append(TraceRow(row.timestamp / 1e3, row.input_length, row.output_length, row.hash_ids))
    return Trace(name, rows, hash_block, len(lines), dict(unused))


def _read_csv(name: str, text: str) -> Trace:
    reader = csv.DictReader(io.StringIO(text))
    missing = {"TIMESTAMP", "ContextTokens", "GeneratedTokens"}.difference(reader.fieldnames or ())
    if missing:
        raise SimError(f"{name} has no column {', '.join(sorted(missing))}")
    rows, unused = [], Counter[str]()
    lines = list(reader)
    for line in lines:
        try:
            # Seven fractional digits, one more than a datetime takes.
            at_s = (datetime.fromisoformat(line["TIMESTAMP"][:26]) - datetime(2000, 1, 1)).total_seconds()
            row = TraceRow(at_s, int(line["ContextTokens"]), int(line["GeneratedTokens"]))
        except (TypeError, ValueError):
            unused["malformed"] += 1
            continue
        if row.num_prompt < 1 or row.num_output < 1:
            unused["no prompt or no output"] += 1
        else:
            rows.append(row)
    return Trace(name, rows, 0, len(lines), dict(unused))

"""Traces of a JSON object a row."""

import zlib
from typing import Any

import msgspec
import numpy as np

from kvpool import blocks_for
from sims.layouts import Layout, UnusableError
from sims.traces.said import Said

_MOONCAKE_BLOCK = 512
_SMALL_BLOCK = 16


class _Lengths(msgspec.Struct):
    input_length: int
    output_length: int
    timestamp: float | None = None
    hash_ids: list[int] | None = None


class _MooncakeRow(_Lengths):
    session_id: str | int | None = None
    delay: float | None = None


class _BailianRow(_Lengths, kw_only=True):
    chat_id: int
    parent_chat_id: int = -1
    hash_ids: list[int] | None = None


class _ServingSimRow(msgspec.Struct):
    input_toks: int
    output_toks: int
    arrival_time_ns: float | None = None
    input_tok_ids: list[int] | None = None


def _mooncake(row: dict[str, Any]) -> Said:
    if row.get("text_input") is not None or row.get("messages") is not None:
        raise UnusableError("has text: lengths alone make a trace, text is for --replay")
    said = msgspec.convert(row, _MooncakeRow)
    #   the last id is of a block cut short; some rows have one more, of the first block of the answer
    begun = blocks_for(said.input_length, _MOONCAKE_BLOCK)
    _check(said.hash_ids, begun, begun + 1)
    return Said(
        said.input_length,
        said.output_length,
        None if said.timestamp is None else said.timestamp / 1e3,
        said.hash_ids,
        _MOONCAKE_BLOCK,
        None if said.session_id is None else str(said.session_id),
        None if said.delay is None else said.delay / 1e3,
    )


def _hashed_sharegpt(row: dict[str, Any]) -> Said:
    said = msgspec.convert(row, _Lengths)
    full = said.input_length // _SMALL_BLOCK
    _check(said.hash_ids, full, full)
    at_s = None if said.timestamp is None else said.timestamp / 1e3
    return Said(said.input_length, said.output_length, at_s, said.hash_ids, _SMALL_BLOCK)


class _Bailian:
    """A chat's first turn has no parent; each further one names the turn it goes on from."""

    def __init__(self) -> None:
        self._roots: dict[int, int] = {}

    def __call__(self, row: dict[str, Any]) -> Said:
        said = msgspec.convert(row, _BailianRow)
        _check(said.hash_ids, said.input_length // _SMALL_BLOCK, blocks_for(said.input_length, _SMALL_BLOCK) + 1)
        root = self._roots.get(said.parent_chat_id, said.chat_id)
        self._roots[said.chat_id] = root
        return Said(said.input_length, said.output_length, said.timestamp, said.hash_ids, _SMALL_BLOCK, str(root))


def _serving_sim(row: dict[str, Any]) -> Said:
    if "sub_requests" in row:
        raise UnusableError("a session of sub_requests, which is not read")
    said = msgspec.convert(row, _ServingSimRow)
    hashes = None
    if said.input_tok_ids is not None:
        if len(said.input_tok_ids) != said.input_toks:
            raise UnusableError("input_tok_ids do not fit input_toks")
        hashes = _hashes(said.input_tok_ids)
    at_s = None if said.arrival_time_ns is None else said.arrival_time_ns / 1e9
    return Said(said.input_toks, said.output_toks, at_s, hashes, _SMALL_BLOCK)


def _check(hash_ids: list[int] | None, low: int, high: int) -> None:
    if hash_ids is not None and not low <= len(hash_ids) <= high:
        raise UnusableError("hash_ids do not fit input_length")


def _hashes(tokens: list[int]) -> list[int]:
    """Give an id for each full block of tokens: equal blocks have equal ids."""
    blocks = np.asarray(tokens[: len(tokens) // _SMALL_BLOCK * _SMALL_BLOCK], "<i8")
    return [zlib.crc32(block.tobytes()) for block in blocks.reshape(-1, _SMALL_BLOCK)]


def json_layouts() -> list[Layout[Said]]:
    """Give the layouts, the more special ones first; each reads one file, row by row."""
    return [
        Layout(
            "bailian",
            "Qwen-Bailian: chat_id, parent_chat_id, timestamp (s), input_length, output_length, hash_ids of 16 tokens",
            (frozenset({"chat_id", "input_length"}),),
            _Bailian(),
        ),
        Layout(
            "sharegpt-hashed",
            "timestamp (ms), input_length, output_length, hash_ids of 16 tokens, full blocks only, output_hash_ids",
            (frozenset({"input_length", "output_hash_ids"}),),
            _hashed_sharegpt,
        ),
        Layout(
            "mooncake",
            "input_length, output_length, and timestamp (ms), hash_ids of 512 tokens, session_id, delay (ms)",
            (frozenset({"input_length"}), frozenset({"hash_ids"}), frozenset({"timestamp", "output_length"})),
            _mooncake,
        ),
        Layout(
            "llmservingsim",
            "input_toks, output_toks, arrival_time_ns, input_tok_ids",
            (frozenset({"input_toks"}), frozenset({"sub_requests"})),
            _serving_sim,
        ),
    ]

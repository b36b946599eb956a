"""Traces of a CSV line a row."""

import math
from datetime import UTC, datetime
from typing import Any

from sims.layouts import Layout, UnusableError
from sims.traces.said import Said


def _azure(row: dict[str, Any]) -> Said:
    text = row["TIMESTAMP"]
    # Seven fractional digits in 2023, one more than a datetime takes; an offset, and maybe no fraction, in 2024.
    seconds, dot, fraction = text.partition(".")
    digits = len(fraction) - len(fraction.lstrip("0123456789"))
    try:
        at = datetime.fromisoformat(f"{seconds}{dot}{fraction[: min(digits, 6)]}{fraction[digits:]}")
    except ValueError:
        raise UnusableError("TIMESTAMP is no time") from None
    at_s = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    return Said(_count(row, "ContextTokens"), _count(row, "GeneratedTokens"), at_s)


def _burst_gpt(row: dict[str, Any]) -> Said:
    session = row.get("Session ID") or None
    return Said(
        _count(row, "Request tokens"), _count(row, "Response tokens"), _number(row, "Timestamp"), session=session
    )


def _vidur(row: dict[str, Any]) -> Said:
    at_s = _number(row, "arrived_at") if "arrived_at" in row else None
    session = row.get("session_id") or None
    if row.get("block_hash_ids"):
        raise UnusableError("has block_hash_ids, of blocks of unknown size")
    return Said(_count(row, "num_prefill_tokens"), _count(row, "num_decode_tokens"), at_s, session=session)


def _count(row: dict[str, Any], column: str) -> int:
    number = _number(row, column)
    if number != int(number):
        raise UnusableError(f"{column} is no whole number")
    return int(number)


def _number(row: dict[str, Any], column: str) -> float:
    text = row[column]
    if text is None or not text.strip():
        raise UnusableError(f"no {column}")
    try:
        number = float(text)
    except ValueError:
        raise UnusableError(f"{column} is no number") from None
    if not math.isfinite(number):
        raise UnusableError(f"{column} is no number")
    return number


TABLE_LAYOUTS: tuple[Layout[Said], ...] = (
    Layout(
        "azure",
        "Azure 2023 and 2024: TIMESTAMP, ContextTokens, GeneratedTokens",
        (frozenset({"TIMESTAMP", "ContextTokens"}), frozenset({"ContextTokens", "GeneratedTokens"})),
        _azure,
    ),
    Layout(
        "burstgpt",
        "Timestamp (s), Request tokens, Response tokens, and maybe Session ID",
        (frozenset({"Request tokens", "Response tokens"}),),
        _burst_gpt,
    ),
    Layout(
        "vidur",
        "num_prefill_tokens, num_decode_tokens, and maybe arrived_at (s), session_id",
        (frozenset({"num_prefill_tokens", "num_decode_tokens"}),),
        _vidur,
    ),
)

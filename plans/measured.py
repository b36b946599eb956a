"""What passes have been measured to take: points of our own, of llama-bench, and of vLLM's benchmarks."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from plans.errors import PlanError

FORMAT = "outrider-cost-1"
_NOISE = 0.10
_KNOWN = (
    "a file of `outrider measure`, the JSON (or JSON lines) of llama-bench or llama-batched-bench, "
    "or the result of `vllm bench serve`"
)


class Point(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pass over `rows` rows in all, of `batch` sequences with `context` cached tokens each, took `seconds`."""

    rows: int
    batch: int
    context: int
    seconds: float


class DraftTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What layers of drafts add to rounds, a row a sequence."""

    first: list[Point]
    """With the question to what drafts and its answer."""
    later: list[Point]


class CostFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `outrider measure` writes."""

    format: str
    model: str
    points: list[Point]
    machine: str = ""
    drafts: dict[str, DraftTimes] = {}
    """By kind of draft."""


class Measured:
    """The cost of passes between and beyond measured points.

    Of the points with one batch and context that has most of them, the time goes linearly from one number of rows to
    the next, and on with the last slope. Other contexts and batches add a time for each cached token of a sequence, and
    one for each that a row attends to: the best two by least squares, neither less than 0.
    """

    def __init__(self, points: Sequence[Point], source: str, drafts: Mapping[str, DraftTimes] = {}) -> None:
        self.source = source
        self._drafts = drafts
        self.points = sorted(points, key=lambda p: (p.batch, p.context, p.rows))
        _check(self.points, source)
        groups: defaultdict[tuple[int, int], dict[int, float]] = defaultdict(dict)
        for p in self.points:
            groups[p.batch, p.context][p.rows] = p.seconds
        for (batch, context), curve in groups.items():
            _check_rising(curve, source, f" (batch {batch}, context {context})")
        if max(map(len, groups.values())) > 1:
            self._batch, self._context = max(groups, key=lambda at: (len(groups[at]), -at[0] * at[1]))
            curve = groups[self._batch, self._context]
            self._kv = float(self._batch * self._context)
        else:  # a sweep of batches, each with its own: rows and keys grow together
            by_rows: defaultdict[int, list[float]] = defaultdict(list)
            for p in self.points:
                by_rows[p.rows].append(p.seconds)
            curve = {rows: float(np.median(seconds)) for rows, seconds in by_rows.items()}
            _check_rising(curve, source, "")
            self._kv = -1.0
        if len(curve) < 2:
            raise PlanError(f"{source}: passes of one number of rows only ({[*curve]}): two or more are needed")
        self._rows = np.array(sorted(curve), np.float64)
        self._seconds = np.maximum.accumulate([curve[rows] for rows in sorted(curve)])
        self._per_s = np.zeros(2) if self._kv < 0 else self._fit()

    def pass_s(self, num_rows: NDArray[np.float64], batch: int, context: float) -> NDArray[np.float64]:
        """Give the seconds of passes of `num_rows` rows in all over `batch` sequences of `context` tokens each."""
        inside = np.interp(num_rows, self._rows, self._seconds)
        slope = (self._seconds[-1] - self._seconds[-2]) / (self._rows[-1] - self._rows[-2])
        beyond = np.maximum(num_rows - self._rows[-1], 0) * slope
        more = 0.0 if self._kv < 0 else self._more(num_rows, batch, context) @ self._per_s
        found: NDArray[np.float64] = np.maximum(inside + beyond + more, 0.25 * inside)
        return found

    def layers(self, draft: str) -> "tuple[Measured, Measured]":
        """Give the costs of the first layer of drafts of a kind, and of a later. PlanError where there are no times."""
        if draft not in self._drafts:
            raise PlanError(
                f"{self.source}: no times of drafts by {draft}: `outrider measure --draft-model` or `--heads` takes "
                "them, or --draft-step gives one in plain passes"
            )
        times = self._drafts[draft]
        return (
            Measured(times.first, f"the first layers of {draft} drafts in {self.source}"),
            Measured(times.later, f"later layers of {draft} drafts in {self.source}"),
        )

    def explain(self) -> list[str]:
        """Say what the cost rests on."""
        curve = ", ".join(f"{rows:g}: {s * 1e3:.3g}" for rows, s in zip(self._rows, self._seconds, strict=True))
        keys = (
            "keys and values are not told apart from rows: both grow with the batch"
            if self._kv < 0
            else f"{self._per_s[0] * 1e9:.3g} ns for each cached token beyond {self._kv:,.0f} in all, and "
            f"{self._per_s[1] * 1e9:.3g} ns for each that a row attends to beyond {self._context:,}"
        )
        return [
            f"measured ({self.source}), {len(self.points)} points",
            f"ms of a pass by rows: {curve}",
            f"past {self._rows[-1]:g} rows the last slope goes on",
            keys,
        ]

    def _more(self, num_rows: NDArray[np.float64], batch: int, context: float) -> NDArray[np.float64]:
        """Count what is more than at the points of the curve: cached tokens, and those that rows attend to."""
        cached = np.full_like(num_rows, batch * context - self._kv)
        return np.stack([cached, num_rows * (context - self._context)], axis=-1)

    def _fit(self) -> NDArray[np.float64]:
        others = [p for p in self.points if self._rows[0] <= p.rows <= self._rows[-1]]
        x = np.array([self._more(np.array(float(p.rows)), p.batch, p.context) for p in others])
        y = np.array([p.seconds - float(np.interp(p.rows, self._rows, self._seconds)) for p in others])
        best, least = np.zeros(2), float(y @ y)
        for columns in ([0, 1], [0], [1]):
            found = np.zeros(2)
            found[columns] = np.linalg.lstsq(x[:, columns], y, rcond=None)[0]
            left = y - x @ found
            if found.min() >= 0 and left @ left < least * (1 - 1e-9):
                best, least = found, float(left @ left)
        return best


def _check(points: Sequence[Point], source: str) -> None:
    if not points:
        raise PlanError(f"{source}: no points")
    for p in points:
        if p.rows < 1 or p.batch < 1 or p.context < 0 or not 0 < p.seconds < float("inf"):
            raise PlanError(
                f"{source}: {p}: rows and batch are integers >= 1, context >= 0, seconds a finite number > 0"
            )


def _check_rising(curve: dict[int, float], source: str, where: str) -> None:
    for before, after in pairwise(sorted(curve)):
        if curve[after] < (1 - _NOISE) * curve[before]:
            raise PlanError(
                f"{source}: a pass of {after} rows takes {curve[after] * 1e3:,.2f} ms, less than one of {before} with "
                f"{curve[before] * 1e3:,.2f} ms{where}: times that fall by more than {_NOISE:.0%} are noise; measure "
                f"again, on an idle machine"
            )


def read_costs(paths: Iterable[Path]) -> Measured:
    """Read the points of cost files of any known kind. PlanError names the file and what is allowed."""
    points: list[Point] = []
    drafts: dict[str, DraftTimes] = {}
    names = []
    for path in paths:
        names.append(path.name)
        try:
            text = path.read_bytes()
        except OSError as error:
            raise PlanError(f"{path}: {error.strerror}") from None
        file = _read(path, text)
        if not file.points:
            raise PlanError(f"{path}: no pass can be told from it; allowed: {_KNOWN}")
        points += file.points
        for draft, of_draft in file.drafts.items():
            known = drafts.get(draft, DraftTimes([], []))
            drafts[draft] = DraftTimes(known.first + of_draft.first, known.later + of_draft.later)
    return Measured(points, ", ".join(names), drafts)


def _read(path: Path, text: bytes) -> CostFile:
    try:
        content = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:
            content = [msgspec.json.decode(line) for line in text.splitlines() if line.strip()]
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise PlanError(f"{path}: neither JSON nor JSON lines; allowed: {_KNOWN}") from None
    if isinstance(content, dict) and "points" in content:
        try:
            file = msgspec.convert(content, CostFile)
        except msgspec.ValidationError as error:
            raise PlanError(f"{path}: {error}") from None
        if file.format != FORMAT:
            raise PlanError(f"{path}: format is {file.format!r}: {FORMAT!r}")
        return file
    rows = content if isinstance(content, list) else [content]
    points: list[Point] = []
    for row in rows:
        if not isinstance(row, dict):
            raise PlanError(f"{path}: rows are no JSON objects; allowed: {_KNOWN}")
        try:
            points += _of_row(row)
        except (TypeError, ValueError, ZeroDivisionError, KeyError) as error:
            raise PlanError(f"{path}: {type(error).__name__} {error} in {row}; allowed: {_KNOWN}") from None
    return CostFile(FORMAT, "", points)


def _of_row(row: dict[str, Any]) -> list[Point]:
    if {"n_prompt", "n_gen", "avg_ns"} <= row.keys():  # llama-bench
        num_prompt, num_gen, depth = int(row["n_prompt"]), int(row["n_gen"]), int(row.get("n_depth", 0))
        seconds = float(row["avg_ns"]) / 1e9
        if num_gen and not num_prompt:
            return [Point(1, 1, depth + num_gen // 2, seconds / num_gen)]
        if num_prompt and not num_gen and num_prompt <= int(row.get("n_ubatch", 512)):
            return [Point(num_prompt, 1, depth, seconds)]
        return []  # several passes of several kinds in one time
    if {"pl", "tg", "t_tg"} <= row.keys():  # llama-batched-bench
        batch, num_gen = int(row["pl"]), int(row["tg"])
        context = int(row.get("pp", 0)) + num_gen // 2
        return [Point(batch, batch, context, float(row["t_tg"]) / num_gen)]
    if "mean_tpot_ms" in row:  # vllm bench serve
        concurrency = row.get("max_concurrency")
        if concurrency is None:
            raise ValueError("without max_concurrency: run it with --max-concurrency, so that the batch is known,")
        seconds = float(row.get("median_tpot_ms") or row["mean_tpot_ms"]) / 1e3
        num_tokens = int(row["total_input_tokens"]) + int(row["total_output_tokens"]) // 2
        return [Point(int(concurrency), int(concurrency), num_tokens // int(row["completed"]), seconds)]
    return []

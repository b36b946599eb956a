"""Plots as SVG text: one function a kind. Colours and fonts are the page's, by class."""

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from sims.report import Latency

_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 18, 30
_CHAR = 7.0
"""What a character of a label may take: the page's font is not known here."""
HALF = 380
WIDTHS = (900, HALF)
"""What is drawn over time comes for a wide page and for a narrow one: shrunk, its labels could not be read."""


class Layer(NamedTuple):
    """A named row of values, drawn in the colour of CSS class `colour`."""

    label: str
    colour: str
    values: Sequence[float]


class _Frame:
    """A plot's rectangle, with a linear y axis from 0 to at least `top`."""

    def __init__(self, width: int, height: int, top: float) -> None:
        self.width, self.height = width, height
        self.ticks = _ticks(top)
        self.top = max(self.ticks[-1], top)
        self.parts: list[str] = []

    @property
    def inner_width(self) -> float:
        return self.width - _LEFT - _RIGHT

    def x(self, share: float) -> float:
        return _LEFT + share * self.inner_width

    def y(self, value: float) -> float:
        return _TOP + (1 - value / self.top) * (self.height - _TOP - _BOTTOM)

    def draw_grid(self, unit: str = "") -> None:
        for tick in (tick for tick in self.ticks if tick <= self.top):
            y = self.y(tick)
            self.parts.append(f'<line class="grid" x1="{_LEFT}" x2="{self.width - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            self.parts.append(_text(_LEFT - 8, y + 4, f"{tick:,g}{unit}", "end"))

    def draw_x_labels(self, labels: Iterable[tuple[float, str]]) -> None:
        """Write labels below the plot, leaving out those there is no room for."""
        end = 0.0
        for share, label in labels:
            half = len(label) * _CHAR / 2
            x = min(max(self.x(share), half), self.width - half)
            if x - half >= end:
                end = x + half + _CHAR
                self.parts.append(_text(x, self.height - 9, label, "middle"))

    def draw_marks(self, marks: Iterable[tuple[str, float]]) -> None:
        """Draw dashed lines at shares of the width, their names above; names that would overlap stand together."""
        groups: list[tuple[float, list[str]]] = []
        for name, share in marks:
            x = self.x(share)
            self.parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{self.y(0):.1f}"/>')
            if groups and x - groups[-1][0] < _CHAR * (len(" ".join(groups[-1][1])) + len(name)) / 2 + _CHAR:
                groups[-1] = ((groups[-1][0] + x) / 2, [*groups[-1][1], name])
            else:
                groups.append((x, [name]))
        for x, names in groups:
            half = len(" ".join(names)) * _CHAR / 2
            self.parts.append(_text(min(max(x, _LEFT + half), self.width - half), _TOP - 5, " ".join(names), "middle"))

    def svg(self, title: str) -> str:
        size = f'viewBox="0 0 {self.width} {self.height}"'
        return f'<svg {size} role="img" aria-label="{escape(title)}">{"".join(self.parts)}</svg>'


def areas(title: str, times_s: Sequence[float], layers: Sequence[Layer], width: int, height: int = 240) -> str:
    """Stack layers over time; their sum is the upper edge."""
    sums = [0.0] * len(times_s)
    stacked = []
    for layer in layers:
        below, sums = sums, [a + b for a, b in zip(sums, layer.values, strict=True)]
        stacked.append((layer.colour, below, sums))
    frame = _Frame(width, height, max(sums, default=0))
    frame.top = max(sums, default=0) or 1.0  # the sum is one number: let it fill the plot
    frame.draw_grid()
    shares = _shares(times_s)
    for colour, below, above in stacked:
        upper = _points(frame, shares, above)
        lower = _points(frame, shares[::-1], below[::-1])
        frame.parts.append(f'<polygon class="area {colour}" points="{upper} {lower}"/>')
    frame.draw_x_labels(_time_labels(times_s, width))
    return frame.svg(title)


def lines(
    title: str, times_s: Sequence[float], layers: Sequence[Layer], width: int, height: int = 200, unit: str = ""
) -> str:
    """Draw a line over time for each layer."""
    frame = _Frame(width, height, max((max(layer.values, default=0) for layer in layers), default=0))
    frame.draw_grid(unit)
    shares = _shares(times_s)
    for layer in layers:
        frame.parts.append(f'<polyline class="line {layer.colour}" points="{_points(frame, shares, layer.values)}"/>')
    frame.draw_x_labels(_time_labels(times_s, width))
    return frame.svg(title)


def curves(
    title: str,
    labels: Sequence[str],
    layers: Sequence[Layer],
    width: int,
    height: int = 260,
    mark: float | None = None,
) -> str:
    """Draw a line over steps, each with its label, for each layer; and a dashed one at the height `mark`."""
    frame = _Frame(width, height, max((max(layer.values, default=0) for layer in layers), default=0))
    frame.draw_grid()
    shares = [0.02 + 0.96 * i / max(len(labels) - 1, 1) for i in range(len(labels))]
    if mark is not None:
        y = frame.y(mark)
        frame.parts.append(f'<line class="mark" x1="{_LEFT}" x2="{width - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
    for layer in layers:
        points = _points(frame, shares, layer.values)
        note = escape(layer.label)
        frame.parts.append(f'<polyline class="line {layer.colour}" points="{points}"><title>{note}</title></polyline>')
        for label, share, value in zip(labels, shares, layer.values, strict=True):
            at = f'cx="{frame.x(share):.1f}" cy="{frame.y(value):.1f}"'
            told = f"{note}, {escape(label)}: {value:.2f}"
            frame.parts.append(f'<circle class="dot {layer.colour}" {at} r="2.5"><title>{told}</title></circle>')
    frame.draw_x_labels(zip(shares, labels, strict=True))
    return frame.svg(title)


def histogram(title: str, latency: Latency, width: int = HALF, height: int = 210) -> str:
    """Draw a distribution over a logarithmic axis of milliseconds, with p50, p90 and p99 marked."""
    edges, counts = latency.histogram.edges, latency.histogram.counts
    if not counts:
        return '<p class="nothing">Nothing was measured.</p>'
    frame = _Frame(width, height, 1.12 * max(counts))
    frame.draw_grid()
    low, high = math.log(edges[0]), math.log(edges[-1])

    def share(ms: float) -> float:
        return min(1.0, max(0.0, (math.log(max(ms, edges[0])) - low) / (high - low)))

    for left, right, count in zip(edges, edges[1:], counts, strict=False):
        note = f"{format_ms(left)} to {format_ms(right)}: {count:,}"
        frame.parts.append(_bar(frame, share(left), share(right), count, note, gap=1))
    frame.draw_marks((name, share(ms)) for name, ms in _quantiles(latency))
    frame.draw_x_labels((share(ms), format_ms(ms)) for ms in _log_ticks(edges[0], edges[-1]))
    return frame.svg(title)


def columns(title: str, labels: Sequence[str], shares: Sequence[float], notes: Sequence[str], most: float = 1.0) -> str:
    """Draw a column per label, its height a share of 1; `most` is the largest there is room for."""
    frame = _Frame(HALF, 210, most)
    for tick in (0, 0.25 * most, 0.5 * most, 0.75 * most, most):
        y = frame.y(tick)
        frame.parts.append(f'<line class="grid" x1="{_LEFT}" x2="{frame.width - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        frame.parts.append(_text(_LEFT - 8, y + 4, f"{tick:.0%}", "end"))
    slot = 1 / max(len(labels), 1)
    half = min(0.35 * slot, 0.06)
    for i, (value, note) in enumerate(zip(shares, notes, strict=True)):
        middle = (i + 0.5) * slot
        frame.parts.append(_bar(frame, middle - half, middle + half, value, note))
        if slot * frame.inner_width > _CHAR * 5:
            frame.parts.append(_text(frame.x(middle), frame.y(value) - 5, f"{value:.0%}", "middle", "value"))
    frame.draw_x_labels(((i + 0.5) * slot, label) for i, label in enumerate(labels))
    return frame.svg(title)


def bars(title: str, labels: Sequence[str], counts: Sequence[int], width: int = HALF) -> str:
    """Draw a horizontal bar per label, its length a count."""
    row, label_width = 30, 150
    height = row * len(labels) + 8
    most = max(counts, default=1) or 1
    parts = []
    for i, (label, count) in enumerate(zip(labels, counts, strict=True)):
        y = 4 + row * i
        length = max(1.0, count / most * (width - label_width - 60))
        parts.append(_text(label_width - 8, y + 18, label, "end", "value"))
        parts.append(f'<rect class="bar" x="{label_width}" y="{y + 5}" width="{length:.1f}" height="18" rx="2"/>')
        parts.append(_text(label_width + length + 8, y + 18, f"{count:,}", "start", "value"))
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'


def _quantiles(latency: Latency) -> list[tuple[str, float]]:
    named = (("p50", latency.p50), ("p90", latency.p90), ("p99", latency.p99))
    return [(name, ms) for name, ms in named if ms is not None]


def format_ms(ms: float) -> str:
    """Say a time shortly: 250 us, 12 ms, 1.5 s."""
    if ms < 1:
        return f"{ms * 1e3:.3g} µs"
    return f"{ms:.3g} ms" if ms < 1000 else f"{ms / 1e3:,.3g} s"


def _bar(frame: _Frame, left: float, right: float, value: float, note: str, gap: float = 0) -> str:
    x, end = frame.x(left), frame.x(right) - gap
    y, base = frame.y(value), frame.y(0)
    shape = f'x="{x:.1f}" y="{y:.1f}" width="{max(end - x, 0.5):.1f}" height="{base - y:.1f}"'
    return f'<rect class="bar" {shape}><title>{escape(note)}</title></rect>'


def _text(x: float, y: float, text: str, anchor: str, kind: str = "tick") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _points(frame: _Frame, shares: Sequence[float], values: Sequence[float]) -> str:
    return " ".join(f"{frame.x(s):.1f},{frame.y(v):.1f}" for s, v in zip(shares, values, strict=True))


def _shares(times_s: Sequence[float]) -> list[float]:
    first, last = times_s[0], times_s[-1]
    return [(t - first) / ((last - first) or 1) for t in times_s]


def _time_labels(times_s: Sequence[float], width: int) -> Iterable[tuple[float, str]]:
    span_s = times_s[-1] - times_s[0]
    unit, name = (3600.0, "h") if span_s > 3 * 3600 else (60.0, "min") if span_s > 300 else (1.0, "s")
    for tick in _ticks(span_s / unit, 8 if width > HALF else 4):
        if tick * unit <= span_s:
            yield (tick * unit) / (span_s or 1), f"{tick:,g} {name}"


def _ticks(top: float, count: int = 4) -> list[float]:
    """Round numbers from 0 to the first that is not below `top`."""
    if top <= 0:
        return [0, 1]
    rough = top / count
    power = 10 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    return [round(i * step, 10) for i in range(math.ceil(top / step * 0.999) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fine = [m * 10.0**p for p in powers for m in (1, 2, 5) if low <= m * 10.0**p <= high]
    coarse = [10.0**p for p in powers if low <= 10.0**p <= high]
    return fine if len(fine) <= 6 else coarse

import io
import json
import re
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from sims.describe import verdict
from sims.leaving import Leaving
from sims.lengths import Lengths
from sims.page import page
from sims.plots import areas, histogram
from sims.report import Latency, Report
from sims.simulate import simulate
from sims.timeline import Timeline
from spec import Dynamic, SpecConfig
from tests.sims.small import ENGINE, small

DOCS = Path(__file__).resolve().parents[2] / "docs"

RELIED_ON = {
    "requests": ("submitted", "completed", "cancelled", "failed", "refused"),
    "tokens": ("prompt", "cached", "emitted", "wasted"),
    "spec": ("drafted", "accepted", "accept_rate", "tokens_per_round"),
    "blocks": ("total", "peak_held", "free", "evictable", "held", "leaked"),
    "audit": ("checks", "violations", "outputs_compared", "outputs_different"),
    "preemptions": (),
    "latency_ms": [f"{kind}.{p}" for kind in ("ttft", "tpot", "itl", "e2e") for p in ("p50", "p90", "p99")],
    "cancel": ("by_phase", "blocks_back_ms.p50", "blocks_back_ms.p99", "blocks_back_ms.max"),
    "wall_s": (),
    "virtual_s": (),
    "digest": (),
}


@pytest.fixture(scope="module")
def timeline_file():
    return io.BytesIO()


@pytest.fixture(scope="module")
def report(timeline_file):
    timeline = Timeline(timeline_file)
    report = simulate(small(), timeline=timeline)
    timeline.close()
    return report


def leaves(value, path=""):
    """Every key of a JSON object, as a path with dots; what is keyed by the run's own names ends at its name."""
    if not isinstance(value, dict) or path in ("cancel.by_phase", "config", "source.unused"):
        yield path
        return
    for key, item in value.items():
        yield from leaves(item, f"{path}.{key}".lstrip("."))


def test_the_keys_that_tools_rely_on_are_there(report):
    built = json.loads(msgspec.json.encode(report))
    wanted = {f"{key}.{part}" for key, parts in RELIED_ON.items() for part in parts} | {
        key for key, parts in RELIED_ON.items() if not parts
    }
    assert wanted <= set(leaves(built))
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report


def test_every_key_is_documented(report):
    documented = (DOCS / "report-schema.md").read_text()
    built = json.loads(msgspec.json.encode(report))
    missing = {key for path in leaves(built) for key in path.split(".") if f"`{key}`" not in documented}
    assert missing == set()


def test_percentiles():
    latency = Latency.of([i / 1e3 for i in range(1, 102)])
    assert (latency.p50, latency.p90, latency.p99, latency.max) == pytest.approx((51, 91, 100, 101))
    assert sum(latency.histogram.counts) == latency.count == 101
    nothing = Latency.of([])
    assert (nothing.count, nothing.p50, nothing.max) == (0, None, None)


@pytest.mark.parametrize("seconds", [[0.0], [0.0, 0.0, 1.0], [1e-9, 5.0], [0.25] * 4])
def test_histograms_hold_every_measurement(seconds):
    shown = Latency.of(seconds)
    assert sum(shown.histogram.counts) == len(seconds)
    assert shown.histogram.edges == sorted(shown.histogram.edges)
    assert "<rect" in histogram("a title", shown)


def test_the_series_always_adds_up_to_the_pool(report):
    series = report.series
    assert len(series.time_s) == len(series.held) > 10
    for free, evictable, held in zip(series.free, series.evictable, series.held, strict=True):
        assert free + evictable + held == report.blocks.total
    assert series.time_s == sorted(series.time_s)
    assert series.held[-1] == series.running[-1] == series.waiting[-1] == 0


class Outside(HTMLParser):
    """Collects what a page would fetch, and that its tags match."""

    def __init__(self):
        super().__init__()
        self.open, self.fetched = [], []

    def handle_starttag(self, tag, attrs):
        self.fetched += [value for name, value in attrs if name in ("src", "href", "data")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.fetched += [value for name, value in attrs if name in ("src", "href", "data")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_stands_alone_and_explains_each_plot(report):
    html = page(report)
    parser = Outside()
    parser.feed(html)
    assert parser.open == parser.fetched == []
    assert "url(" not in html
    assert "@import" not in html
    assert "prefers-color-scheme: dark" in html
    assert html.count("<svg") == 2 * 5 + 6  # what is drawn over time is there for a wide page and a narrow one
    for name in ("TTFT: ", "TPOT: ", "ITL: ", "Tokens emitted a pass", "Share of drafted tokens accepted"):
        assert name in html
    for section in re.findall(r"<section>.*?</section>", html, re.S):
        assert len(re.search(r'class="about">(.*?)</p>', section, re.S)[1]) > 60
    assert not re.search(r"\b(nan|inf|None)\b", html)


def test_the_page_of_an_empty_run_and_of_a_failed_one(report):
    engine = msgspec.structs.replace(ENGINE, speculative=SpecConfig.parse("none", 1), max_model_len=1)
    one = Lengths.parse("1")
    empty = simulate(small(engine=engine, requests=1, prompt_tokens=one, leaving=Leaving(vanish_at_s=(0.0,))))
    assert empty.tokens.emitted == 0
    assert verdict(empty).kind == "bad"
    assert "Nothing was measured" in page(empty)
    failed = msgspec.structs.replace(report, problems=["request r000001 <b>", "2"])
    assert "FAILED, seed 7: request r000001 &lt;b&gt; (and 1 more)" in page(failed)


def test_stacked_areas_fill_the_plot_to_the_sum():
    svg = areas("t", [0.0, 1.0], [], width=100)
    assert svg.startswith("<svg")


def events_of(timeline_file):
    return json.loads(timeline_file.getvalue())["traceEvents"]


def test_the_timeline_has_a_row_for_each_sequence_and_every_stage(report, timeline_file):
    events = events_of(timeline_file)
    rows = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 2}
    submitted = {e["tid"]: e["args"] for e in events if e["name"] == "submitted"}
    assert list(rows.values()) == [f"r{i:06}, prompt {submitted[i]['prompt_tokens']}" for i in range(60)]
    assert all(int(told["seed"]) >= 0 and told["max_tokens"] >= 1 for told in submitted.values())
    names = {re.sub(r" \+\d+", "", e["name"]) for e in events}
    assert {"queued", "prefill and first round", "round", "propose", "extend", "verify", "rollback", "pass"} <= names
    assert sum(e["name"] == "client left" for e in events) == report.requests.cancelled
    assert sum(e["name"] == "pass" for e in events) == report.steps
    counters = [e for e in events if e["name"] == "blocks"]
    assert all(sum(e["args"].values()) == report.blocks.total for e in counters)
    assert counters[-1]["args"]["held"] == 0


def drafted_by_a_model(**changes):
    file = io.BytesIO()
    timeline = Timeline(file)
    tree = SpecConfig("fake", shape=Dynamic(6, 2, 3), rule="match")
    config = small(requests=12, compare=0, verify="match")
    engine = msgspec.structs.replace(config.engine, speculative=tree, **changes)
    config = msgspec.structs.replace(config, engine=engine)
    report = simulate(config, timeline=timeline)
    timeline.close()
    return config, report, events_of(file)


def test_what_a_model_drafts_ahead_is_marked_where_the_pass_ends_that_it_is_made_with():
    _, report, events = drafted_by_a_model()
    ahead = [e for e in events if e["name"] == "drafted ahead"]
    ends = {round(e["ts"] + e["dur"], 3) for e in events if e["name"] == "pass"}
    assert {round(e["ts"], 3) for e in ahead} <= ends
    assert sum(len(e["args"]["draft"]) for e in ahead) >= report.spec.drafted > 0
    assert not any(e["name"] == "propose" and e["pid"] == 1 for e in events), "nobody waits for it"


def test_what_a_model_drafts_is_drawn_where_it_takes_its_time():
    config, report, events = drafted_by_a_model(adaptive=False)
    events = [e for e in events if e["ph"] == "X"]
    of_engine = [e for e in events if e["name"] == "propose" and e["pid"] == 1]
    of_sequences = [e for e in events if e["name"] == "propose" and e["pid"] > 1]
    assert of_engine
    assert all(e["dur"] >= 1e3 * config.cost.layer_ms for e in of_engine), "a layer at the least"
    assert {e["ts"] for e in of_sequences} <= {e["ts"] for e in of_engine}
    assert sum(len(e["args"]["draft"]) for e in of_sequences) >= report.spec.drafted > 0
    passes = {e["ts"] for e in events if e["name"] == "pass"}
    assert {round(e["ts"] + e["dur"], 3) for e in of_engine} <= {round(at, 3) for at in passes}, "then the pass begins"


def test_requests_are_grouped_by_the_hundred_and_arrows_lead_to_their_first_work():
    file = io.BytesIO()
    timeline = Timeline(file)
    simulate(small(requests=230, compare=0), timeline=timeline)
    timeline.close()
    events = events_of(file)
    groups = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert list(groups.values()) == ["engine", "requests 0 to 99", "requests 100 to 199", "requests 200 to 299"]
    assert {e["pid"] for e in events} == groups.keys()
    starts, ends = ({e["id"]: e for e in events if e["ph"] == kind} for kind in ("s", "f"))
    assert starts.keys() == ends.keys()
    assert len(starts) > 150
    spans = {(e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == "X"}
    for number, start in starts.items():
        assert (start["pid"], start["tid"], start["ts"]) in spans
        assert (ends[number]["pid"], ends[number]["tid"], ends[number]["ts"]) in spans


def test_the_spans_of_a_row_nest_and_none_runs_backwards(report, timeline_file):
    by_row = defaultdict(list)
    for event in events_of(timeline_file):
        if event["ph"] == "X":
            assert event["dur"] >= 0
            by_row[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert len(by_row) > 40
    for spans in by_row.values():
        open_ends = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_ends and open_ends[-1] <= start + 1e-6:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1] + 1e-6
            open_ends.append(end)


def test_rejected_drafts_are_what_the_timeline_rolls_back(report, timeline_file):
    events = events_of(timeline_file)
    rolled_back = sum(e["args"]["rejected"] for e in events if e["name"] == "rollback")
    drafted = sum(len(e["args"]["draft"]) for e in events if e["name"] == "propose")
    assert rolled_back > 0
    assert drafted >= report.spec.drafted > 0  # those whose client had gone are drawn, and not counted

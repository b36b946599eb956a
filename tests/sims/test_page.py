"""The page as a browser shows it: nothing cut, no label on another, on a telephone and on a desk."""

import msgspec
import pytest

from sims.lengths import Lengths
from sims.page import page
from sims.report import Latency
from sims.simulate import simulate
from spec import SpecConfig
from tests.server.chrome import BINARY, Chrome
from tests.sims.small import ENGINE, small

pytestmark = pytest.mark.skipif(BINARY is None, reason="there is no Chromium")

CUT = """[...document.querySelectorAll('body *')].filter(e => {
  const box = e.getBoundingClientRect();
  return box.width && (box.right > innerWidth + 1 || box.left < -1 || (e.clientWidth && !(e instanceof SVGElement)
    && getComputedStyle(e).display != 'inline' && e.scrollWidth > e.clientWidth + 1));
}).map(e => e.tagName + ' ' + e.textContent.slice(0, 40))"""

OVERLAPS = """[...document.querySelectorAll('svg')].flatMap(svg => {
  const boxes = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()])
    .filter(([, b]) => b.width);
  return boxes.flatMap(([a, p], i) => boxes.slice(i + 1).filter(([, q]) =>
    p.left < q.right && q.left < p.right && p.top + 2 < q.bottom && q.top + 2 < p.bottom)
    .map(([b]) => a + ' and ' + b));
})"""


@pytest.fixture(scope="module")
def chrome():
    made = Chrome()
    yield made
    made.close()


@pytest.fixture(scope="module")
def reports():
    plain = simulate(small(requests=200))
    engine = msgspec.structs.replace(ENGINE, speculative=SpecConfig.parse("ngram", 16), stream_tokens=64)
    long = simulate(small(engine=engine, requests=40, output_tokens=Lengths.parse("20-60"), baseline=True))
    latency = msgspec.structs.replace(
        plain.latency_ms, ttft=Latency.of([0.5, 0.5001]), itl=Latency.of([1e-6] * 9 + [9])
    )
    large = msgspec.structs.replace(plain.series, free=[n * 1e7 for n in plain.series.free])
    odd = msgspec.structs.replace(plain, latency_ms=latency, series=large, problems=["x" * 300, "another"])
    return [plain, long, odd]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
@pytest.mark.parametrize("number", range(3))
def test_nothing_is_cut_and_no_label_lies_on_another(chrome, reports, tmp_path, number, width, scheme):
    path = tmp_path / "page.html"
    path.write_text(page(reports[number]))
    chrome.scheme(scheme)
    chrome.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width == 400)
    chrome.send("Page.navigate", url=path.as_uri())
    chrome.wait("document.readyState == 'complete' && document.querySelector('svg') !== null")
    assert chrome.evaluate("document.documentElement.scrollWidth") == width
    assert chrome.evaluate(CUT) == []
    assert chrome.evaluate(OVERLAPS) == []
    shown = chrome.evaluate("[...document.querySelectorAll('svg')].filter(s => s.getBoundingClientRect().width).length")
    assert shown == 5 + 6
    assert chrome.complaints == []

"""The live page in a real browser: it shows the engine, streams an answer with its accepted drafts, and stops it."""

import os
import re
import time
from pathlib import Path

import pytest

from tests.server import chrome
from tests.server.harness import Client, serving, wait_until

PAGE = Path(__file__).resolve().parents[2] / "server/page.html"
BUSY = {"prompt": "ba ni do " * 20, "max_tokens": 4000, "ignore_eos": True, "temperature": 0}
TEXT_OF = "document.getElementById('{}').textContent"


@pytest.fixture(scope="module")
def server():
    with serving("--set", "engine.num_blocks=300", "--set", "model.min_pass_s=0.02") as running:
        yield running


@pytest.fixture(scope="module")
def page(server):
    if chrome.BINARY is None:
        pytest.skip("chromium is not installed")
    opened = chrome.Chrome()
    opened.send("Page.navigate", url=server.url)
    opened.wait("document.readyState === 'complete' && !!document.getElementById('numbers')?.children.length")
    yield opened
    opened.close()


def keep(page, name):
    """Leave a picture for who asks for it."""
    folder = os.environ.get("OUTRIDER_SCREENSHOTS")
    if folder:
        (Path(folder) / f"{name}.png").write_bytes(page.screenshot())


def test_the_page_needs_nothing_from_elsewhere(server):
    text = PAGE.read_text()
    assert not re.search(r"""(?:src|href)=["'](?!data:)|url\(|@import|https?://""", text)
    answer = server.http.get("/")
    assert answer.text == text
    assert answer.headers["content-type"].startswith("text/html")


def test_live_state_adds_up(server):
    clients = [Client(server, {**BUSY, "stream": True}) for _ in range(2)]
    for client in clients:
        client.read_until(b'"text"')
    state = server.http.get("/live").json()
    assert [view["phase"] for view in state["sequences"]] == ["decode", "decode"]
    assert len(state["owners"]) == state["blocks"]["total"] == 300
    held = {owner for owner in state["owners"] if owner >= 0}
    assert held == {view["seq"] for view in state["sequences"]}
    assert all(name.startswith("cmpl-") for name in state["names"].values())
    for client in clients:
        client.close()
    server.wait_idle()
    wait_until(lambda: len(server.http.get("/live").json()["departures"]) == 2)
    left = server.http.get("/live").json()["departures"][0]
    assert left["where"] == "between tokens"
    assert left["num_tokens"] > 0


def test_sequences_and_blocks_are_drawn(server, page):
    client = Client(server, {**BUSY, "stream": True})
    page.wait("document.querySelectorAll('#sequences tr').length === 1")
    page.wait("document.querySelector('#sequences td:nth-child(2)').textContent === 'decode'")
    colors = """[...new Set(Array.from({length: 300}, (_, i) => document.getElementById('map').getContext('2d')
        .getImageData(3 + 14 * (i % 80), 3, 1, 1).data.join()))].length"""
    page.wait(f"{colors} > 1")
    client.close()
    page.wait("document.querySelectorAll('#sequences tr').length === 0")
    page.wait("document.querySelectorAll('#departures li').length > 0")


def test_an_answer_is_streamed_and_stopped(server, page):
    cancelled = sum(server.cancels().values())
    page.evaluate("document.getElementById('tokens').value = 4000; document.getElementById('temperature').value = 0")
    page.evaluate("document.getElementById('send').click()")
    page.wait("document.querySelectorAll('#answer mark').length > 5")
    keep(page, "light")
    page.evaluate("document.getElementById('stop').click()")
    page.wait(f"{TEXT_OF.format('told')}.includes('stopped')")
    wait_until(lambda: sum(server.cancels().values()) == cancelled + 1)
    server.wait_idle()
    assert not page.evaluate("document.getElementById('send').disabled")
    #   and one that comes to its end
    page.evaluate("document.getElementById('tokens').value = 5; document.getElementById('send').click()")
    page.wait(f"/^5 tokens, .* ended by length$/.test({TEXT_OF.format('told')})")
    page.evaluate("document.getElementById('tokens').value = 0; document.getElementById('send').click()")
    page.wait(f"{TEXT_OF.format('told')}.includes('max_tokens')")


def at_width(page, width):
    page.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)


def test_a_narrow_page_shows_everything(server, page):
    clients = [Client(server, {**BUSY, "stream": True}) for _ in range(3)]
    at_width(page, 400)
    page.wait("document.querySelectorAll('#sequences tr').length === 3")
    page.wait("document.querySelector('#sequences td:nth-child(2)').textContent === 'decode'")
    keep(page, "narrow")
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    cut = "[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > 401).length"
    assert page.evaluate(cut) == 0
    labels = "[...document.querySelectorAll('#sequences tr:first-child td')].map(c => c.dataset.label || '').join()"
    assert page.evaluate(labels) == ",,prompt,cached,emitted,blocks,accepted,preempted"
    seen = "[...document.querySelectorAll('#sequences td')].every(c => c.getBoundingClientRect().width > 10)"
    assert page.evaluate(seen)
    at_width(page, 1280)
    for client in clients:
        client.close()
    server.wait_idle()


def test_all_sequences_can_be_reached(server, page):
    state = server.http.get("/live").json()
    assert (state["first_sequence"], state["page_sequences"]) == (0, 200)
    body = {**BUSY, "stream": True, "n": 1}
    clients = [Client(server, body) for _ in range(205)]
    wait_until(lambda: server.http.get("/live").json()["num_sequences"] == 205)
    time.sleep(0.25)  # what others have just been shown is shown again
    pages = [server.http.get(f"/live?first={first}").json()["sequences"] for first in (0, 200, 400)]
    assert [len(sequences) for sequences in pages] == [200, 5, 0]
    assert server.http.get("/live?first=-1").status_code == 400
    page.wait("!document.getElementById('pages').hidden")
    page.evaluate("document.getElementById('after').click()")
    page.wait("document.querySelectorAll('#sequences tr').length === 5")
    assert page.evaluate(TEXT_OF.format("which")) == "201 to 205 of 205"
    page.evaluate("document.getElementById('before').click()")
    page.wait("document.querySelectorAll('#sequences tr').length === 200")
    page.evaluate("document.getElementById('after').click()")
    page.wait("document.querySelectorAll('#sequences tr').length === 5")
    for client in clients:
        client.close()
    server.wait_idle()
    page.wait("document.getElementById('pages').hidden")  # it has gone back to where there is something


def test_axes_have_round_numbers(page):
    for most, wanted in ((967, 250), (100, 25), (1, 0.25), (1.7, 0.5), (8, 2), (5001, 2000), (12, 5)):
        assert page.evaluate(f"step({most})") == wanted
    tops = page.evaluate("[...document.querySelectorAll('canvas[data-top]')].map(c => Number(c.dataset.top))")
    assert len(tops) == 3


def test_what_is_about_to_come_back_has_a_colour_of_its_own(page):
    hues = page.evaluate("Array.from({length: 2000}, (_, seq) => Number(hue(seq).match(/hsl\\(([\\d.]+)/)[1]))")
    assert min(hues) >= 30
    assert max(hues) <= 330


def test_light_and_dark(page):
    seen = {}
    for scheme in ("light", "dark"):
        page.scheme(scheme)
        ink, paper = (
            [int(part) for part in re.findall(r"\d+", page.evaluate(f"getComputedStyle(document.body).{name}"))]
            for name in ("color", "backgroundColor")
        )
        seen[scheme] = sum(paper) - sum(ink)
    keep(page, "dark")
    assert seen["light"] > 400
    assert seen["dark"] < -400


def test_the_page_has_nothing_to_complain_of(page):
    refused = [c for c in page.complaints if "400" in str(c)]  # the refusal that was asked for
    assert len(refused) == len(page.complaints) == 1
    outside = "performance.getEntriesByType('resource').filter((e) => !e.name.startsWith(location.origin)).length"
    assert page.evaluate(outside) == 0


def test_the_page_says_when_the_server_is_gone():
    if chrome.BINARY is None:
        pytest.skip("chromium is not installed")
    opened = chrome.Chrome()
    with serving() as server:
        opened.send("Page.navigate", url=server.url)
        opened.wait("document.readyState === 'complete' && document.getElementById('status').className === 'soft'")
        opened.wait("document.getElementById('status').textContent.startsWith('as of')")
        assert not opened.evaluate("document.getElementById('gone').getBoundingClientRect().width")
    opened.wait("document.getElementById('gone').getBoundingClientRect().width > 0")
    assert opened.evaluate(TEXT_OF.format("gone")).startswith("The server does not answer. What is shown is as of ")
    opened.close()

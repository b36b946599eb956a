"""The page of a sweep: what is in it, and what its script draws."""

import json
import re

import pytest

from sims.sweep.page import page
from sims.sweep.store import Failure
from sims.sweep.table import Row, Spread, Table
from tests.server.chrome import BINARY, Chrome

SPEEDS = {(None, "none"): [1.0, 1.0], (2, "ngram"): [2.0, 4.0], (4, "ngram"): [5.0, None]}


def made(*failed, **names):
    rows = [
        Row({"k": k, "draft": draft}, [3, 5], ["d", "e"], 0, {"speed": Spread.of(values), "late": Spread.of([7, 8])})
        for (k, draft), values in SPEEDS.items()
    ]
    axes = {"k": [2, 4], "draft": ["none", "ngram"]}
    fields = {"command": "sim", "axes": axes, "options": {"requests": 9}, "shown": ["speed"], "rows": rows}
    return Table(**fields | names, failed=list(failed))


def data_of(text):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_the_page_has_every_run_and_every_figure():
    text = page(made())
    data = data_of(text)
    assert [parameter["name"] for parameter in data["parameters"]] == ["k", "draft", "seed"]
    assert data["parameters"][2]["values"] == ["3", "5"]
    assert data["figures"] == ["speed", "late"]
    assert data["places"] == [[-1, 0, 0], [-1, 0, 1], [0, 1, 0], [0, 1, 1], [1, 1, 0], [1, 1, 1]]
    assert data["measured"] == [[1, 7], [1, 8], [2, 7], [4, 8], [5, 7], [None, 8]]
    assert "<td>3 ± 1.4</td>" in text
    assert "Varied: k, draft. The same in all: requests 9." in text
    assert "6 cells came to a result." in text
    assert not re.search(r"(src|href)=", text)


def test_failures_are_told_with_their_command_and_there_may_be_nothing_else():
    failure = Failure("id", "outrider sim --k 2 --seed 3", {}, 3, "it <broke>", "Traceback")
    text = page(made(failure))
    assert "<code>outrider sim --k 2 --seed 3</code>" in text
    assert "it &lt;broke&gt;" in text
    nothing = page(made(failure, rows=[]))
    assert "it &lt;broke&gt;" in nothing
    assert "<script" not in nothing


def test_what_values_say_stays_text():
    evil = "</script><b>x"
    row = Row({"trace": evil}, [None], ["d"], 0, {"speed": Spread.of([1])})
    text = page(made(axes={"trace": [evil]}, rows=[row]))
    assert data_of(text)["parameters"][0]["values"] == [evil]
    assert "<b>x" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)


@pytest.fixture(scope="module")
def chrome(tmp_path_factory):
    if BINARY is None:
        pytest.skip("chromium is not installed")
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(page(made()))
    chrome = Chrome()
    chrome.send("Page.navigate", url=path.as_uri())
    chrome.wait("document.querySelector('#plot table') !== null")
    yield chrome
    assert chrome.complaints == []
    chrome.close()


def choose(chrome, selector, text):
    told = chrome.evaluate(
        f"(() => {{ const s = document.querySelector({selector!r}); const o = [...s.options]"
        f".find(o => o.text === {text!r}); s.value = o.value; s.dispatchEvent(new Event('change'));"
        " return o.text; })()"
    )
    assert told == text


def drawn(chrome):
    return chrome.evaluate(
        "[...document.querySelectorAll('#plot tr')].map(row => [...row.children].map(cell => cell.innerText))"
    )


def test_any_two_parameters_are_axes_and_what_has_no_effect_is_at_each_value(chrome):
    assert drawn(chrome) == [
        ["k \\ draft", "none", "ngram"],
        ["2", "1\n± 0", "3\n± 1.4"],
        ["4", "1\n± 0", "5"],
    ]
    choose(chrome, "#figure", "late")
    choose(chrome, "#across", "seed")
    choose(chrome, "#down", "draft")
    choose(chrome, "[data-parameter=k]", "mean of all")
    assert drawn(chrome)[1:] == [["none", "7", "8"], ["ngram", "7\n± 0", "8\n± 0"]]
    choose(chrome, "#figure", "speed")
    choose(chrome, "[data-parameter=k]", "4")
    assert drawn(chrome)[1:] == [["none", "1", "1"], ["ngram", "5", "-"]]


def test_the_same_is_drawn_as_lines(chrome):
    choose(chrome, "#across", "k")
    choose(chrome, "#down", "draft")
    choose(chrome, "#figure", "speed")
    choose(chrome, "[data-parameter=seed]", "mean of all")
    choose(chrome, "#look", "lines")
    assert chrome.evaluate("document.querySelectorAll('#plot polyline').length") == 2
    titles = chrome.evaluate("[...document.querySelectorAll('#plot circle title')].map(t => t.textContent)")
    assert titles == ["none, 2: 1 ± 0, of 2", "none, 4: 1 ± 0, of 2", "ngram, 2: 3 ± 1.4, of 2", "ngram, 4: 5, of 1"]
    choose(chrome, "#down", "nothing")
    assert chrome.evaluate("document.querySelectorAll('#plot polyline').length") == 1
    choose(chrome, "#look", "a table")

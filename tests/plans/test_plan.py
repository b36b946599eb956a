"""From a log to an answer: by hand where that can be, and whatever a log may be."""

import json
import re

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from cli.main import main
from plans.answers import Plan
from plans.errors import PlanError
from plans.gain import Given
from plans.logs import Log, tool_calls_as_text
from plans.methods import methods
from plans.page import page
from plans.plan import Asked, make_plan
from plans.tokens import Words, encoder
from server.config import load_config
from tests.shared import CHECKOUT

KNOWN = methods()


class Flat:
    """Each row adds a tenth of a pass."""

    def __init__(self, per_row=0.1):
        self.per_row = per_row

    def pass_s(self, num_rows, batch, context):
        return 1 + self.per_row * (num_rows - 1)

    def explain(self):
        return ["flat"]


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def ids(prompt, completion, **more):
    return {"prompt": prompt, "completion": completion} | more


def plan_of(path, *, cost=None, names=("lookup",), sizes=(1, 2, 4), batches=(1, 8), given=(), batch=1):
    log = Log([path], None, Words())
    return make_plan(log, Asked([KNOWN[n] for n in names], sizes, given, cost or Flat(), batches, batch))


def test_an_answer_is_that_worked_by_hand(tmp_path):
    #   after 7 comes 1 2 3 4 once more: a round of up to 4 tokens, all right, then 9, which is new
    path = write(tmp_path / "log", ids([7, 1, 2, 3, 4, 5, 7], [1, 2, 3, 4, 9]))
    plan = plan_of(path)
    by_size = {answer.size: answer for answer in plan.sizes}
    #   size 4: one round of 4 drafted, 4 accepted and 9. Size 2: [1 2] 3, [4 5] 9 -> 4, then 9 is what it emits
    assert by_size[4].tokens_per_round.value == 5
    assert by_size[4].speed[0].value == pytest.approx(5 / (1.4 + 2e-6))
    assert by_size[2].drafted_by_position == [2, 2]
    assert by_size[2].accepted_by_position == [2, 1]
    assert by_size[2].tokens_per_round.value == 2.5
    assert by_size[4].speed[1].value == pytest.approx(5 * 1.7 / (1 + 0.1 * 39 + 16e-6))
    assert plan.log.mean_context == 9
    #   of one request nothing is known of others
    assert by_size[4].speed[0].low is None
    assert plan.recommendation.method == "lookup"
    assert plan.recommendation.size == 4


def test_do_not_is_an_answer(tmp_path):
    rng = np.random.default_rng(0)
    rows = [ids(rng.integers(0, 30, 40).tolist(), rng.integers(0, 30, 30).tolist()) for _ in range(20)]
    plan = plan_of(write(tmp_path / "log", *rows), cost=Flat(2.0))
    assert plan.recommendation.method is None
    assert plan.recommendation.reason.startswith("do not: at batch 1 ")
    assert 'draft = "none"' in plan.recommendation.configuration["outrider"]
    assert all(answer.costs_from == 1 for answer in plan.sizes)
    assert "do not speculate" in page(plan)


def test_what_may_be_chance_is_not_recommended(tmp_path):
    #   a draft that comes true gains what one that does not costs
    rows = [ids([1, 2, 3, 1], [2, 3, 9]), ids([5, 6, 5], [7, 5, 5])] * 10
    plan = plan_of(write(tmp_path / "log", *rows), cost=Flat(0.25), sizes=(1,))
    (of,) = plan.sizes
    assert of.speed[0].low < 1 < of.speed[0].high
    assert plan.best[0].verdict == "unclear"
    assert plan.recommendation.method is None
    assert "chance" in plan.recommendation.reason


def test_categories_are_kept_apart_and_sum_up(tmp_path):
    rows = [ids([1, 2, 3, 1], [2, 3, 9], category="copies")] * 5 + [ids([1], [2, 3, 4, 5], category="new")] * 5
    plan = plan_of(write(tmp_path / "log", *rows))
    copies, new = plan.categories
    assert (copies.category, copies.num_requests, copies.num_tokens, copies.verdict) == ("copies", 5, 15, "gains")
    assert (new.category, new.num_tokens, new.tokens_per_round.value) == ("new", 20, 1.0)
    assert copies.num_tokens + new.num_tokens == plan.log.num_tokens
    for of in plan.sizes:
        assert sum(of.requests_by_speed) == 10


def test_a_method_given_by_its_rates_is_weighed_with_the_others(tmp_path):
    path = write(tmp_path / "log", *[ids([1], [2, 3, 4, 5])] * 3)
    plan = plan_of(path, given=[Given("eagle3", (0.9, 0.8), 0.05)])
    of = {(a.method, a.size): a for a in plan.sizes}["eagle3", 2]
    assert of.tokens_per_round.value == pytest.approx(1 + 0.9 + 0.72)
    assert of.speed[0].value == pytest.approx(2.62 / (1.2 + 0.1))
    assert plan.recommendation.method == "eagle3"
    assert '"method":"eagle3"' in plan.recommendation.configuration["vllm"]
    assert page(plan)


@pytest.mark.parametrize("name", list(KNOWN))
@pytest.mark.parametrize("per_row", [0.01, 0.5])
def test_what_is_recommended_for_outrider_is_a_configuration_of_it(tmp_path, name, per_row):
    path = write(tmp_path / "log", *[ids([1, 2, 3, 4, 5, 6, 1, 2, 3], [4, 5, 6, 1, 2, 3, 4, 5, 6, 1])] * 3)
    plan = plan_of(path, names=[name], cost=Flat(per_row), sizes=(2, 4))
    to = plan.recommendation
    assert to.method == name
    own = tmp_path / "runtime.toml"
    own.write_text(to.configuration["outrider"])
    config = load_config(own, {}).engine
    assert config.speculative.draft == KNOWN[name].draft.draft
    assert config.speculative.k == to.size
    assert config.adaptive == to.is_adaptive
    assert config.speculative.occurrence == KNOWN[name].draft.occurrence
    assert json.loads(to.configuration["vllm"].split("'")[1])["num_speculative_tokens"] == to.size


def test_tool_calls_are_what_was_said():
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    row = {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [call]}]}
    changed = tool_calls_as_text(row)
    assert changed["messages"][1] == {"role": "assistant", "content": '[{"name":"f","arguments":"{\\"a\\":1}"}]'}
    assert row["messages"][1]["tool_calls"] == [call]


@pytest.mark.parametrize(
    "beside",
    [
        {"response": {"choices": [{"message": {"role": "assistant", "content": "b c"}}], "usage": {}}},
        {"response": {"role": "assistant", "content": "b c"}},
        {"reply": "b c"},
        {"completion": "b c", "usage": None},
    ],
)
def test_a_reply_beside_the_messages_is_the_answer(tmp_path, beside):
    asked = {"messages": [{"role": "user", "content": "a"}], "category": "x"}
    inside = {"messages": [*asked["messages"], {"role": "assistant", "content": "b c"}], "category": "x"}
    found, expected = (
        [(r.tokens.tolist(), r.num_prompt, r.category) for r in Log([write(tmp_path / name, row)], None, Words())]
        for name, row in (("beside", asked | beside), ("inside", inside))
    )
    assert found == expected
    assert found[0][2] == "x"
    log = Log(
        [write(tmp_path / "log", inside, asked | {"reply": 7}, asked | {"response": {"choices": []}})], None, Words()
    )
    assert len(list(log)) == 1
    assert log.unused == {"a conversation without an answer": 2}


def test_a_log_is_read_with_what_cannot_be_used_counted(tmp_path):
    path = write(
        tmp_path / "log", ids("a b", "c d"), ids("a", ""), {"prompt": "a"}, ids([1], [2**24]), ids("a", [1]), 7
    )
    log = Log([path], None, Words())
    assert [(r.num_prompt, r.num_completion) for r in log] == [(3, 3)]
    assert log.unused == {
        "an empty answer": 1,
        "Object missing required field completion": 1,
        "an id out of range [0, 16,777,216)": 1,
        "text on one side and ids on the other": 1,
        "not a JSON object": 1,
    }
    assert log.told()[:2] == ("words", True)
    assert len(list(Log([path, path], None, Words(), most=1))) == 1
    assert len(list(Log([path, path], None, Words()))) == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no row to use"),
        ('{"prompt": "a"}\n', "no known layout"),
        ('{"prompt": "a", "completion": ""}\n', "no row to use.*1 an empty answer"),
        ('{"prompt": [1], "completion": [-1]}\n', "1 a negative id"),
        ('{"prompt": [1], "completion": [99999999]}\n', "1 an id out of range"),
    ],
)
def test_a_log_without_anything_to_use_is_an_error(tmp_path, text, told):
    path = tmp_path / "log"
    path.write_text(text)
    with pytest.raises(PlanError, match=told):
        plan_of(path)


def word_tokenizer(path, *, unknown):
    tokenizers = pytest.importorskip("tokenizers")
    built = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "alpha": 1, "beta": 2}, unk_token="[UNK]"))
    built.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    built.save(str(path))
    return encoder(str(path)), "gamma" if unknown else "beta"


def test_a_tokenizer_that_does_not_know_the_log_is_told(tmp_path):
    for unknown in (False, True):
        tokenizer, word = word_tokenizer(tmp_path / "tokenizer.json", unknown=unknown)
        path = write(tmp_path / "log", *[ids("alpha beta", f"alpha {word}")] * 3)
        log = Log([path], None, tokenizer)
        assert [r.num_completion for r in log] == [2, 2, 2]
        name, is_approximate, warnings = log.told()
        assert (name, is_approximate) == (str(tmp_path / "tokenizer.json"), False)
        assert [("25.0% of the tokens are unknown" in warning) for warning in warnings] == [True] * unknown


def test_ids_are_checked_against_the_tokenizer_and_text_of_bytes_is_suspicious(tmp_path):
    tokenizer, _ = word_tokenizer(tmp_path / "tokenizer.json", unknown=False)
    log = Log([write(tmp_path / "log", ids([1], [2]), ids([1], [3]))], None, tokenizer)
    assert len(list(log)) == 1
    assert log.unused == {"an id out of range [0, 3)": 1}
    assert log.told() == (None, False, [])
    log = Log([write(tmp_path / "log", ids("a a a", "a a a"))], None, tokenizer)
    list(log)
    assert "unknown" in log.told()[2][0]


@pytest.mark.parametrize(("text", "is_told"), [("the weather of today", False), ("погода на сегодня", True)])
def test_letters_that_are_tokens_each_are_suspicious_whatever_bytes_they_take(tmp_path, text, is_told):
    tokenizers = pytest.importorskip("tokenizers")
    words = {"[UNK]": 0, "the": 1, "weather": 2, "of": 3, "today": 4} | {
        c: 5 + i for i, c in enumerate("погданасегодня")
    }
    built = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    built.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.WhitespaceSplit(),
            tokenizers.pre_tokenizers.Split(tokenizers.Regex("[^a-z]"), "isolated"),
        ]
    )
    built.save(str(tmp_path / "tokenizer.json"))
    log = Log([write(tmp_path / "log", ids(text, text))], None, encoder(str(tmp_path / "tokenizer.json")))
    list(log)
    assert bool(log.told()[2]) == is_told


@pytest.mark.parametrize("source", ["gone.json", "gone.gguf", "nobody"])
def test_a_tokenizer_that_is_not_there_is_refused(source):
    with pytest.raises(PlanError, match=f"--tokenizer {source}"):
        encoder(source)


def run(*args):
    return CliRunner().invoke(main, ["plan", *map(str, args)])


def copies(path):
    return write(path, *[ids(f"the cat number {n} sat on the mat", f"the cat number {n} sat on it") for n in range(8)])


def test_the_command_prints_and_writes_the_plan(tmp_path):
    log = copies(tmp_path / "log.jsonl")
    shown = run(log, "--json", tmp_path / "p.json", "--html", tmp_path / "p.html", "--explain", "--batches", "1,4")
    assert shown.exit_code == 0, shown.output
    assert "recommended: " in shown.output
    assert "approximate" in shown.output
    assert "memory_efficiency" in shown.output
    plan = msgspec.json.decode((tmp_path / "p.json").read_bytes(), type=Plan)
    assert plan.batches == [1, 4]
    assert plan.log.is_approximate
    html = (tmp_path / "p.html").read_text()
    assert html.startswith("<!doctype html>")
    assert "approximate" in html
    assert "http" not in html.replace("http://www.w3.org", "")
    again = run(log, "--json", "-", "--batches", "1,4")
    assert again.output.encode() == (tmp_path / "p.json").read_bytes()


def test_a_measured_cost_takes_the_place_of_the_roofline(tmp_path):
    cost = write(tmp_path / "c.json", {"format": "outrider-cost-1", "model": "m", "points": [
        {"rows": rows, "batch": 1, "context": 64, "seconds": 1 + 9.0 * (rows - 1)} for rows in (1, 17)
    ]})  # fmt: skip
    shown = run(copies(tmp_path / "log"), "--cost", cost, "--json", "-")
    plan = msgspec.json.decode(shown.output, type=Plan)
    assert plan.recommendation.method is None
    assert plan.best[0].plain_ms == 1000


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--hardware", "h1000"], "'h1000' is not known: a100"),
        (["--model", "gpt"], "'gpt' is not known"),
        (["--hardware", "gone.toml"], "gone.toml: No such file"),
        (["--tokenizer", "gone.json"], "gone.json: there is no such file"),
        (["--sizes", "0"], "size 0: 1 to 16"),
        (["--sizes", "1-99"], "1 to 16"),
        (["--sizes", "x"], "no list of integers"),
        (["--sizes", "4-2"], "no list of integers"),
        (["--batches", "0,1"], "batch 0"),
        (["--method", "medusa"], "medusa"),
        (["--min-ngram", "5"], "at most --max-ngram, 3"),
        (["--acceptance", "eagle3=2"], "rates in [0, 1]"),
        (["--acceptance", "lookup=0.5"], "a name that no other method has"),
        (["--format", "chat"], "read as chat"),
    ],
)
def test_what_cannot_be_asked_for_is_said(tmp_path, options, told):
    shown = run(copies(tmp_path / "log"), *options)
    assert shown.exit_code == 2
    assert told in " ".join(shown.output.split())


def test_a_cost_excludes_hardware(tmp_path):
    cost = write(tmp_path / "c.json", {})
    shown = run(copies(tmp_path / "log"), "--cost", cost, "--hardware", "h100")
    assert shown.exit_code == 2
    assert "takes the place" in shown.output


def test_every_field_of_the_json_is_documented():
    documented = (CHECKOUT / "docs" / "planning.md").read_text()

    def fields(kind):
        for field in msgspec.structs.fields(kind):
            yield field.name
            for part in [field.type, *getattr(field.type, "__args__", ())]:
                if isinstance(part, type) and issubclass(part, msgspec.Struct):
                    yield from fields(part)

    missing = {name for name in fields(Plan) if f"`{name}`" not in documented}
    assert not missing


def test_a_page_tells_more_methods_apart_than_it_has_colours(tmp_path):
    path = write(tmp_path / "log", *[ids([1, 2, 3, 1, 2], [3, 4, 5, 6])] * 3)
    plan = plan_of(path, names=list(KNOWN), given=[Given(f"other{i}", (0.5,), 0.1) for i in range(5)])
    legend = re.search(r'<div class="legend">(.*?)</div>', page(plan))[1]
    colours = re.findall(r'<i class="([^"]+)"', legend)
    assert len(colours) == len(set(colours)) == len(KNOWN) + 5 + 1

"""A configuration that cannot be used stops the start, with the key, the value and what is allowed."""

import json
import logging
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.config import config as config_command
from cli.serve import serve
from scheduler import EngineConfig, RequestError
from server.config import ConfigError, RuntimeConfig, load_config, parse_override
from server.schema import BOUNDS, schema_of
from spec import BestFirst, Chain, Dynamic, Expansion, Sequoia, SpecConfig, SpecError, Static
from tests.server.harness import serving, wait_until


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("engine.num_blocks=many", "engine.num_blocks is 'many': integer >= 1"),
        ("engine.num_blocks=0", "engine.num_blocks is 0: an integer >= 1"),
        ("engine.num_bloks=3", "engine.num_bloks is 3: there is no such key (did you mean num_blocks?); known are "),
        (
            "engine.speculative={draft='foo',k=4}",
            "engine.speculative.draft is 'foo': one of 'eagle', 'eagle3', ",
        ),
        ("engine.speculative={draft='ngram',k=40}", "engine.speculative.k is 40: an integer in [1, 16]"),
        ("engine.speculative={draft='fake',k=4}", "engine.speculative.draft is 'fake': one of 'none', 'ngram', "),
        ("engine.speculative={draft='ngram'}", "engine.speculative.k is 0: an integer in [1, 16], or a shape"),
        ("engine.pass_timeout_s='x'", "engine.pass_timeout_s is 'x': number > 0 or none"),
        ("engine=3", "engine is 3: object"),
        ("server.port=99999", "server.port is 99999: integer >= 0 and <= 65535"),
        ("server.ping_s=0", "server.ping_s is 0: number > 0"),
        ("server.api_keys=['']", "server.api_keys.0 is '': string length >= 1"),
        ("foo.bar=1", "foo is {'bar': 1}: there is no such key; known are engine, model, server"),
    ],
)
def test_wrong_values_are_explained(override, message):
    with pytest.raises(ConfigError) as raised:
        load_config(None, dict([parse_override(override)]))
    assert str(raised.value).startswith(message)
    result = CliRunner().invoke(serve, ["--check", "--set", override])
    assert result.exit_code == 2
    assert message in result.output


def test_options_override_the_file(tmp_path):
    path = tmp_path / "runtime.toml"
    path.write_text('[engine]\nspeculative = { draft = "ngram", k = 2 }\nnum_blocks = 64\n[server]\nport = 1\n')
    config = load_config(path, {"server.port": 2, "engine.block_tokens": 8})
    assert config.engine.speculative == SpecConfig.parse("ngram", 2)
    assert (config.engine.num_blocks, config.engine.block_tokens) == (64, 8)
    assert config.server.port == 2
    #   the queue is bounded unless told otherwise
    assert config.engine.max_waiting == 1024


def test_a_file_that_is_no_toml(tmp_path):
    path = tmp_path / "runtime.toml"
    path.write_text("[engine")
    with pytest.raises(ConfigError, match=r"runtime\.toml"):
        load_config(path, {})
    with pytest.raises(ConfigError, match="nowhere"):
        load_config(tmp_path / "nowhere", {})


def test_speculative_option():
    result = CliRunner().invoke(serve, ["--check", "--speculative", "prompt_lookup:x"])
    assert "engine.speculative.k is 'x'" in result.output
    assert CliRunner().invoke(serve, ["--check", "--speculative", "none"]).exit_code == 0


def test_model_that_is_not_there():
    result = CliRunner().invoke(serve, ["--model", "/nowhere", "--port", "0"])
    assert result.exit_code == 2
    assert "model.source is '/nowhere': no model at /nowhere" in result.output


def test_address_that_cannot_be_had():
    result = CliRunner().invoke(serve, ["--host", "203.0.113.1"])
    assert result.exit_code == 2
    assert "server.host is '203.0.113.1'" in result.output


def test_schema_knows_every_key():
    schema = json.loads(CliRunner().invoke(config_command, ["schema"]).output)
    assert set(schema["$defs"]["RuntimeConfig"]["properties"]) == {"engine", "server", "model"}
    assert "speculative" in schema["$defs"]["EngineConfig"]["properties"]
    assert schema["$defs"]["SpecConfig"]["properties"]["k"]["type"] == "integer"


def test_every_mistake_is_told_at_once():
    given = {
        "engine.num_blocks": 0,
        "engine.block_tokens": "x",
        "engine.speculative": {"draft": "ngram", "k": 40, "colour": 1},
        "server.port": 99999,
        "server.ping_s": float("nan"),
        "server.shutdown_s": float("inf"),
        "server.prot": 3,
        "model.kernel": "abacus",
    }
    with pytest.raises(ConfigError) as raised:
        load_config(None, given)
    mistakes = str(raised.value).splitlines()
    for key in ("num_blocks", "block_tokens", "speculative.k", "speculative.colour"):
        assert sum(line.startswith(f"engine.{key} is ") for line in mistakes) == 1, mistakes
    for key in ("server.port", "server.ping_s", "server.shutdown_s", "server.prot", "model.kernel"):
        assert sum(line.startswith(f"{key} is ") for line in mistakes) == 1, mistakes
    assert len(mistakes) == 9
    result = CliRunner().invoke(serve, ["--check", "--set", "server.port=-1", "--set", "engine.max_running=0"])
    assert result.exit_code == 2
    assert result.output.count("Error: ") == 2
    both = CliRunner().invoke(serve, ["--check", "--set", "server.port=-1", "--model", "/no/such/model"])
    assert both.output.count("Error: ") == 2
    assert "model.source is '/no/such/model'" in both.output


def test_check_opens_the_model_and_says_what_would_be_run(tmp_path):
    done = CliRunner().invoke(serve, ["--check", "--num-blocks", "64", "--speculative", "ngram:3", "--port", "9000"])
    assert done.exit_code == 0
    for words in ("64 blocks of 16 positions, 1,024 in all", "ngram, up to 3 tokens", ":9000, without keys", "fake: "):
        assert words in done.output
    missing = CliRunner().invoke(serve, ["--check", "--model", str(tmp_path / "nothing.gguf")])
    assert missing.exit_code == 2
    assert "model.source is" in missing.output
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF\x03\0\0\0 and no more")
    refused = CliRunner().invoke(serve, ["--check", "--model", str(broken)])
    assert refused.exit_code == 2
    assert "Traceback" not in refused.output


def properties(schema):
    return {(table, name): key for table, node in schema["$defs"].items() if "properties" in node
            for name, key in node["properties"].items() if name != "kind"}  # fmt: skip


def numbers(key):
    found = [key] if key.get("type") in ("integer", "number") else []
    for below in [*key.get("anyOf", []), *([key["items"]] if "items" in key else [])]:
        found += numbers(below)
    return found


def test_every_key_has_a_description_and_bounds():
    schema = schema_of(RuntimeConfig)
    for place, key in properties(schema).items():
        assert len(key.get("description", "")) > 8, place
        for number in numbers(key):
            assert number.keys() & {"minimum", "exclusiveMinimum"}, place
        if place[1].endswith(("_s", "_bytes", "_tokens")):
            assert key["unit"], place
    defaults = schema["$defs"]["EngineConfig"]["properties"]
    assert defaults["max_waiting"]["default"] == RuntimeConfig().engine.max_waiting == 1024


@pytest.mark.parametrize("kind", BOUNDS, ids=lambda kind: kind.__name__)
def test_the_bounds_that_are_said_are_the_ones_that_hold(kind):
    """What lies on a bound is taken, unless other keys forbid it; what lies past it never is."""
    plain = {
        EngineConfig: {},
        SpecConfig: {"draft": "fake", "k": 2},
        Chain: {"k": 2},
        Expansion: {"widths": [2]},
        Static: {"paths": [[0]]},
        Sequoia: {"acceptance": [0.5], "nodes": 4, "depth": 2},
        Dynamic: {"nodes": 4, "top": 2, "depth": 2},
        BestFirst: {"nodes": 4},
    }[kind]
    for name, bounds in BOUNDS[kind].items():
        for sign, bound in bounds.items():
            past = {"minimum": bound - 1, "exclusiveMinimum": bound, "maximum": bound + 1}[sign]
            value = {"widths": [past], "paths": [[past]], "acceptance": [past]}.get(name, past)
            base = {"draft": {"max_depth": "suffix", "factor": "suffix", "min_prob": "suffix", "max_ngram": "ngram",
                              "min_ngram": "ngram"}.get(name, "fake")} if kind is SpecConfig else {}  # fmt: skip
            with pytest.raises((RequestError, SpecError)) as raised:
                kind(**{**plain, **base, name: value})
            assert str(raised.value).startswith((name, "a rank")) or f"{name} being {past}" in str(raised.value)


def test_the_page_about_the_configuration_is_what_the_command_prints():
    printed = CliRunner().invoke(config_command, ["reference"])
    assert printed.exit_code == 0
    page = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"
    assert page.read_text() == printed.stdout, "outrider config reference > docs/configuration.md"


def test_a_request_is_logged_without_its_text():
    with serving("--log-level", "info") as server:
        body = {"prompt": "Tell me of lama", "max_tokens": 7, "seed": 1}
        answer = server.http.post("/v1/completions", json=body)
        server.http.post("/v1/completions", json={**body, "max_tokens": -1})
        wait_until(lambda: "refused with status 400" in server.log)
        (line,) = (line for line in server.lines if answer.json()["id"] in line)
        assert "status 200" in line
        assert f"{answer.json()['usage']['prompt_tokens']} tokens of prompt" in line
        assert "7 emitted, finished length; first token " in line
        assert answer.json()["choices"][0]["text"].strip()[:8] not in server.log
        assert "lama" not in server.log


@pytest.mark.parametrize(("given", "level"), [([], logging.INFO), (["--log-level", "error"], logging.ERROR)])
def test_the_log_has_the_level_that_is_asked_for(given, level):
    root = logging.getLogger()
    before, handlers = root.level, root.handlers[:]
    try:
        assert CliRunner().invoke(serve, ["--check", *given]).exit_code == 0
        assert root.level == level
    finally:
        root.setLevel(before)
        root.handlers[:] = handlers

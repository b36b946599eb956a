"""A configuration that cannot be used stops the start, with the key, the value and what is allowed."""

import json

import pytest
from click.testing import CliRunner

from cli.config import config as config_command
from cli.serve import serve
from server.config import ConfigError, load_config, parse_override
from spec import SpecConfig


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("engine.num_blocks=many", "engine.num_blocks is 'many': integer"),
        ("engine.num_blocks=0", "engine.num_blocks is 0: an integer >= 1"),
        ("engine.num_bloks=3", "engine.num_bloks is 3: there is no such key (did you mean num_blocks?); known are "),
        ("engine.speculative={draft='foo',k=4}", "engine.speculative.draft is 'foo': one of 'fake', 'ngram', 'none', "),
        ("engine.speculative={draft='ngram',k=40}", "engine.speculative.k is 40: an integer in [1, 16]"),
        ("engine.speculative={draft='ngram'}", "engine.speculative.k is 0: an integer in [1, 16], or a shape"),
        ("engine.pass_timeout_s='x'", "engine.pass_timeout_s is 'x': number or none"),
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

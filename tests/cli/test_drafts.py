"""How to speculate, by options: every system of the docs is a command, and what changes nothing is refused."""

import shlex
import tomllib

import msgspec
import pytest
from click.testing import CliRunner

from cli.main import main
from sims.report import Report
from spec import SamplingParams, SpecConfig
from tests.shared import CHECKOUT

SMALL = ("--requests", "12", "--concurrency", "6", "--compare", "12", "--blocks", "64", "--no-baseline")
SMALL += ("--output-tokens", "24", "--cancel-rate", "0.2", "--json", "-")


def sim(*args):
    return CliRunner().invoke(main, ["sim", *SMALL, *args])


def rows():
    """By system, what the docs say of it: a configuration, and a command."""
    found = {}
    for line in (CHECKOUT / "docs" / "trees.md").read_text().splitlines():
        name, _, said = line.strip("| ").partition(" | `")
        if said.startswith(("draft = ", "outrider sim ")):
            found.setdefault(name, []).append(said.rstrip("`"))
    return found


def test_every_system_has_a_configuration_and_a_command():
    assert len(rows()) == 14
    assert all(len(said) == 2 for said in rows().values())


@pytest.mark.parametrize("name", rows())
def test_a_documented_command_simulates_the_documented_configuration(name):
    configuration, command = rows()[name]
    wanted = msgspec.convert(tomllib.loads(f"it = {{ {configuration} }}")["it"], SpecConfig)
    result = sim(*shlex.split(command)[2:])
    assert result.exit_code == 0, result.output
    report = msgspec.json.decode(result.stdout, type=Report)
    made = report.config.engine.speculative.for_request(SamplingParams(), report.config.verify)
    assert made == wanted.for_request(SamplingParams(), wanted.rule)
    assert report.audit.outputs_compared > 0
    assert report.audit.outputs_different == 0
    assert report.blocks.leaked == 0
    assert report.spec.drafted > 0


@pytest.mark.parametrize("name", ["suffix decoding, a tree", "Sequoia", "llama.cpp's draft model"])
def test_a_report_can_be_run_again(name, tmp_path):
    first = sim(*shlex.split(rows()[name][1])[2:])
    (tmp_path / "report.json").write_text(first.stdout)
    again = sim("--config", str(tmp_path / "report.json"))
    assert again.exit_code == 0, again.output
    digests = [msgspec.json.decode(result.stdout, type=Report).digest for result in (first, again)]
    assert digests[0] == digests[1]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            ("--nodes", "4"),
            "--nodes has no effect here: it needs drafts (--draft) and --shape sequoia",
        ),
        (("--draft", "fake", "--occurrence", "earliest"), "--occurrence has no effect here"),
        (("--agreement", "0.5"), "--agreement has no effect here: it needs --draft fake"),
        (("--draft", "fake", "--shape", "dynamic", "--k", "3"), "--k has no effect here"),
        (
            ("--draft", "fake", "--children", "iid", "--verify", "match"),
            "--verify is 'match': 'resample' or 'traversal'",
        ),
        (("--draft", "fake", "--verify", "traversal"), "where children is 'top'"),
        (("--draft", "fake", "--shape", "dynamic", "--children", "iid"), "--children is 'iid': 'top' where shape is"),
        (("--draft", "fake", "--shape", "expansion", "--widths", "9,9"), "--widths"),
        (("--draft", "fake", "--shape", "expansion", "--widths", "a"), "--widths"),
        (("--draft", "fake", "--shape", "static", "--paths", "[[0,0]]"), "--paths"),
        (("--k", "17"), "--k is 17"),
        (("--shape", "dynamic"), "--shape is 'dynamic': 'chain' where draft is 'prompt_lookup'"),
        (("--agreement", "80", "--draft", "fake"), "80 % is 0.8"),
    ],
)
def test_what_does_not_go_together_is_refused_by_the_names_of_options(args, said):
    result = sim(*args)
    assert result.exit_code == 2
    assert said in result.output

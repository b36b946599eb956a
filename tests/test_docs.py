"""Every snippet of the README and the docs runs: Python as it stands, commands until it is seen that they work."""

import ast
import os
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from cli.main import main
from models.loading import locate
from server.config import load_config
from tests.server.harness import serving

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

SHORT = {"sim": ["--requests", "30", "--blocks", "256", "--compare", "5"], "explore": ["--seeds", "2"]}
"""What keeps a command that is run from taking long."""


def snippets(*languages):
    for page in PAGES:
        text = page.read_text()
        for found in FENCE.finditer(text):
            if found[1] in languages:
                line = text[: found.start()].count("\n") + 2
                yield pytest.param(found[2], id=f"{page.name}:{line}")


def commands(program):
    """The words of every command of a program, in order, without comments and what they are piped into."""
    for param in snippets("", "bash"):
        for line in param.values[0].splitlines():
            words = shlex.split(line.partition("|")[0], comments=True)
            if words[:1] == [program]:
                yield pytest.param(words[1:], id=f"{param.id} {' '.join(words[1:])}"[:80])


def python(source, folder):
    command = [sys.executable, "-W", "error", "-c", source]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("source", list(snippets("python")))
def test_python_runs_as_it_stands(source, tmp_path):
    if "smollm2" in source and (locate("smollm2-135m") is None or find_spec("gguf") is None):
        pytest.skip("the model is not pulled, or the extra is not installed")
    if "http://127.0.0.1:8000" in source:
        with serving() as server:
            result = python(source.replace("http://127.0.0.1:8000", server.url), tmp_path)
    else:
        result = python(source, tmp_path)
    assert result.returncode == 0, result.stderr
    assert "print(" not in source or result.stdout


def test_the_snippets_are_found():
    assert len(list(snippets("python"))) >= 4
    assert len(list(commands("outrider"))) >= 15
    languages = {found[1] for page in PAGES for found in FENCE.finditer(page.read_text())}
    assert languages <= {"", "python", "bash", "toml", "json"}


@pytest.mark.parametrize("words", list(commands("outrider")))
def test_commands_work(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for i, word in enumerate(words):  # the files that a snippet before, or the reader, has made
        if word == "--config" and words[i + 1].endswith(".json"):
            CliRunner().invoke(main, ["sim", *SHORT["sim"], "--json", words[i + 1]])
        elif words[0] == "sweep" and i == 1:
            Path(word).write_text(sweep_file())
        elif is_read(words, i):
            Path(word).write_text("")
        elif word in ("--trace", "--replay", "--file") or words[i - 1] == "--scenario":
            pytest.skip("needs a file of the reader's")
    is_long = words[0] == "explore" and {"--scenario", "--seed", "--exhaustive", "--minutes"} & set(words)
    if words[0] in SHORT and not is_long and "--help" not in words:
        result = CliRunner().invoke(main, [*words, *SHORT[words[0]]])
        assert result.exit_code == 0, result.output
    else:
        context = main.make_context("outrider", list(words))
        name, command, rest = main.resolve_command(context, [*context._protected_args, *context.args])
        while rest and hasattr(command, "resolve_command"):
            name, command, rest = command.resolve_command(context, rest)
        if "--help" not in words:
            command.make_context(name, rest, parent=context).close()  # raises for what is not known or not allowed


def is_read(words, i):
    """Tell whether a word of `plan` or `heads` names a file that must be there."""
    if words[0] == "plan":
        return i == 1 or words[i - 1] in ("--cost", "--heads")
    return words[0] == "heads" and (words[i - 1] == "--text" or (words[1] == "eval" and i == 3))


def sweep_file():
    """The file of the docs that describes a sweep."""
    (found,) = {param.values[0] for param in snippets("toml") if param.values[0].startswith("command")}
    return found


@pytest.mark.parametrize("text", list(snippets("toml")))
def test_configurations_are_taken(text, tmp_path):
    path = tmp_path / "runtime.toml"
    path.write_text(text)
    if text == sweep_file():
        result = CliRunner().invoke(main, ["sweep", str(path), "--json", "-"])
        assert result.exit_code == 0, result.output
        assert len(msgspec.json.decode(result.stdout)["rows"]) == 6
        assert (tmp_path / "runtime.sweep" / "page.html").exists()
    else:
        load_config(path, {})


@pytest.mark.parametrize("text", list(snippets("json")))
def test_json_is_json(text):
    msgspec.json.decode(text)


def test_what_is_to_be_made_can_be_made():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {word for page in PAGES for word in re.findall(r"\bmake ([a-z-]+)`", page.read_text())}
    named |= {param.values[0][0] for param in commands("make")}
    assert named <= targets
    assert {"run", "test", "help"} <= named


def test_extras_are_named_as_they_are_and_installed_from_a_checkout():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    sources = [*PAGES, *(path for part in ("cli", "models", "server", "tests") for path in (ROOT / part).rglob("*.py"))]
    for path in sources:
        for package, names in re.findall(r"pip install (?:-e )?['\"]([\w.]+)\[([\w,]+)\]", path.read_text()):
            assert package == ".", f"{path}: {package} is not published"
            assert set(names.split(",")) <= extras.keys(), path


def test_modules_that_docs_run_are_there():
    for page in PAGES:
        for module in re.findall(r"python -m ([\w.]+)", page.read_text()):
            assert find_spec(module) is not None, page


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_snippets_are_whole_programs():
    for param in snippets("python"):
        ast.parse(param.values[0])


@pytest.mark.parametrize(("version", "is_right"), [("3.9.18", False), ("3.10.13", False), ("3.11.0", True)])
def test_make_looks_at_the_version_before_it_sets_anything_up(version, is_right, tmp_path):
    python, log = tmp_path / "python", tmp_path / "log"
    #   a Python that knows its version, and of everything else only that it was asked
    python.write_text(
        f'#!/bin/sh\ncase "$1" in -V) echo Python {version};; -c) exec {sys.executable} -c "'
        f"import sys; sys.version_info = tuple(map(int, '{version}'.split('.')))\n$2\";; "
        f"*) echo $* >> {log}; mkdir -p {tmp_path}/venv; exit 7;; esac\n"
    )
    python.chmod(0o755)
    command = ["make", "-C", str(ROOT), "run", f"VENV={tmp_path}/venv", f"PYTHON={python}", "UV="]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert log.exists() == is_right
    assert ("Python 3.11 or newer is needed" in done.stderr) != is_right
    assert is_right or f"is Python {version}: make PYTHON=" in done.stderr

"""A planted mistake, and its trial: a copy of the project, one replacement, the tests that are named for it."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_SECONDS = 300  # a mistake may loop for ever; that is caught too

FOUND_AT = "import importlib.util, sys; [print(importlib.util.find_spec(name).origin) for name in sys.argv[1:]]"


class Mutant(NamedTuple):
    """Replace `old`, which occurs exactly once in the file at `path`, by `new`; `tests` are what must notice."""

    name: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]


class Verdict(NamedTuple):
    """How a trial ended; `caught_by` names the tests that failed."""

    mutant: Mutant
    outcome: (
        str  # "caught", "SURVIVED", "STALE" (the replacement does not fit the code) or "BROKEN" (nothing was tested)
    )
    caught_by: tuple[str, ...] = ()
    detail: str = ""

    @property
    def is_caught(self) -> bool:
        return self.outcome == "caught"


def packages() -> list[str]:
    """The top-level packages of the project, the tests included."""
    return sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))


@contextmanager
def copy_of_project() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder)
        for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, copy)
        for package in packages():
            shutil.copytree(
                ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.pyd")
            )
        yield copy


def run_in(copy: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the copy so that it imports the copy's packages, and with nothing beside the checkout."""
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    environment["OUTRIDER_SHARED"] = str(copy / "nothing")
    environment["HYPOTHESIS_PROFILE"] = "no shrinking"
    return subprocess.run(
        [sys.executable, *command],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


def check_copy_is_imported(copy: Path) -> None:
    """Raise RuntimeError if the copy's Python would import a package from somewhere else."""
    result = run_in(copy, "-c", FOUND_AT, *packages())
    files = [Path(line).resolve() for line in result.stdout.split()]
    if result.returncode or not files or not all(file.is_relative_to(copy.resolve()) for file in files):
        raise RuntimeError(f"the copy in {copy} is not what is imported: {result.stdout}{result.stderr}")


def run_tests(copy: Path, tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return run_in(
        copy, "-m", "pytest", "-p", "no:cacheprovider", "--maxfail=5", "--tb=no", "-rfE", "--no-header", *tests
    )


def failures(output: str) -> tuple[str, ...]:
    """The tests that a run's summary names, without their parameters."""
    named = re.findall(r"^(?:FAILED|ERROR) (\S+?)(?:\[.*)?(?: - .*)?$", output, re.MULTILINE)
    return tuple(dict.fromkeys(name.removeprefix("tests/") for name in named))


def try_mutant(mutant: Mutant) -> Verdict:
    """Plant the mistake in a fresh copy and run its tests there."""
    with copy_of_project() as copy:
        path = copy / mutant.path
        source = path.read_text() if path.exists() else ""
        if source.count(mutant.old) != 1:
            return Verdict(mutant, "STALE", detail=f"{mutant.path} holds the old text {source.count(mutant.old)} times")
        source = source.replace(mutant.old, mutant.new)
        try:
            compile(source, mutant.path, "exec")
        except SyntaxError as error:  # would fail every test, and say nothing of any
            return Verdict(mutant, "BROKEN", detail=str(error))
        path.write_text(source)
        check_copy_is_imported(copy)
        try:
            result = run_tests(copy, mutant.tests)
        except subprocess.TimeoutExpired:
            return Verdict(mutant, "caught", (f"no end within {TIMEOUT_SECONDS} s",))
    caught_by = failures(result.stdout)
    if result.returncode == 0:
        return Verdict(mutant, "SURVIVED")
    if not caught_by:
        return Verdict(mutant, "BROKEN", detail=(result.stdout + result.stderr)[-2000:])
    return Verdict(mutant, "caught", caught_by)

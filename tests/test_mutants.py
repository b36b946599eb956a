"""The trial of planted mistakes is itself put to the trial: what is no mistake must be seen to survive."""

import re

import pytest

from tests.mutants.__main__ import collect
from tests.mutants.mutant import ROOT, Mutant, failures, try_mutant

PATH = "spec/params.py"
OLD = "return self.temperature == 0"
TESTS = ("tests/spec/test_verify.py::test_hand_example_greedy_verify",)


@pytest.mark.parametrize(
    ("old", "new", "tests", "outcome"),
    [
        (OLD, OLD, TESTS, "SURVIVED"),
        (OLD, "return self.temperature == 1", TESTS, "caught"),
        (OLD, "return self.temperature ==", TESTS, "BROKEN"),
        ("is not in the file", "", TESTS, "STALE"),
        ("return", "return", TESTS, "STALE"),
        (OLD, OLD, ("tests/spec/test_of_nothing.py",), "BROKEN"),
    ],
    ids=["identity", "mistake", "syntax error", "absent", "ambiguous", "no such test"],
)
def test_the_trial_tells_what_became_of_a_mutant(old, new, tests, outcome):
    verdict = try_mutant(Mutant("a mutant", PATH, old, new, tests))
    assert verdict.outcome == outcome, verdict.detail
    assert verdict.is_caught == bool(verdict.caught_by) == (outcome == "caught")


@pytest.mark.parametrize("mutant", collect(), ids=lambda mutant: re.sub(r"\W+", "-", mutant.name))
def test_every_mistake_fits_the_code_as_it_is(mutant):
    assert (ROOT / mutant.path).read_text().count(mutant.old) == 1
    assert mutant.new != mutant.old
    assert all((ROOT / test.partition("::")[0]).exists() for test in mutant.tests)


def test_failures_are_read_from_the_summary():
    output = (
        "FAILED tests/a/test_b.py::test_c[x - y] - AssertionError: no\n"
        "FAILED tests/a/test_b.py::test_c[z]\n"
        "ERROR tests/a/test_d.py\n"
        "1 failed, 1 error in 0.1s\n"
    )
    assert failures(output) == ("a/test_b.py::test_c", "a/test_d.py")

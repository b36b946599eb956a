"""A few of the ways to draft for a real model; all of them: python -m tests.real_texts."""

import pytest

for package in ("gguf", "tokenizers", "jinja2", "numba"):
    pytest.importorskip(package, reason="real models need outrider[real,fast]")

from tests.real_texts.cases import cases, is_there, run  # noqa: E402 - it needs them

if not is_there():
    pytest.skip("smollm2-135m is not pulled (outrider models pull smollm2-135m)", allow_module_level=True)

CHOSEN = (
    "suffix best_first resample",
    "hybrid chain ahead match",
    "linear dynamic top match",
)


@pytest.mark.parametrize("case", [case for case in cases() if case.name in CHOSEN], ids=lambda case: case.name)
def test_a_real_model_says_the_same_however_it_is_drafted_for(case):
    run(case)


def test_every_case_has_a_name_of_its_own():
    names = [case.name for case in cases()]
    assert len(set(names)) == len(names) > 90
    assert set(CHOSEN) <= set(names)

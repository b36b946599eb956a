"""The vectors, our own and those beside the checkout."""

import json
from pathlib import Path

import pytest

from tests import golden
from tests.shared import shared_folder

FOLDERS = {"own": Path(golden.__file__).parent, "shared": shared_folder() / "golden"}


def cases_of(name, kinds=None):
    """The cases of one file in every folder that is there, of some kinds where they are given."""
    for folder, path in FOLDERS.items():
        if (path / f"{name}.json").exists():
            for i, case in enumerate(json.loads((path / f"{name}.json").read_text())):
                if kinds is None or case["kind"] in kinds:
                    yield pytest.param(case, id=f"{folder}-{i}")


def each(name, *kinds):
    """Parametrise a test over the cases of one file."""
    return pytest.mark.parametrize("case", list(cases_of(name, kinds or None)))


def close(values):
    return pytest.approx(values, rel=1e-9, abs=0)

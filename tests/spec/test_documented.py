"""What the docs say of draft trees."""

import tomllib

import msgspec
import pytest

from spec import SpecConfig
from tests.shared import CHECKOUT


def documented():
    """The configurations of the table in the docs."""
    page = (CHECKOUT / "docs" / "trees.md").read_text()
    for line in page.splitlines():
        name, _, configuration = line.strip("| ").partition(" | `draft = ")
        if configuration:
            yield pytest.param(f"draft = {configuration.rstrip('`')}", id=name)


@pytest.mark.parametrize("text", list(documented()))
def test_every_documented_system_is_a_configuration(text):
    table = tomllib.loads(f"speculative = {{ {text} }}")
    msgspec.convert(table["speculative"], SpecConfig)


def test_the_docs_have_a_row_for_each_system():
    assert len(list(documented())) == 14

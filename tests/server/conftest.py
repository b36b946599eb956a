"""One server process for the tests that only ask it things."""

import pytest

from tests.server.harness import serving


@pytest.fixture(scope="package")
def plain():
    """A fast server with default limits and prompt-lookup drafts."""
    with serving("--set", "engine.num_blocks=512", "--set", "server.ping_s=0.2") as server:
        yield server

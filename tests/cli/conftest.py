"""The command line in this process, as a fixture."""

import pytest
from tests.support.commands import run_command


@pytest.fixture(scope="session")
def unweave():
    return run_command

"""Settings shared by all tests: property tests repeat exactly and have no deadline."""

import os
from pathlib import Path

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("repeatable")

# Processes that a test starts find tests.support, too.
os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])

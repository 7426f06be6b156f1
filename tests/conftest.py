"""Settings shared by all tests: property tests repeat exactly and have no deadline."""

import os
from pathlib import Path

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("repeatable")

# Processes that a test starts find tests.support, and `unweave` where this process finds it.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(__file__).resolve().parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
)

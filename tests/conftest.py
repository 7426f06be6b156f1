"""Settings shared by all tests: property tests repeat exactly and have no deadline."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("repeatable")

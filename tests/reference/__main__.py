"""python -m tests.reference: writes tests/golden (`make golden`)."""

from tests.reference import posteriors, privacy

posteriors.write()
privacy.write()

"""python -m tests.reference: writes tests/golden/posteriors.json (`make golden`)."""

from tests.reference.posteriors import write

write()

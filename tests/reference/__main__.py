"""python -m tests.reference: writes tests/golden/*.json (`make golden`)."""

import json
import re
from pathlib import Path
from typing import Any

from tests.reference import glms, posteriors, privacy


def write(file: Path, values: dict[str, Any]) -> None:
    """A list of numbers stands on one line."""
    text = json.dumps(values, indent=1)
    lists = re.compile(r"\[\s+([^][{}]+?)\s+\]")
    text = lists.sub(lambda found: f"[{' '.join(found[1].split())}]", text)
    file.write_text(text + "\n", encoding="utf-8")


write(glms.FILE, glms.glm_references())
write(posteriors.FILE, posteriors.conjugate_references())
write(privacy.FILE, privacy.privacy_references())

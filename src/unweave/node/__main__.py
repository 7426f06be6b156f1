"""`python -m unweave.node AGENT_DIR` is `unweave agent AGENT_DIR` without the imports of a command
line: a supervisor that starts many agents saves a fifth of the time.
"""

from __future__ import annotations

import asyncio
import sys

from unweave.errors import UnweaveError
from unweave.node.serve import serve

__all__ = ["main"]


def main(folder: str) -> int:
    """Run one agent; an expected error is one readable line."""
    try:
        asyncio.run(serve(folder))
    except UnweaveError as error:
        sys.stderr.write(f"unweave: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))

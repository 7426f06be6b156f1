"""`python -m unweave.node AGENT_DIR` is `unweave agent AGENT_DIR` without the imports of a command
line: a supervisor that starts many agents saves a fifth of the time. With a `-` before AGENT_DIR
the agent stops at the end of its standard input, which a supervisor holds open while it lives.
"""

from __future__ import annotations

import asyncio
import sys

from unweave.errors import UnweaveError
from unweave.node.agent import serve
from unweave.text import visible

__all__ = ["main"]


def main(folder: str, leash: int | None = None) -> int:
    """Run one agent; an expected error is one readable line."""
    try:
        asyncio.run(serve(folder, leash=leash))
    except UnweaveError as error:
        sys.stderr.write(f"unweave: {visible(error)}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[-1], 0 if sys.argv[1] == "-" else None))

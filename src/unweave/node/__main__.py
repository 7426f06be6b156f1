"""`python -m unweave.node AGENT_DIR` is `unweave agent AGENT_DIR` without the imports of a command
line. With a `-` before AGENT_DIR the agent has a supervisor: it stops at the end of its standard
input, which the supervisor holds open, and logs to agent.log in its folder.
"""

from __future__ import annotations

import asyncio
import sys

from unweave.errors import UnweaveError
from unweave.node.agent import serve
from unweave.node.process import RESTART, protect_memory, replace
from unweave.text import crash, visible

__all__ = ["main"]


def main(folder: str, supervisor: int | None = None) -> int:
    """Run one agent and return the exit code; an error is one readable line."""
    try:
        if asyncio.run(serve(folder, supervisor=supervisor)):
            return RESTART
    except UnweaveError as error:
        sys.stderr.write(f"unweave: {visible(error)}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        sys.stderr.write(f"unweave: {visible(crash(error))}\n")
        return 1
    return 0


if __name__ == "__main__":
    protect_memory()
    code = main(sys.argv[-1], 0 if sys.argv[1] == "-" else None)
    if code == RESTART:
        replace()
    raise SystemExit(code)

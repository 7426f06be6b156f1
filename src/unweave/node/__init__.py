"""One agent process.

`agent` builds it, `driver` runs the protocol. `commits` and `storage` persist, `wire` and
`transport` send, `compute` and `data` compute, `api`, `log` and `activity` report.
"""

from __future__ import annotations

__all__: list[str] = []

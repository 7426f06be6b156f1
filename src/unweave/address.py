"""`host:port`, as manifests, settings and the command line write it."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["ADDRESS", "Address"]


# An IPv6 host is in brackets: without them nobody can tell where it ends.
ADDRESS = r"^(\[[0-9A-Fa-f:.%]+\]|[^\s:\[\]/]+):([0-9]{1,5})$"


class Address(NamedTuple):
    """`host` is without brackets, as sockets want it."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address | None:
        """None if it is no address, or its port is above 65535; port 0 means any.

        >>> Address.parse("[::1]:7400"), Address.parse("::1:7400")
        (Address(host='::1', port=7400), None)
        """
        found = re.fullmatch(ADDRESS, text)
        if found is None or int(found[2]) > 65535:
            return None
        return cls(found[1].strip("[]"), int(found[2]))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

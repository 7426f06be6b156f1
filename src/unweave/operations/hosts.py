"""Whether the hosts of a network can be found from this machine, and whether they answer.

A resolver may hang for minutes and cannot be interrupted. It is called in daemon threads, and the
command waits for all of them a few seconds at most.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from unweave.address import Address

__all__ = ["Reached", "host_of", "host_problem", "reach"]

K = TypeVar("K")
V = TypeVar("V")

_LIMIT = 4.0  # seconds to find all hosts
_ANSWER = 1.5  # seconds for one connection, and at most twice that for all
_THREADS = 32


@dataclass(frozen=True)
class Reached:
    """`problem` is why the host cannot be found, or ""."""

    problem: str = ""
    answers: bool = False


def reach(addresses: Iterable[str]) -> dict[str, Reached]:
    """The result for each address; every host is resolved once."""
    wanted = list(dict.fromkeys(addresses))
    problems = _in_parallel(_find, dict.fromkeys(map(host_of, wanted)), _LIMIT)
    late = f"the name server did not answer within {_LIMIT:g} s"
    found = {one: Reached(problems.get(host_of(one), late)) for one in wanted}
    there = [one for one in wanted if not found[one].problem]
    heard = _in_parallel(_answers, there, 2 * _ANSWER)
    return found | {one: Reached(answers=True) for one in there if heard.get(one)}


@cache
def host_problem(host: str) -> str:
    """Why a host cannot be found; nothing if it can."""
    address = str(Address(host, 0))
    return reach([address])[address].problem


def _in_parallel(ask: Callable[[K], V], keys: Iterable[K], limit: float) -> dict[K, V]:
    """The answers that arrive within `limit` seconds."""
    pending: queue.SimpleQueue[K] = queue.SimpleQueue()
    for key in keys:
        pending.put(key)
    count, end = pending.qsize(), time.monotonic() + limit
    answers: queue.SimpleQueue[tuple[K, V]] = queue.SimpleQueue()

    def work() -> None:
        with contextlib.suppress(queue.Empty):
            while time.monotonic() < end:
                key = pending.get_nowait()
                answers.put((key, ask(key)))

    for _ in range(min(_THREADS, count)):
        threading.Thread(target=work, daemon=True).start()
    found: dict[K, V] = {}
    with contextlib.suppress(queue.Empty):
        while len(found) < count:
            key, value = answers.get(timeout=max(0.0, end - time.monotonic()))
            found[key] = value
    return found


def host_of(address: str) -> str:
    """The host of an address that a manifest has."""
    return _parsed(address).host


def _parsed(address: str) -> Address:
    found = Address.parse(address)
    assert found is not None  # the manifest has been checked
    return found


def _find(host: str) -> str:
    try:
        socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return str(error)
    return ""


def _answers(address: str) -> bool:
    try:
        socket.create_connection(_parsed(address), _ANSWER).close()
    except (OSError, UnicodeError):
        return False
    return True

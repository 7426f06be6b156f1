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

__all__ = ["Reached", "host_problem", "reach"]

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
    problems = _in_parallel(_find, dict.fromkeys(map(_host, wanted)), _LIMIT)
    late = f"the name server did not answer within {_LIMIT:g} s"
    found = {address: Reached(problems.get(_host(address), late)) for address in wanted}
    resolved = [address for address in wanted if not found[address].problem]
    answers = _in_parallel(_answers, resolved, 2 * _ANSWER)
    return found | {name: Reached(answers=True) for name in resolved if answers.get(name)}


@cache
def host_problem(host: str) -> str:
    """Why a host cannot be found, or ""."""
    return reach([f"{host}:0"])[f"{host}:0"].problem


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


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def _find(host: str) -> str:
    try:
        socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return str(error)
    return ""


def _answers(address: str) -> bool:
    port = int(address.rpartition(":")[2])
    try:
        socket.create_connection((_host(address), port), _ANSWER).close()
    except (OSError, UnicodeError):
        return False
    return True

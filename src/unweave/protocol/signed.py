"""Who has signed, as a cover collects it: one more at every visit."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping

__all__ = ["OneMore"]


class OneMore(Mapping[int, bytes]):
    """Signatures and one more. Nothing is copied: agents of one process share what they have in
    common, and thousands of them do not keep thousands of signatures each."""

    __slots__ = ("_agent", "_before", "_signature", "_size")

    def __init__(self, before: Mapping[int, bytes], agent: int, signature: bytes) -> None:
        self._before = before
        self._agent = agent
        self._signature = signature
        self._size = len(before) + 1

    def _pairs(self) -> Iterator[tuple[int, bytes]]:
        here: Mapping[int, bytes] = self
        while isinstance(here, OneMore):
            yield here._agent, here._signature
            here = here._before
        yield from here.items()

    def __iter__(self) -> Iterator[int]:
        return (agent for agent, _ in self._pairs())

    def __getitem__(self, agent: int) -> bytes:
        for who, signature in self._pairs():
            if who == agent:
                return signature
        raise KeyError(agent)

    def items(self) -> ItemsView[int, bytes]:
        return dict(self._pairs()).items()

    def __len__(self) -> int:
        return self._size

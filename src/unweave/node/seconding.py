"""With `auto_vote`, an agent seconds the votes of others by itself."""

from __future__ import annotations

import time

from unweave.errors import UnweaveError
from unweave.node.runner import Node
from unweave.protocol.events import VoteCast

__all__ = ["keep_votes"]

_LOOK = 30.0  # seconds, if nothing happens


async def keep_votes(node: Node) -> None:
    """Second a vote about an agent that is not heard from here. Who is no neighbour of it cannot
    know: it waits until most of the neighbours have voted."""
    while True:
        await node.changed(_LOOK)
        try:
            await _second(node)
        except UnweaveError as error:
            # The vote was not cast; a disk that refuses today may take it tomorrow.
            node.log.warning("cannot vote", why=str(error))


async def _second(node: Node) -> None:
    state = node.state
    if state is None or not node.folder.config.auto_vote:
        return
    for (target, _), vote in list(state.votes.items()):
        unknown = target != node.me and (target, node.me) not in state.votes
        if unknown and _may_second(node, target):
            await node.probe(target)
            await node.tell(VoteCast(target, vote.request, time.monotonic()))


def _may_second(node: Node, target: int) -> bool:
    neighbours = node.terms.topology.adjacency[target]
    state = node.state
    if state is None or node.me in neighbours:
        return state is not None
    voted = sum(1 for n in neighbours if (target, n) in state.votes)
    return 2 * voted > len(neighbours)

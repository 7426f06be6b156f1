"""What must be true in the end: no more faults, everybody back or gone for good, time has passed.

One token, at rest, in one epoch; everybody who should be is included, at the current revision;
nobody has unfinished business; every erasure that a disk remembers was carried out and certified.
"""

from __future__ import annotations

from typing import NoReturn

from unweave.protocol.ids import bit, members
from unweave.protocol.state import Idle, Parked, State
from unweave.protocol.tombs import NOTHING
from unweave.simulate.checks import Checker, Violation, gone
from unweave.simulate.world import World

__all__ = ["check_liveness"]


def check_liveness(world: World, checker: Checker) -> None:
    """Raise `Violation` unless the healed network has done all its work."""
    left = 0
    for agent in world.agents:
        if agent.state is not None:
            left |= gone(agent.state.tombs)
    live = [k for k in range(len(world.agents)) if not left & bit(k)]
    down = [k for k in live if world.agents[k].state is None]
    if down:
        _fail(f"{down} are down")
    states = {k: world.state(k) for k in live}
    if any(s.halted for s in states.values()):
        _fail("the network has halted: two audits did not add up")
    roles = {k: s.role for k, s in states.items() if not isinstance(s.role, Idle)}
    if len(roles) != 1 or not all(isinstance(role, Parked) for role in roles.values()):
        _fail(
            f"expected one parked token, found {[(k, type(r).__name__) for k, r in roles.items()]}"
        )
    holder, role = next(iter(roles.items()))
    assert isinstance(role, Parked)
    token = role.token
    if set(live) - set(members(token.quiet.agents)):
        _fail(f"{set(live) - set(members(token.quiet.agents))} have not attested")
    for k, s in states.items():
        _check_agent(k, s, checker)
        if s.rest is None or s.rest.stamp != token.stamp or s.rest.holder != holder:
            _fail(f"agent {k} does not know where the token rests")
        if any(t.ids - t.filed for t in token.tombs.values()) and not s.rest.certificate:
            _fail(f"agent {k} has no certificate of the erasures it knows")
        own = s.tombs.get(k, NOTHING).ids
        if not own <= checker.kept.get(k, set()):
            _fail(f"agent {k} was never given the certificate of its own erasures")
        wanted = None if s.current is None else s.current.revision
        if (token.included[k] if token.inside & bit(k) else None) != wanted:
            _fail(f"agent {k} is included at {token.included[k]}, not at {wanted}")
    if members(token.inside & left):
        _fail("an agent that left is included")


def _check_agent(k: int, s: State, checker: Checker) -> None:
    tomb = s.tombs.get(k, NOTHING)
    if s.intents:
        _fail(f"agent {k} still knows an open request")
    if tomb.whole and s.current is not None:
        _fail(f"agent {k} was erased and still has a factor")
    if s.current is not None and (s.current.rows != s.rows or s.current.data != s.data):
        _fail(f"agent {k} has not learned its current data")
    known = {request for tomb in s.tombs.values() for request in tomb.ids}
    if known - checker.certified:
        _fail(f"{len(known - checker.certified)} erasures known to agent {k} are not certified")
    if not tomb.whole and checker.requests.get(k, set()) - checker.certified:
        _fail(f"agent {k} promised an erasure that was not carried out")


def _fail(what: str) -> NoReturn:
    raise Violation(f"liveness: {what}")

"""The end of a run, after the faults: the token is parked, and no work is pending."""

from __future__ import annotations

from typing import NoReturn

from unweave.protocol.state import Idle, Parked, State
from unweave.protocol.token import NOTHING, Token
from unweave.simulator.insider import InsiderWorld
from unweave.simulator.invariants.checker import Checker, Violation, departed, forbidden
from unweave.simulator.world import World

__all__ = ["check_liveness", "check_proofs", "known_departed", "parked_token"]


def known_departed(world: World) -> frozenset[int]:
    """The agents that any running agent knows as departed."""
    running = (agent.state for agent in world.agents if agent.state is not None)
    return frozenset().union(*(departed(state.known.tombs) for state in running))


def parked_token(world: World) -> Token:
    """The parked token at the end of a run. A departed agent that lies may say that it has one."""
    absent = known_departed(world)
    roles = (
        agent.state.token.role
        for k, agent in enumerate(world.agents)
        if k not in absent and agent.state is not None
    )
    return next(role.token for role in roles if isinstance(role, Parked))


def check_liveness(world: World, checker: Checker) -> None:
    """Raise `Violation` unless the network has parked the token with no pending work."""
    absent = known_departed(world)
    live = [k for k in range(len(world.agents)) if k not in absent]
    down = [k for k in live if world.agents[k].state is None]
    if down:
        _fail(f"{down} are down")
    states = {k: world.state(k) for k in live}
    if any(s.audit_failed for s in states.values()):
        _fail("the audit failed: two mismatches")
    roles = {k: s.token.role for k, s in states.items() if not isinstance(s.token.role, Idle)}
    if len(roles) != 1 or not all(isinstance(role, Parked) for role in roles.values()):
        _fail(
            f"expected one parked token, found {[(k, type(r).__name__) for k, r in roles.items()]}"
        )
    holder, role = next(iter(roles.items()))
    assert isinstance(role, Parked)
    token = role.token
    if set(live) - set(token.round.agents):
        _fail(f"{set(live) - set(token.round.agents)} have not attested")
    for k, s in states.items():
        spent = any(not one.body["key"] for one in token.masked.spare.values())
        given = (bool(token.inside) and not spent) or not world.terms.masked
        _check_agent(k, s, checker, given=given)
        if (
            s.token.parked is None
            or s.token.parked.stamp != token.stamp
            or s.token.parked.holder != holder
        ):
            _fail(f"agent {k} does not know where the token is parked")
        if (
            any(t.ids - t.compacted for t in token.tombs.values())
            and not s.token.parked.certificate
        ):
            _fail(f"agent {k} has no certificate of the erasures it knows")
        own = s.known.tombs.get(k, NOTHING).ids
        if not own <= checker.kept.get(k, set()):
            _fail(f"agent {k} was never given the certificate of its own erasures")
        if not token.inside and world.terms.masked:
            continue  # too few agents remain for a sum
        if spent and s.own.current is None:
            continue  # an erasure of records that the sum does not hold, and no other sum follows
        wanted = None if s.own.current is None else s.own.current.revision
        if (token.included[k] if k in token.inside else None) != wanted:
            _fail(f"agent {k} is included at {token.included[k]}, not at {wanted}")
    if token.inside & absent:
        _fail("a departed agent is included")
    lying = {world.liar} if isinstance(world, InsiderWorld) and world.lying else set()
    for k, agent in enumerate(world.agents):
        if k in absent - lying and agent.state is not None and agent.backlog is None:
            _check_departed(k, agent.state, list(states.values()))


def check_proofs(world: World) -> None:
    """J4, where agents answer proofs with votes."""
    for k, agent in enumerate(world.agents):
        if agent.state is not None:
            for liar in agent.state.known.proofs:
                raise Violation(f"J4 at {world.terms.name(k)}: a proof against {liar}, which stays")


def _check_departed(k: int, s: State, others: list[State]) -> None:
    """A departed agent that runs has the votes, and keeps no forbidden sum."""
    if k not in departed(s.known.tombs):
        _fail(f"agent {k} was voted out and does not know it")
    if not isinstance(s.token.role, Idle):
        _fail(f"agent {k} was voted out and is responsible for a token")
    if s.token.copy is not None and any(forbidden(s.token.copy, other) for other in others):
        _fail(f"agent {k} was voted out and keeps a sum with erased data")


def _check_agent(k: int, s: State, checker: Checker, *, given: bool) -> None:
    tomb = s.known.tombs.get(k, NOTHING)
    if s.known.intents:
        _fail(f"agent {k} still knows an open request")
    if tomb.whole and s.own.current is not None:
        _fail(f"agent {k} was erased and still has a factor")
    if (
        given
        and s.own.current is not None
        and (s.own.current.rows != s.own.rows or s.own.current.data != s.own.data)
    ):
        _fail(f"agent {k} has not learned its current data")
    if not tomb.whole and (s.own.waiting.requests or s.own.waiting.data):
        _fail(f"agent {k} has changes that wait, after their date")
    known = {request for tomb in s.known.tombs.values() for request in tomb.ids}
    if known - checker.certified:
        _fail(f"{len(known - checker.certified)} erasures known to agent {k} are not certified")
    if not tomb.whole and checker.requests.get(k, set()) - checker.certified:
        _fail(f"agent {k} has an intent that was not carried out")


def _fail(what: str) -> NoReturn:
    raise Violation(f"liveness: {what}")

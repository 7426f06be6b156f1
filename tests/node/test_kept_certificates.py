"""Certificates outlive stores: what they prove is asked for again, and nothing else is."""

import base64
import json

import pytest
from tests.support.tally import row_key
from tests.support.wire import Wire

from unweave.node.erasures import remember, unremembered
from unweave.protocol import requests
from unweave.protocol.ports import MemoryStore
from unweave.protocol.statements import Tombstone, pae
from unweave.protocol.token import request_id

PATH = [(0, 1), (1, 2)]


@pytest.fixture
def wire():
    wire = Wire(3, PATH)
    wire.settle()
    return wire


def tombstone(
    wire,
    agent=0,
    *,
    request=None,
    signer=None,
    whole=False,
    rows=(1,),
    network_id=None,
    remembered=0,
):
    body = {
        "network_id": wire.terms.network_id.hex() if network_id is None else network_id,
        "agent": agent,
        "whole": whole,
        "request": (request_id(agent, b"q" * 12) if request is None else request).hex(),
        "rows": [row_key(row).hex() for row in rows],
        "remembered": remembered,
    }
    payload = json.dumps(body).encode()
    signature = wire.signers[agent if signer is None else signer](pae(Tombstone.kind, payload))
    return {
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": "", "sig": base64.b64encode(signature).decode()}],
    }


def keep(folder, *tombstones, name="certificate-1.json"):
    (folder / name).write_text(json.dumps({"tombstones": tombstones}))


def mine(wire, agent=0):
    return lambda payload, signature: wire.signers[agent](payload) == signature


def test_what_was_forgotten_is_asked_for_again_in_one_commit(wire, tmp_path, monkeypatch):
    """Whatever its size: it was admitted once."""
    monkeypatch.setattr(requests, "UNPROVED", 0)
    ids = [request_id(0, bytes([k]) * 12) for k in range(5)]
    for k, request in enumerate(ids):
        name = f"certificate-{k}.json"
        keep(tmp_path, tombstone(wire, request=request, rows=(k, 9), remembered=k % 3), name=name)
    (tmp_path / "certificate-x.json").write_text("{")
    store, blank = MemoryStore(), wire.blank(0)
    after, found = remember(tmp_path, store, blank, wire.signers[0], mine(wire))
    assert [one.request for one in found] == ids
    assert [after.known.intents[request].remembered for request in ids] == [0, 1, 2, 0, 1]
    assert after.own.dropped == {row_key(row) for row in (0, 1, 2, 3, 4, 9)}
    assert after.own.rows == blank.own.rows + 5
    loaded = store.load(wire.terms, 0)
    assert loaded.own.dropped == after.own.dropped
    assert remember(tmp_path, store, loaded, wire.signers[0], mine(wire)) == (loaded, [])


@pytest.mark.parametrize(
    "strange",
    [
        {"signer": 1},
        {"agent": 1},
        {"request": b"\0\0"},
        {"request": request_id(1, b"q" * 12)},
        {"network_id": "00" * 32},
    ],
)
def test_nobody_else_can_make_an_agent_erase(wire, tmp_path, strange):
    keep(tmp_path, tombstone(wire, **strange))
    assert list(unremembered(tmp_path, wire.blank(0), mine(wire))) == []
    keep(tmp_path, tombstone(wire))
    assert len(list(unremembered(tmp_path, wire.blank(0), mine(wire)))) == 1


def test_what_is_known_is_not_asked_for_again(wire, tmp_path):
    asked = wire.erase(0, rows=[1])
    wire.settle()
    keep(tmp_path, tombstone(wire, request=asked))
    assert list(unremembered(tmp_path, wire.disks[0], mine(wire))) == []
    assert len(list(unremembered(tmp_path, wire.blank(0), mine(wire)))) == 1

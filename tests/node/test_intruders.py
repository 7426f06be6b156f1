"""Whoever is not a neighbour, or does not behave like one: refused, counted, logged; and meanwhile
the healthy neighbour is served.

Four agents in a row, a1 – a2 – a3 – a4. The attacked one is a2, its healthy neighbour a1; a4
belongs to the network and is not a neighbour of a2.
"""

import asyncio
import contextlib
import io
import os
import socket
import ssl
import tempfile
import time
from pathlib import Path
from random import Random

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from unweave.errors import ConfigError, TransportError, WireError
from unweave.keys import tls_name, verifier
from unweave.node.identity import Identity
from unweave.node.log import Log
from unweave.node.transport.client import DELIVER, SERVICE
from unweave.node.transport.framing import Limits
from unweave.node.transport.gate import Gate
from unweave.node.transport.pinning import Pins
from unweave.node.transport.server import GrpcTransport
from unweave.node.wire.codec import decode, encode
from unweave.node.wire.envelope import open_message, sign_message
from unweave.node.wire.primitives import pb
from unweave.protocol.messages import Ack
from unweave.testing.transport import LocalNetwork, eventually, running
from unweave.testing.values import MESSAGES

HEALTHY, ATTACKED, THIRD, OUTSIDE = range(4)
METHOD = f"/{SERVICE}/{DELIVER}"


class Scene:
    """The attacked agent and its healthy neighbour, with everything that was delivered."""

    def __init__(self, **limits):
        self.network = LocalNetwork(4)
        # Longer than a busy machine may stop a process: who is told to be slow is slow on purpose.
        timeouts = {"idle": 30.0, "reply": 30.0, "handshake": 30.0, "connect": 30.0}
        self.limits = {**timeouts, "grace": 0.3, **limits}
        self.heard = []
        self.log = io.StringIO()

    def transport(self, agent, identity=None, stream=None):
        identity = identity or self.network.identities[agent]
        limits = Limits.of(self.network.manifest.terms(), **self.limits)
        log = Log(identity.name, stream=stream or io.StringIO())
        return GrpcTransport(self.network.manifest, agent, identity, log=log, limits=limits)

    async def deliver(self, sender, data):
        self.heard.append((sender, data))
        return [data]

    def channel(self, identity=None, *, compression=None, options=()):
        """A client that ignores our rules, with any identity or none."""
        target = self.network.identities[ATTACKED]
        key = (identity.key_pem, identity.certificate_pem.encode()) if identity else ()
        return grpc.aio.secure_channel(
            self.network.address(ATTACKED),
            grpc.ssl_channel_credentials(target.certificate_pem.encode(), *key),
            [("grpc.ssl_target_name_override", tls_name(target.keyid)), *options],
            compression=compression,
        )

    def socket(self):
        host, _, port = self.network.address(ATTACKED).rpartition(":")
        return asyncio.open_connection(host, int(port))

    async def attack(self, attack, who=None, reason=None):
        """Run `attack(scene)` and check what the attacked agent makes of it. Without `who`: gRPC
        has ended it in the handshake, and nothing has reached the agent."""
        attacked = self.transport(ATTACKED, stream=self.log)
        async with running(attacked, self.deliver), running(self.transport(HEALTHY)) as healthy:

            async def served():
                assert await healthy.send(ATTACKED, b"meanwhile") == [b"meanwhile"]

            async with asyncio.timeout(60):
                await served()
                attacking = asyncio.ensure_future(attack(self))
                while not attacking.done():
                    await served()
                    await asyncio.wait({attacking}, timeout=0.1)
                await attacking
                while who and attacked.refusals[who, reason] == 0:
                    await asyncio.sleep(0.05)
                await served()
        assert set(attacked.refusals) == ({(who, reason)} if who else set())
        lines = [line for line in self.log.getvalue().splitlines() if "refused" in line]
        assert len(lines) == sum(attacked.refusals.values())
        assert all(f"sender={who}" in line and f"reason={reason}" in line for line in lines)
        assert all("127.0.0.1:" in line for line in lines)  # who, as far as one can know
        assert {data for _, data in self.heard} == {b"meanwhile"}  # and nothing else got through
        assert all(sender == HEALTHY for sender, _ in self.heard)


def chunk(data=b"", total=0):
    return pb.Chunk(total=total, data=data).SerializeToString()


async def status(call):
    """The code with which a call ends."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


# ------------------------------------------------------------------------------------- strangers


def twin(identity):
    """Another key under the same names as `identity`."""
    return Identity.create(identity.name)


@pytest.mark.parametrize(
    "who",
    [
        lambda network: None,
        lambda network: Identity.create("stranger"),
        lambda network: twin(network.identities[HEALTHY]),
        lambda network: network.identities[OUTSIDE],
        lambda network: network.identities[ATTACKED],  # not even its own key opens its port
    ],
    ids=["no certificate", "unknown", "a neighbour's name", "not a neighbour", "itself"],
)
def test_an_unknown_peer_fails_in_the_handshake(who):
    async def attack(scene):
        async with scene.channel(who(scene.network)) as channel:
            call = channel.stream_unary(METHOD)(iter([chunk(b"hello", 5)]), timeout=10)
            assert await status(call) == "UNAVAILABLE"

    asyncio.run(Scene().attack(attack))


def test_plaintext_is_not_spoken():
    async def attack(scene):
        address = scene.network.address(ATTACKED)
        async with grpc.aio.insecure_channel(address) as channel:
            call = channel.stream_unary(METHOD)(iter([chunk(b"hello", 5)]), timeout=10)
            assert await status(call) == "UNAVAILABLE"

    asyncio.run(Scene().attack(attack))


@pytest.mark.parametrize(
    "hello",
    [b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01" * 99, b""],
    ids=["http", "http2", "broken tls", "silence"],
)
def test_bytes_that_are_no_handshake(hello):
    async def attack(scene):
        reader, writer = await scene.socket()
        writer.write(hello)
        with contextlib.suppress(ConnectionError):
            await reader.read()  # until the other side hangs up
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    asyncio.run(Scene(handshake=3.0).attack(attack))


def test_old_tls_needs_a_certificate_too():
    async def attack(scene):
        context = ssl.create_default_context(
            cadata=scene.network.identities[ATTACKED].certificate_pem
        )
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["h2"])
        host, _, port = scene.network.address(ATTACKED).rpartition(":")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            reader, _ = await asyncio.open_connection(host, int(port), ssl=context)
            if not await reader.read():
                raise ConnectionResetError

    asyncio.run(Scene().attack(attack))


def test_many_unknown_peers_at_once():
    """They cannot fill the disk, and a neighbour is served meanwhile."""

    async def main():
        scene = Scene()
        attacked = scene.transport(ATTACKED, stream=scene.log)
        async with running(attacked, scene.deliver), running(scene.transport(HEALTHY)) as healthy:

            async def knock():
                _, writer = await scene.socket()
                writer.write(b"GET / HTTP/1.1\r\n\r\n")
                await asyncio.sleep(0.3)
                writer.close()

            knocking = asyncio.gather(*(knock() for _ in range(80)))
            while not knocking.done():
                assert await healthy.send(ATTACKED, b"meanwhile") == [b"meanwhile"]
            await knocking
        assert scene.log.getvalue() == ""

    asyncio.run(main())


def test_silent_unknown_peers_do_not_take_all_descriptors():
    """Beyond a number they are hung up on at once; whoever is connected is served meanwhile."""

    async def main():
        scene = Scene(unknown_peers=5)
        attacked = scene.transport(ATTACKED, stream=scene.log)
        async with running(attacked, scene.deliver), running(scene.transport(HEALTHY)) as healthy:
            assert await healthy.send(ATTACKED, b"meanwhile") == [b"meanwhile"]
            pairs = [await scene.socket() for _ in range(60)]
            ends = [asyncio.ensure_future(reader.read()) for reader, _ in pairs]
            async with asyncio.timeout(20):  # less than the time for a handshake
                while sum(end.done() for end in ends) < 60 - 9:
                    assert await healthy.send(ATTACKED, b"meanwhile") == [b"meanwhile"]
            for end, (_, writer) in zip(ends, pairs, strict=True):
                end.cancel()
                writer.close()

    asyncio.run(main())


@contextlib.asynccontextmanager
async def holding(scene, count, **place):
    """Unknown peers that hold all connections they get and open a new one for each that ends."""

    async def hold():
        host, _, port = scene.network.address(ATTACKED).rpartition(":")
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(host, int(port), **place)
                with contextlib.closing(writer):
                    await reader.read()

    tasks = [asyncio.ensure_future(hold()) for _ in range(count)]
    try:
        await asyncio.sleep(0.5)
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_a_restarted_neighbour_connects_while_unknown_peers_hold_everything():
    async def main():
        scene = Scene(unknown_peers=5)
        attacked = scene.transport(ATTACKED, stream=scene.log)
        async with running(attacked, scene.deliver), asyncio.timeout(60), holding(scene, 30):
            for k in range(3):
                async with running(scene.transport(HEALTHY)) as again:
                    sent = b"start %d" % k
                    assert await eventually(lambda to=again, d=sent: to.send(ATTACKED, d)) == [sent]

    asyncio.run(main())


def test_one_address_cannot_end_the_connection_of_another():
    """A stranger at another address keeps its connection, silent as it is: those of the address
    that has most are ended."""

    async def main():
        scene = Scene(unknown_peers=5)
        async with running(scene.transport(ATTACKED), scene.deliver):
            reader, writer = await scene.socket()
            end = asyncio.ensure_future(reader.read())
            async with holding(scene, 30, local_addr=("127.0.0.2", 0)):
                assert not end.done()
            writer.close()
            await end

    asyncio.run(main())


def test_a_neighbour_has_few_connections():
    """With its key, too, nobody takes all of them."""

    async def main():
        scene = Scene(unknown_peers=5)
        attacked = scene.transport(ATTACKED, stream=scene.log)
        async with contextlib.AsyncExitStack() as opened:
            await opened.enter_async_context(running(attacked, scene.deliver))
            for _ in range(12):
                options = [("grpc.use_local_subchannel_pool", 1)]
                channel = scene.channel(scene.network.identities[THIRD], options=options)
                await opened.enter_async_context(channel)
                call = channel.stream_unary(METHOD)(iter([chunk(b"hello", 5)]), timeout=10)
                assert await status(call) == "OK"
                assert len(attacked._gate._open) <= 3  # one may be about to close

    asyncio.run(main())


def test_a_stopped_transport_leaves_nothing():
    async def main():
        scene = Scene()
        attacked = scene.transport(ATTACKED)
        async with running(attacked, scene.deliver):
            folder = Path(attacked._gate.inner).parent
            assert folder.stat().st_mode & 0o777 == 0o700
            reader, writer = await scene.socket()
        assert await reader.read() == b""
        writer.close()
        assert not folder.exists()

    asyncio.run(main())


def test_folders_of_killed_processes_are_removed(tmp_path, monkeypatch):
    """Not those of running ones, nor those that are being made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kept, left, young = Gate(1), Gate(1), Gate(1)
    with contextlib.ExitStack() as listening:
        for gate in (kept, left, young):
            one = listening.enter_context(socket.socket(socket.AF_UNIX))
            one.bind(gate.inner)
            one.listen()
            if gate is not kept:
                one.close()
            if gate is not young:
                os.utime(Path(gate.inner).parent, (0, 0))
        last = Gate(1)
        assert {p.name for p in tmp_path.iterdir()} == {
            Path(gate.inner).parent.name for gate in (kept, young, last)
        }
        for gate in (kept, young, last):
            gate.close()
        left._folder.cleanup()


# -------------------------------------------------------------------------- bad neighbours' calls

MESSAGE_LIMIT = 3 << 20


@pytest.mark.parametrize(
    ("chunks", "code", "reason"),
    [
        ([chunk(b"x", MESSAGE_LIMIT + 1)], "RESOURCE_EXHAUSTED", "too large"),
        ([chunk(b"x", 2**64 - 1)], "RESOURCE_EXHAUSTED", "too large"),
        ([chunk(b"x", 3), chunk(b"yyy")], "RESOURCE_EXHAUSTED", "too large"),
        ([chunk(b"x" * (1 << 20), 3 << 20)] + 3 * [chunk(b"x" * (1 << 20))], None, "too large"),
        ([chunk(b"x" * (2 << 20), 2 << 20)], "RESOURCE_EXHAUSTED", "incomplete"),
        ([chunk(b"x")], "INVALID_ARGUMENT", "malformed"),
        ([chunk(b"", 5)], "INVALID_ARGUMENT", "malformed"),
        ([chunk(b"x", 5), chunk(b"")], "INVALID_ARGUMENT", "malformed"),
        ([chunk(b"x", 5), chunk(b"y", 5)], "INVALID_ARGUMENT", "malformed"),
        ([b"\xff" * 40], "INVALID_ARGUMENT", "malformed"),
        ([chunk(b"x", 5)[:-1]], "INVALID_ARGUMENT", "malformed"),
        ([b""], "INVALID_ARGUMENT", "malformed"),
        ([], "INVALID_ARGUMENT", "incomplete"),
        ([chunk(b"x", 5)], "INVALID_ARGUMENT", "incomplete"),
    ],
)
def test_what_is_no_message(chunks, code, reason):
    async def attack(scene):
        async with scene.channel(scene.network.identities[THIRD]) as channel:
            ended = await status(channel.stream_unary(METHOD)(iter(chunks), timeout=20))
            assert ended == (code or "RESOURCE_EXHAUSTED")

    asyncio.run(Scene(message=MESSAGE_LIMIT).attack(attack, "a3", reason))


def test_a_message_that_unpacks_to_more_is_not_unpacked():
    async def attack(scene):
        identity = scene.network.identities[THIRD]
        async with scene.channel(identity, compression=grpc.Compression.Gzip) as channel:
            bomb = chunk(b"\0" * (1 << 19), 1 << 19)
            assert await status(channel.stream_unary(METHOD)(iter([bomb]), timeout=20)) != "OK"

    asyncio.run(Scene().attack(attack, "a3", "malformed"))


def test_a_sender_that_stops_in_the_middle_is_cut_off():
    async def attack(scene):
        async with scene.channel(scene.network.identities[THIRD]) as channel:
            call = channel.stream_unary(METHOD)(timeout=50)
            await call.write(chunk(b"x", 100))
            assert await status(call) == "DEADLINE_EXCEEDED"

    asyncio.run(Scene(idle=0.6, rate=0.1).attack(attack, "a3", "slow"))


def test_a_sender_that_drips_is_cut_off():
    """Never silent for long, and still too slow for a message of its size."""

    async def attack(scene):
        async with scene.channel(scene.network.identities[THIRD]) as channel:
            call = channel.stream_unary(METHOD)(timeout=50)

            async def drip():
                await call.write(chunk(b"x", 1000))
                with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
                    while True:
                        await asyncio.sleep(0.05)
                        await call.write(chunk(b"y"))

            dripping = asyncio.ensure_future(drip())
            # A stream that is reset while its sender writes may lose the reason on its way; the
            # refusal is counted at the receiver all the same.
            assert await status(call) in ("DEADLINE_EXCEEDED", "INTERNAL")
            await dripping

    asyncio.run(Scene(idle=1.0, reply=1.0, rate=2.0**30).attack(attack, "a3", "slow"))


def test_one_neighbour_cannot_take_all_the_room():
    async def attack(scene, attacked):
        async with scene.channel(scene.network.identities[THIRD]) as channel:
            calls = []
            for _ in range(3):
                calls.append(channel.stream_unary(METHOD)(timeout=50))
                with contextlib.suppress(grpc.aio.AioRpcError):  # it may be refused before that
                    await calls[-1].write(chunk(b"x", 100))
            assert await status(calls[-1]) == "RESOURCE_EXHAUSTED"
            for call in calls[:-1]:
                call.cancel()
            while attacked.refusals["a3", "incomplete"] < 2:  # until their end has been seen
                await asyncio.sleep(0.01)
            again = channel.stream_unary(METHOD)(iter([chunk(b"meanwhile", 9)]), timeout=20)
            assert await again == pb.Answers(envelopes=[b"meanwhile"]).SerializeToString()

    async def main():
        scene = Scene(incoming=2)
        attacked = scene.transport(ATTACKED, stream=scene.log)
        async with running(attacked, scene.deliver), running(scene.transport(HEALTHY)) as healthy:
            attacking = asyncio.ensure_future(attack(scene, attacked))
            while not attacking.done():
                assert await healthy.send(ATTACKED, b"meanwhile") == [b"meanwhile"]
            await attacking
        assert attacked.refusals == {("a3", "too many"): 1, ("a3", "incomplete"): 2}

    asyncio.run(main())


def test_a_neighbour_that_costs_too_much_is_not_read_for_a_while():
    """And the others are. It is read again after a while."""

    async def main():
        scene = Scene(work=0.5, work_burst=0.2, pause=0.01)
        attacked = scene.transport(ATTACKED, stream=scene.log)
        healthy, third = scene.transport(HEALTHY), scene.transport(THIRD)
        async with (
            running(attacked, scene.deliver),
            running(healthy),
            running(third, scene.deliver),
        ):
            assert await third.send(ATTACKED, b"first") == [b"first"]
            attacked.charge(THIRD, 0.4)
            with pytest.raises(TransportError, match="too much work"):
                await third.send(ATTACKED, b"second")
            with pytest.raises(TransportError, match="too much work"):
                await attacked.send(THIRD, b"a question")  # answers cost work, too
            assert await healthy.send(ATTACKED, b"meanwhile") == [b"meanwhile"]
            async with asyncio.timeout(60):
                while attacked._budget.exhausted(THIRD, time.monotonic()):
                    await asyncio.sleep(0.05)
            assert await third.send(ATTACKED, b"third") == [b"third"]
            attacked.charge(THIRD, 0.4)
            attacked.charge(THIRD, -0.4)
            assert await third.send(ATTACKED, b"fourth") == [b"fourth"]
        assert attacked.refusals == {("a3", "too much work"): 2}
        heard = [data for sender, data in scene.heard if sender == THIRD]
        assert heard == [b"first", b"third", b"fourth"]

    asyncio.run(main())


def test_announced_bytes_are_bounded_too():
    async def attack(scene):
        async with scene.channel(scene.network.identities[THIRD]) as channel:
            calls = []
            for _ in range(3):
                calls.append(channel.stream_unary(METHOD)(timeout=50))
                await calls[-1].write(chunk(b"x", MESSAGE_LIMIT))
                await asyncio.sleep(0.2)
            assert await status(calls[-1]) == "RESOURCE_EXHAUSTED"
            for call in calls[:-1]:
                call.cancel()

    async def main():
        scene = Scene(message=MESSAGE_LIMIT)
        attacked = scene.transport(ATTACKED, stream=scene.log)
        async with running(attacked, scene.deliver):
            await attack(scene)
        assert attacked.refusals["a3", "too many"] == 1

    asyncio.run(main())


# ----------------------------------------------------------------------- bad neighbours' messages


def forgeries(scene):
    """Envelopes that a3 may send and a2 must refuse, with what it says about them."""
    terms = scene.network.manifest.terms()
    ids = scene.network.identities
    message = MESSAGES[Ack](Random(1), terms)
    good = encode(message, terms)
    sealed = sign_message(good, THIRD, ids[THIRD].sign)
    yield sign_message(good, HEALTHY, ids[HEALTHY].sign), "came from"
    yield sign_message(good, HEALTHY, ids[THIRD].sign), "signature"
    yield sign_message(good, 99, ids[THIRD].sign), "agent number 99"
    yield sealed[:-1] + bytes([sealed[-1] ^ 1]), "signature"
    yield sealed[:-1], "envelope"
    yield b"\0" * 99, "envelope"
    other = LocalNetwork(4).manifest.terms()
    yield sign_message(encode(message, other), THIRD, ids[THIRD].sign), "same manifest"
    yield sign_message(b"\xff" * 50, THIRD, ids[THIRD].sign), "message"
    yield sign_message(b"", THIRD, ids[THIRD].sign), "network"


def test_forged_messages_are_refused_and_named():
    async def main():
        scene = Scene()
        terms = scene.network.manifest.terms()
        check = verifier(scene.network.manifest.pems())

        async def deliver(sender, data):
            signer, payload = open_message(data, terms, check)
            if signer != sender:
                raise WireError(f"signed by {terms.name(signer)}, came from {terms.name(sender)}")
            decode(payload, terms)
            return [b"taken"]

        attacked = scene.transport(ATTACKED, stream=scene.log)
        async with running(attacked, deliver), running(scene.transport(THIRD)) as third:
            own = sign_message(
                encode(MESSAGES[Ack](Random(1), terms), terms),
                THIRD,
                scene.network.identities[THIRD].sign,
            )
            assert await third.send(ATTACKED, own) == [b"taken"]
            for count, (forged, says) in enumerate(forgeries(scene), 1):
                with pytest.raises(TransportError, match=says):
                    await third.send(ATTACKED, forged)
                assert attacked.refusals == {("a3", "message"): count}
            assert await third.send(ATTACKED, own) == [b"taken"]

    asyncio.run(main())


# --------------------------------------------------------------------------------- the other side


def test_somebody_else_at_a_neighbours_address_gets_nothing():
    """A server with another key at a2's address: a1 does not speak to it."""

    async def main():
        scene = Scene()
        stranger = Identity.create("a2")
        pair = (stranger.key_pem, stranger.certificate_pem.encode())
        server = grpc.aio.server()
        called = []

        async def take(_, context):
            called.append(context.peer())
            return b""

        handler = grpc.stream_unary_rpc_method_handler(take)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {DELIVER: handler}),)
        )
        server.add_secure_port(scene.network.address(ATTACKED), grpc.ssl_server_credentials([pair]))
        await server.start()
        sender = scene.transport(HEALTHY, stream=scene.log)
        try:
            async with running(sender):
                with pytest.raises(TransportError, match="does not have the key of a2"):
                    await sender.send(ATTACKED, b"hello")
        finally:
            await server.stop(None)
        assert called == []
        assert sender.refusals == {("a2", "imposter"): 1}
        assert "refused" in scene.log.getvalue()

    asyncio.run(main())


def test_without_the_pinned_identity_there_is_no_start():
    scene = Scene()
    with pytest.raises(ConfigError, match=r'not the one that network\.toml pins for "a2"'):
        scene.transport(ATTACKED, identity=twin(scene.network.identities[ATTACKED]))


def test_a_taken_port_is_named():
    async def main():
        scene = Scene()
        async with running(scene.transport(ATTACKED)):
            with pytest.raises(TransportError, match=r"cannot listen on 127\.0\.0\.1:\d+"):
                await scene.transport(ATTACKED).start(scene.deliver)

    asyncio.run(main())


def test_only_neighbours_can_ask_for_health():
    async def ask(channel):
        health = health_pb2_grpc.HealthStub(channel)
        return await health.Check(health_pb2.HealthCheckRequest(service=SERVICE), timeout=10)

    async def main():
        scene = Scene()
        attacked = scene.transport(ATTACKED, stream=scene.log)
        async with running(attacked, scene.deliver):
            async with scene.channel(scene.network.identities[THIRD]) as channel:
                answer = await ask(channel)
                assert answer.status == health_pb2.HealthCheckResponse.SERVING
                health = health_pb2_grpc.HealthStub(channel)
                with pytest.raises(grpc.aio.AioRpcError, match="ask with Check"):
                    async for _ in health.Watch(health_pb2.HealthCheckRequest(), timeout=10):
                        pass
            async with scene.channel(scene.network.identities[OUTSIDE]) as channel:
                with pytest.raises(grpc.aio.AioRpcError):
                    await ask(channel)

    asyncio.run(main())


def test_a_certificate_alone_does_not_make_a_neighbour(monkeypatch):
    """The second lock: were a4 let through the handshake, it would still not be a2's neighbour."""
    roots = Pins.roots.fget

    async def attack(scene):
        async with scene.channel(scene.network.identities[OUTSIDE]) as channel:
            call = channel.stream_unary(METHOD)(iter([chunk(b"hello", 5)]), timeout=10)
            assert await status(call) == "PERMISSION_DENIED"

    scene = Scene()
    more = scene.network.identities[OUTSIDE].certificate_pem.encode()
    monkeypatch.setattr(Pins, "roots", property(lambda pins: roots(pins) + more))
    asyncio.run(scene.attack(attack, "unknown", "not a neighbour"))


def test_the_owner_of_a_connection_is_told_by_the_whole_certificate():
    network = LocalNetwork(4)
    pins = Pins(network.manifest, ATTACKED, network.identities[ATTACKED])

    def owner(*pems):
        return pins.owner({"x509_pem_cert": [pem.encode() for pem in pems]})

    pems = [identity.certificate_pem for identity in network.identities]
    assert [owner(pem) for pem in pems] == [HEALTHY, None, THIRD, None]
    assert owner(twin(network.identities[HEALTHY]).certificate_pem) is None
    renamed = Identity("somebody else", network.identities[HEALTHY].key)
    assert owner(renamed.certificate_pem) is None
    assert owner(pems[HEALTHY], pems[THIRD]) is None
    assert owner() is None
    assert owner("no certificate") is None
    assert pins.owner({}) is None

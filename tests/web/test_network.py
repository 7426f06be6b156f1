"""The page of a running network, over real agents."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.dashboard import Client
from tests.support.processes import Processes
from unweave.address import Address
from unweave.node.api.client import Operator
from unweave.node.api.sockets import short as short_path
from unweave.node.process import RESTART_FILE
from unweave.operations.cluster import Cluster
from unweave.report import report_of
from unweave.web.live import erasures, link
from unweave.web.live import network as network_module
from unweave.web.live.network import _LOOK, _SILENT, NetworkSource
from unweave.web.patches import merge
from unweave.web.server import PageServer

CODE = "abcde-fghjk-mnpqr-stuvw"
LIMIT = 120.0


class Page:
    """A page of a network, and its view."""

    def __init__(self, net: Processes) -> None:
        self.source = NetworkSource(net.root)
        self.server = PageServer(self.source, Address("127.0.0.1", 0), code=CODE)
        self.seen: list[Any] = []  # everything that a browser got
        self.view: Any = {}
        self.last = ""

    def __enter__(self) -> Page:
        self.server.start()
        self.client = Client(self.server)
        self.events = self.client.events()
        self.cookie = self.client.enter(CODE)
        return self

    def __exit__(self, *error: object) -> None:
        self.events.close()  # type: ignore[attr-defined]
        self.server.stop()

    def until(self, condition: Callable[[Any], object]) -> Any:
        end = time.monotonic() + LIMIT
        while not (self.view and condition(self.view)):
            assert time.monotonic() < end, json.dumps(self.view)[:4000]
            self.last, kind, body = next(self.events)
            self.seen.append(body)
            if kind == "snapshot":
                self.view = body
            elif kind == "change":
                merge(self.view, body)
        return self.view


def at_rest(view: Any) -> bool:
    return view["summary"]["state"] == "rest" and view["posterior"]["state"] == "complete"


@contextmanager
def network(root: Path, **how: Any) -> Iterator[Processes]:
    with Processes(root, **how) as net:
        net.start()
        net.rest()
        yield net


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    with network(tmp_path_factory.mktemp("plain") / "net", agents=4) as net:
        yield net


def test_a_network_at_rest_is_shown_without_its_sum(plain: Processes) -> None:
    with Page(plain) as page:
        view = page.until(at_rest)
        assert view["summary"]["agents"] == {"in": 4}
        assert view["token"]["state"] == "parked"
        assert view["token"]["visits"]
        assert view["waits"] == {}
        assert {one["state"] for one in view["agents"].values()} == {"in"}
        assert all(one["attested"] for one in view["agents"].values())
        (theta,) = view["posterior"]["parameters"]
        assert theta["mean"] == round(theta["mean"], 3)  # coarse: the sd is 0.05
        curves = page.client.get("/curves?name=theta").json["curves"]["theta"]
        assert [curve["label"] for curve in curves] == ["posterior", "prior"]
        assert page.client.get("/curves?name=other").status == 404
        assert page.client.get("/curves?name=theta&moment=m").status == 404
        details = page.client.get("/agents/a2").json
        assert details["influence"] > 0.0
        assert any("signed receipt" in one["text"] for one in details["receipts"])
        assert page.client.get("/agents/a9").status == 404
        told = json.dumps([page.seen, curves, details])
        assert plain.expected() not in told
        assert "units" not in told
        assert "digest" not in told


def test_an_audit_is_shown_and_no_agent_is_asked_for_its_status(
    plain: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    again = Cluster.again

    def counted(self: Cluster, name: str, do: str, **how: Any) -> Any:
        asked.append(do)
        return again(self, name, do, **how)

    monkeypatch.setattr(Cluster, "again", counted)
    with Page(plain) as page:
        version = page.until(at_rest)["posterior"]["version"]
        while asked:  # until the facts of all agents are those of the last look
            asked.clear()
            time.sleep(2 * _LOOK)
        with Operator(plain.folder("a1")) as agent:
            agent.ask("wake")
        page.until(lambda v: v["posterior"]["version"] != version and at_rest(v))
        assert asked == []
        with Operator(plain.folder("a1")) as agent:
            plain.append("a1", [1.0])
            agent.ask("learn")
        page.until(lambda v: asked)


def test_a_process_that_stands_still_is_noticed_when_others_need_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the first connection a line may be minutes late, so it is asked over a second one."""
    monkeypatch.setattr(link, "_SLACK", 0.2)
    net = Processes(tmp_path / "net", agents=3)
    source = NetworkSource(net.root)
    taken: list[str] = []

    def short(events: list[dict[str, Any]]) -> dict[str, Any]:
        log = {"run": "r", "number": 1, "visits": [], "events": events}
        return log | {"phase": "idle", "sent": 0, "facts": "f"}

    async def frozen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        follows = b"follow" in await reader.readuntil(b"\r\n\r\n")
        if follows or not taken:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        if not follows and not taken:
            writer.write(json.dumps({"changes": short([])}).encode() + b"\n")
        await reader.read()
        writer.close()

    async def story() -> None:
        down = asyncio.Event()

        def take(name: str, answer: object) -> None:
            taken.append(name)
            if answer is None:
                down.set()
            else:  # the neighbour tells
                event = {"at": 1.0, "level": "warning", "what": "a neighbour does not answer"}
                source._take("a1", short([event | {"facts": {"agent": name}}]))

        folder = net.folder("a2")
        followers = link.Followers({"a2": folder}, take, lambda: 1)
        source._doubt = followers.doubt
        with short_path(folder / "agent.sock") as where:
            server = await asyncio.start_unix_server(frozen, where)
        running = asyncio.create_task(followers.run())
        async with server, asyncio.timeout(link._WAIT / 4):
            try:
                await down.wait()
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())


def test_a_process_that_was_stopped_is_noticed_while_nobody_needs_it(tmp_path: Path) -> None:
    """At rest no agent tells for minutes that it is there, and none is asked: /proc tells."""
    net = Processes(tmp_path / "net", agents=3)
    source, doubted = NetworkSource(net.root), list[str]()
    source._doubt = doubted.append
    with subprocess.Popen(["sleep", "60"]) as stopped, subprocess.Popen(["sleep", "60"]) as runs:
        source._known = source._known._replace(
            statuses={"a1": {"pid": stopped.pid}, "a2": {"pid": runs.pid}, "a3": {}},
            shorts={name: {"phase": "idle"} for name in net.names},
        )
        try:
            source._find_stopped()
            assert not doubted
            stopped.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, stopped.pid, os.WSTOPPED)
            source._find_stopped()
            assert doubted == ["a1"]
        finally:
            for process in (stopped, runs):
                process.kill()


def test_details_ask_one_agent_once_for_all_viewers(
    plain: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []
    real = network_module.open_cluster

    def counted(folder: Path, *how: Any) -> Any:
        asked.append(folder)
        return real(folder, *how)

    with Page(plain) as page:
        page.until(at_rest)
        monkeypatch.setattr(network_module, "open_cluster", counted)
        monkeypatch.setattr(network_module, "_SHARED", 300.0)
        first, second = (page.client.get("/agents/a2").json for _ in range(2))
        assert first == second
        assert first["facts"]["Process"]
        assert asked == [plain.folder("a2")]


def test_who_looks_at_an_agent_that_stands_still_learns_it(
    plain: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At rest no other agent needs it, and its line may be a minute late."""
    monkeypatch.setattr(network_module, "LOOK", 0.5)
    monkeypatch.setattr(link, "_SLACK", 0.5)
    monkeypatch.setattr(network_module, "_SILENT", 0.5)
    monkeypatch.setattr(network_module, "_LOOK", 60.0)  # nothing but the page itself tells why
    with Page(plain) as page:
        page.until(at_rest)
        pid = plain.children["a2"].pid or 0
        plain.freeze("a2")
        try:
            details = page.client.get("/agents/a2").json
            assert details["influence_text"] == "Not known now: the agent does not answer."
            down = page.until(lambda v: v["agents"]["a2"]["state"] == "down" and v["waits"])
            (wait,) = (one for one in down["waits"].values() if one.get("agents") == ["a2"])
            assert wait["why"] == f"Its process is stopped: `kill -CONT {pid}` wakes it."
        finally:
            plain.thaw("a2")
    plain.rest()


def test_the_timeline_outlives_agents_and_pages(plain: Processes) -> None:
    with Page(plain) as page:
        view = page.until(lambda v: at_rest(v) and len(v["timeline"]) > 3)
        texts = [entry["text"] for entry in view["timeline"].values()]
        assert any("added their factors" in text for text in texts)
        os.kill(plain.children["a2"].pid or 0, signal.SIGKILL)
        down = page.until(lambda v: v["agents"]["a2"]["state"] == "down" and v["waits"])
        assert "Fix: start it with `unweave agent" in down["agents"]["a2"]["why"]
        (wait,) = (one for one in down["waits"].values() if one.get("agents") == ["a2"])
        assert wait["fix"].startswith("Start it with `unweave agent")
        assert any(
            entry["text"] == "a2 does not answer" and entry["level"] == "failure"
            for entry in down["timeline"].values()
        )
    plain.start("a2")
    plain.rest()
    with Page(plain) as page:
        made = page.until(at_rest)["agents"]["a1"]["posterior_at"]
    with Page(plain) as page:  # the agents run on: they tell it what the last page has heard, too
        view = page.until(at_rest)
        assert view["agents"]["a1"]["posterior_at"] == made
        did = page.client.get("/agents/a2").json["receipts"]
        assert any(one["text"] == "a2 started." for one in did)
        again = [entry["text"] for entry in view["timeline"].values()]
        assert len(again) == len({(one["at"], one["text"]) for one in view["timeline"].values()})
        assert again[: len(texts)] == texts
        assert "a2 does not answer" in again
        assert sum(text.endswith("added their factors") for text in again) == sum(
            text.endswith("added their factors") for text in texts
        )


def test_what_fails_once_does_not_end_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look, a full disk under the timeline, a full disk under a certificate: each is shown among
    what waits, with a remedy, until it is over."""
    kept = tmp_path / "net" / "dashboard"
    broken = {"look", "certificate"}
    write, look = erasures.write_atomic, NetworkSource._look

    def failing_write(path: Path, content: bytes) -> None:
        if "certificate" in broken:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, content)

    def failing_look(self: NetworkSource, agents: Cluster) -> Any:
        if "look" in broken:
            raise KeyError("a record: 17")
        return look(self, agents)

    monkeypatch.setattr(erasures, "write_atomic", failing_write)
    monkeypatch.setattr(NetworkSource, "_look", failing_look)
    with network(tmp_path / "net", agents=3) as net, Page(net) as page:
        kept.write_text("")  # a file where the folder of the timeline should be
        wait = page.until(lambda v: "look" in v["waits"])["waits"]["look"]
        assert "KeyError" in wait["why"]
        assert "17" not in str(wait)
        assert wait["fix"]
        broken.remove("look")
        page.until(lambda v: at_rest(v) and "look" not in v["waits"])
        request = page.client.post(
            "/erasures", {"agent": "a1", "keys": ["a1-0"]}, cookie=page.cookie
        ).json["request"]
        waits = page.until(
            lambda v: "certificate" in v["waits"] and "timeline" in v["waits"] and at_rest(v)
        )["waits"]
        assert "No space left" in waits["certificate"]["why"]
        assert waits["certificate"]["fix"]
        assert waits["timeline"]["fix"]
        assert page.view["erasures"][request]["certificate"]  # it can be downloaded
        assert not list(net.root.glob("certificate-a1-*.json"))
        broken.clear()
        kept.unlink()
        page.until(lambda v: not v["waits"].keys() & {"certificate", "timeline"})
        assert list(net.root.glob("certificate-a1-*.json"))
        assert (kept / "timeline.json").exists()


def test_a_process_that_is_replaced_does_not_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an erasure every agent replaces its process. Silence is told after some seconds."""
    source = NetworkSource(Processes(tmp_path / "net", agents=3).root)
    source.view()
    answer = {"run": "r", "number": 0, "events": [], "visits": [], "sent": 0, "phase": "idle"}

    def told() -> list[str]:
        source._find_silent()
        found, source._events = [event["what"] for _, _, event in source._events], []
        return found

    source._take("a1", answer)
    source._take("a1", None)
    assert told() == []
    source._take("a1", answer | {"run": "s"})
    assert told() == []
    source._take("a1", None)
    source._silent["a1"] -= 2 * _SILENT
    restarts = source._folders["a1"] / RESTART_FILE
    restarts.touch()  # the old process says so: it may take long
    asked: list[Cluster] = []
    monkeypatch.setattr(network_module, "stall_report", lambda agents: asked.append(agents) or "a1")
    assert told() == []
    source._silent.clear()
    assert source._stall(cast("Cluster", None)) == ""
    assert asked == []
    restarts.unlink()
    assert source._stall(cast("Cluster", None)) == "a1"
    source._take("a1", None)
    source._silent["a1"] -= 2 * _SILENT
    source._take("a1", None)  # asked again: it is silent since the first time
    assert told() == ["does not answer"]
    assert source._known.shorts["a1"] is None
    source._take("a1", answer)
    assert told() == ["answers"]


def test_an_agent_is_erased_from_the_page(plain: Processes) -> None:
    before = plain.expected()
    with Page(plain) as page:
        page.until(at_rest)
        first = page.last
        shown = page.client.post("/erasures/preview", {"agent": "a3"}).json
        assert shown["what"] == "Erase everything of a3"
        assert shown["shown"]
        assert page.client.post("/erasures", {"agent": "a3"}).status == 401
        unknown = page.client.post("/erasures", {"agent": "a9"}, cookie=page.cookie)
        assert unknown.status == 404
        keys = {"agent": "a3", "keys": ["no such key"]}
        refused = page.client.post("/erasures", keys, cookie=page.cookie)
        assert refused.status == 400
        assert "keys are not in the data" in refused.json["error"]["message"]
        asked = page.client.post("/erasures", {"agent": "a3"}, cookie=page.cookie)
        request = asked.json["request"]
        view = page.until(
            lambda v: (
                v["erasures"].get(request, {}).get("certificate")
                and at_rest(v)
                and v["agents"]["a3"]["state"] == "erased"
                and "change" in v["erasures"][request]
                and list(plain.root.glob("change-a3-*.json"))
            )
        )
        plain.out.add("a3")
        erasure = view["erasures"][request]
        assert erasure["kind"] == "exact"
        assert erasure["change"]
        assert all(x == float(f"{x:.2g}") for _, *xs in erasure["change"] for x in xs)
        (kept,) = plain.root.glob("change-a3-*.json")  # as by `unweave forget`
        assert json.loads(kept.read_bytes()) == {
            "request": request,
            "changes": {name: [mean, sd] for name, mean, sd in erasure["change"]},
        }
        assert b"Not known here" not in page.client.get("/report").body
        assert "a3" not in view["may_erase"]
        assert before not in json.dumps(page.seen)
        file = page.client.get(f"/certificates/{request}")
        assert file.headers["content-disposition"].startswith("attachment")
        (stored,) = plain.root.glob("certificate-a3-*.json")
        assert stored.read_bytes() == file.body
        found = page.client.post("/verify", file.body).json
        assert found["valid"]
        assert found["erasures"][0]["agent"] == "a3"
        assert found["proves"]
        assert any("Physical deletion" in text for text in found["does_not_prove"])
        altered = json.loads(file.body)
        altered["closing"]["payload"] = altered["attestation"]["payload"]
        broken = page.client.post("/verify", altered).json
        assert not broken["valid"]
        assert "proves nothing" in broken["text"]
        report = page.client.get("/report")
        assert report.status == 200
        assert b"a3" in report.body
        # Messages from before the erasure are not kept for viewers that come back.
        _, kind, _ = next(page.client.events(first))
        assert kind == "snapshot"


def test_nothing_about_single_agents_in_private_rounds(tmp_path: Path) -> None:
    with network(tmp_path / "net", agents=4, privacy="masked") as net, Page(net) as page:
        view = page.until(at_rest)
        assert view["privacy"] == "masked"
        assert not any("revision" in one for one in view["agents"].values())
        details = page.client.get("/agents/a2").json
        assert "influence" not in details
        assert "private rounds" in details["influence_text"]
        assert "Revision of its factor" not in details["facts"]
        asked = page.client.post("/erasures", {"agent": "a1"}, cookie=page.cookie)
        request = asked.json["request"]
        view = page.until(
            lambda v: v["erasures"].get(request, {}).get("certificate") and at_rest(v)
        )
        assert "change" not in view["erasures"][request]
        assert view["series"]["progress"]["points"] == []


def test_a_request_that_waits_for_a_batch_is_told_everywhere(tmp_path: Path) -> None:
    publish = {"records": 9, "agents": 2, "at_most": "30d"}
    how: dict[str, Any] = {"agents": 4, "rows": 15, "privacy": "masked", "publish": publish}
    with network(tmp_path / "net", **how) as net, Page(net) as page:
        page.until(at_rest)
        wish: dict[str, Any] = {"agent": "a2", "keys": ["a2-0"]}
        preview = page.client.post("/erasures/preview", wish, cookie=page.cookie).json
        wait = "It waits until 9 records of 2 agents have changed, or 30d have passed."
        assert preview["steps"][1] == wait
        at_once = page.client.post("/erasures/preview", wish | {"now": True}, cookie=page.cookie)
        assert wait not in at_once.json["steps"]
        assert "--now" not in at_once.json["shown"][0]
        lost = wish | {"keys": ["a2-0", "none"]}
        for path in ("/erasures/preview", "/erasures"):
            unknown = page.client.post(path, lost, cookie=page.cookie)
            assert unknown.json["error"]["message"].startswith(
                "a2: 1 of 2 keys are not in the data"
            )
            assert "“Keys that do not exist are no error”" in unknown.json["error"]["fix"]
        found = page.client.post(
            "/erasures/preview", lost | {"missing_ok": True}, cookie=page.cookie
        )
        assert found.json["steps"][-1].startswith("The data do not have 1 key of these")
        assert not page.view["erasures"]  # nothing is requested by a preview
        page.client.post("/erasures", wish, cookie=page.cookie)
        view = page.until(lambda v: v["waits"].get("batches 0") and at_rest(v))
        assert view["summary"]["text"].endswith("Changes wait for others.")
        told = "The erasure of 1 record of a2 was requested: it waits"
        page.until(lambda v: [one["text"] for one in v["timeline"].values()].count(told) == 1)
        again = page.client.post("/erasures/preview", wish, cookie=page.cookie).json
        assert again["steps"][-1].startswith("An earlier request names 1 record of these")


def test_reports_for_many_viewers_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else whoever can read the page could keep all threads busy, and no erasure would get one."""
    made, may_end = [], threading.Event()

    def slow(folder: Path) -> bytes:
        made.append(folder)
        assert may_end.wait(LIMIT)
        return b"report"

    monkeypatch.setattr(network_module, "html_of", slow)
    net = Processes(tmp_path / "net", agents=3)

    async def run() -> None:
        source = NetworkSource(net.root)
        first, *others = (asyncio.create_task(source.report()) for _ in range(20))
        while not made:
            await asyncio.sleep(0.01)
        first.cancel()  # a viewer that goes away
        may_end.set()
        assert await asyncio.gather(*others) == [b"report"] * 19
        assert len(made) == 1
        await source.report()
        assert len(made) == 2

    asyncio.run(run())


def test_a_stopped_network_says_how_to_start_it(tmp_path: Path) -> None:
    net = Processes(tmp_path / "net", agents=3)
    with Page(net) as page:
        view = page.until(lambda v: v["summary"]["state"] == "down" and len(v["waits"]) >= 3)
        assert "unweave up" in view["summary"]["text"]
        assert {one["state"] for one in view["agents"].values()} == {"down"}
        for path in ("/erasures/preview", "/erasures"):
            refused = page.client.post(path, {"agent": "a1"}, cookie=page.cookie)
            assert refused.status == 409
            assert "does not run" in refused.json["error"]["message"]
            assert "“The agent is gone for good" in refused.json["error"]["fix"]
        assert page.client.post("/controls", {"do": "play"}, cookie=page.cookie).status == 409


@pytest.mark.slow
def test_votes_remove_an_agent_that_is_gone(tmp_path: Path) -> None:
    with network(tmp_path / "net", agents=4) as net, Page(net) as page:
        page.until(at_rest)
        running = page.client.post(
            "/erasures", {"agent": "a4", "departed": True}, cookie=page.cookie
        )
        assert running.status == 409  # it answers
        os.kill(net.children["a4"].pid or 0, signal.SIGKILL)
        page.until(lambda v: v["agents"]["a4"]["state"] == "down")
        asked = page.client.post("/erasures", {"agent": "a4", "departed": True}, cookie=page.cookie)
        request = asked.json["request"]
        view = page.until(lambda v: v["erasures"].get(request, {}).get("certificate"))
        assert page.until(at_rest)["agents"]["a4"]["state"] == "departed"
        assert view["erasures"][request]["scope"] == "everything"
        told = [entry["text"] for entry in page.view["timeline"].values()]
        assert any(one.startswith("Certified") and one.endswith(" of a4") for one in told)
        (erasure,) = report_of(net.root).erasures
        assert erasure.by == "quorum"
        assert erasure.requested
        assert erasure.carried_out
        assert erasure.certified

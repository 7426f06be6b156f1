"""The timeline: what happened, one sentence per line, and what repeats folded into one line.

Every agent tells when it learns of something. The first one makes a line; what the others tell of
the same thing changes nothing, or adds their names. If an agent tells it again, it happened again:
the line counts. A line that names several agents does not count what happened to one of them, and
one that counts takes no further names. After a while without news, or many other lines, a new line
begins.

A network's timeline is kept in a file, with the last number that each agent told: so it outlives
the agents' processes and the page's. It holds sentences only.
"""

from __future__ import annotations

import contextlib
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from unweave.bounded import load_json, read_bytes
from unweave.json_form import as_json
from unweave.node.storage.atomic import unwritable, write_atomic
from unweave.text import clip, visible
from unweave.web.sentences import OPENED, Level, reason, sentence
from unweave.web.sentences import names as named
from unweave.web.view import Entry

__all__ = ["KEPT", "Timeline"]

KEPT = 500  # lines
_OPEN = 16  # the newest lines that may still be folded into
_SAME = 2.0  # seconds between two events of one cause, at most
_WINDOW = 120.0  # seconds without news, after which a line is closed
_NAMES = 8
_LONGEST = 400  # characters
_MOST_BYTES = 4 << 20

Patch = dict[str, Entry | None]


@dataclass
class _Line:
    """A line that can still be folded into."""

    number: int
    key: str
    many: str
    tellers: set[str]
    until: float
    times: int = 1
    agents: int = 0
    first: list[str] = field(default_factory=list)  # of the agents
    named: set[str] = field(default_factory=set)  # all of them

    def takes(self, teller: str, alone: bool) -> bool:
        """Whether the same event of this agent keeps the line true, if it names agents."""
        if teller in self.tellers:
            return self.agents == 1 or not alone
        return self.times == 1 or teller in self.named


class _File(TypedDict):
    """The file: the network's id, lines by number, and the process and number of what each agent
    has told."""

    network: str
    entries: dict[str, Entry]
    told: dict[str, tuple[str, int]]


_file = TypeAdapter(_File)


class Timeline:
    """Makes patches for `view["timeline"]`. `path`: the file that keeps it, if any; that of another
    `network` in the same folder is replaced."""

    def __init__(self, path: Path | None = None, network: str = "") -> None:
        self.entries: dict[str, Entry] = {}
        self.told: dict[str, tuple[str, int]] = {}
        self._path, self._network = path, network
        self._number = 0
        self._open: deque[_Line] = deque(maxlen=_OPEN)
        self._reasons: dict[str, tuple[float, str]] = {}  # agent → when and why it opened an epoch
        self._changed = False
        if path is not None:
            self._load(path)

    def tell(
        self, agent: str, at: float, what: str, facts: dict[str, Any], level: str = "info"
    ) -> Patch:
        """An event that `agent` tells."""
        if what == OPENED and (why := reason(facts)):
            return self._explain(agent, at, why)
        found = sentence(agent, what, facts, level)
        if found is None:
            return {}
        if found.key.startswith("epoch ") and found.agent in self._reasons:
            told, why = self._reasons[found.agent]
            if abs(told - at) <= _SAME:
                del self._reasons[found.agent]
                found = found._replace(text=f"{found.text} ({why})")
        group = [agent] if found.many else []
        return self._add(
            at,
            found.text,
            found.level,
            found.key,
            agent,
            found.agent,
            found.many,
            group,
            found.alone,
        )

    def _explain(self, agent: str, at: float, why: str) -> Patch:
        """Why an agent has opened an epoch: a part of the line that tells the epoch, which comes
        before it or after it."""
        for line in reversed(self._open):
            entry = self.entries.get(str(line.number))
            if entry is None or not line.key.startswith("epoch "):
                continue
            if entry.get("agent") == agent and abs(at - line.until) <= _SAME:
                text = clip(visible(f"{entry['text']} ({why})"), _LONGEST)
                explained: Entry = {**entry, "text": text}
                self.entries[str(line.number)] = explained
                self._changed = True
                return {str(line.number): explained}
        self._reasons[agent] = (at, why)
        return {}

    def say(self, at: float, text: str, level: Level = "info", agent: str | None = None) -> Patch:
        """A sentence of the page's own; the same one again counts."""
        return self._add(at, text, level, f"say {text}", "", agent, "", [])

    def _add(
        self,
        at: float,
        text: str,
        level: Level,
        key: str,
        teller: str,
        agent: str | None,
        many: str,
        group: list[str],
        alone: bool = False,
    ) -> Patch:
        self._changed = True
        for line in reversed(self._open):
            if line.key == key and abs(at - line.until) <= _WINDOW:
                if group and not line.takes(teller, alone):
                    break
                return self._fold(line, at, teller, group)
        self._number += 1
        line = _Line(self._number, key, many, {teller}, at, agents=len(group), first=group)
        line.named |= set(group)
        self._open.append(line)
        entry: Entry = {
            "at": at,
            "text": clip(visible(text.replace("{who}", named(group, len(group)))), _LONGEST),
            "level": level,
        }
        if agent is not None:
            entry["agent"] = agent
        number = str(self._number)
        self.entries[number] = entry
        patch: Patch = {number: entry}
        if len(self.entries) > KEPT:
            oldest = next(iter(self.entries))
            del self.entries[oldest]
            patch[oldest] = None
        return patch

    def _fold(self, line: _Line, at: float, teller: str, group: list[str]) -> Patch:
        number = str(line.number)
        entry = self.entries.get(number)
        if entry is None:
            return {}
        again = teller in line.tellers
        if again:
            line.times += 1
            line.tellers = {teller}
        else:
            line.tellers.add(teller)
        line.until = max(line.until, at)
        changed = dict(entry)
        if group and not again and line.times == 1:
            line.agents += 1
            line.named |= set(group)
            if len(line.first) < _NAMES:
                line.first = [*line.first, *group]
            who = named(line.first, line.agents)
            changed["text"] = clip(visible(line.many.replace("{who}", who)), _LONGEST)
            changed.pop("agent", None)
            changed["until"] = line.until
        elif not again:
            return {}
        if line.times > 1:
            changed["times"], changed["until"] = line.times, line.until
        folded: Entry = changed  # type: ignore[assignment]
        self.entries[number] = folded
        gone: Any = {key: None for key in entry if key not in folded}
        return {number: folded | gone}

    # ---------------------------------------------------------------------------------- the file

    def _load(self, path: Path) -> None:
        """What an earlier page kept; a file that cannot be read is replaced by the next one."""
        with contextlib.suppress(OSError, ValueError):
            try:
                kept = _file.validate_python(load_json(read_bytes(path, _MOST_BYTES)))
            except ValidationError:
                return
            if kept["network"] != self._network:
                return
            order = sorted(kept["entries"], key=int)[-KEPT:]
            self.entries = {number: kept["entries"][number] for number in order}
            self.told = kept["told"]
            self._number = int(order[-1]) if order else 0

    def save(self) -> None:
        """Write the file if anything has changed."""
        content = self.unsaved()
        if content is not None:
            self.write(content)

    def unsaved(self) -> bytes | None:
        """The content of the file, unless the file has it."""
        if self._path is None or not self._changed:
            return None
        self._changed = False
        kept: _File = {"network": self._network, "entries": self.entries, "told": self.told}
        return as_json(kept).encode()

    def write(self, content: bytes) -> None:
        """May run in a thread. Raises `StoreError`; the next `unsaved` is then not None."""
        assert self._path is not None
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            write_atomic(self._path, content)
        except OSError as error:
            self._changed = True
            raise unwritable(self._path, error) from None

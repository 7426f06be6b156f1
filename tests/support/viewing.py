"""A feed that checks every view: it applies the patches as the page does, and validates."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter

from unweave.web.patches import merge
from unweave.web.view import View

VIEW: TypeAdapter[View] = TypeAdapter(View)


def check(view: Any) -> None:
    """The view has the form of `View`, and no key that `View` does not have."""
    plain = VIEW.dump_python(VIEW.validate_python(copy.deepcopy(view)))
    assert plain.keys() == view.keys()
    for key in ("summary", "token", "posterior", "controls"):
        assert plain.get(key, {}).keys() == view.get(key, {}).keys(), key
    names = set(view["graph"]["names"])
    assert view["agents"].keys() == names
    for name, agent in view["agents"].items():
        assert view["graph"]["names"][agent["index"]] == name
    assert sum(view["summary"]["agents"].values()) == len(names)
    assert len(view["timeline"]) <= 500


class CheckedFeed:
    """What a source writes to, with one viewer."""

    def __init__(self, source: Any) -> None:
        self.view: dict[str, Any] = copy.deepcopy(source.view())
        self.viewers = 1
        self.patches: list[dict[str, Any]] = []
        check(self.view)

    def change(self, patch: dict[str, Any]) -> None:
        self.patches.append(copy.deepcopy(patch))
        merge(self.view, patch)
        check(self.view)

    def points(self, new: dict[str, list[tuple[float, float]]]) -> None:
        for name, points in new.items():
            series = self.view["series"][name]
            series["points"] = [*series["points"], *points]
        check(self.view)


def played(source: Any, script: Callable[[CheckedFeed], Any]) -> CheckedFeed:
    """Run the source while `script` drives it."""
    feed = CheckedFeed(source)

    async def main() -> None:
        run = asyncio.create_task(source.run(feed))
        await asyncio.sleep(0)
        try:
            await script(feed)
        finally:
            run.cancel()
            with_error = await asyncio.gather(run, return_exceptions=True)
        for error in with_error:
            if not isinstance(error, asyncio.CancelledError) and error is not None:
                raise error

    asyncio.run(main())
    return feed


async def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)

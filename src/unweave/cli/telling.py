"""Progress of a waiting command: one line that is updated, or one line per change in a pipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from unweave.cli.common import errors, progress

__all__ = ["telling"]


@contextmanager
def telling(first: str, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Yields a function that shows a progress text on standard error."""
    if quiet:
        yield lambda text: None
    elif errors.is_terminal:
        with progress(counted=False) as bar:
            task = bar.add_task(first, total=None)
            yield lambda text: bar.update(task, description=text)
    else:
        last = ""

        def tell(text: str) -> None:
            nonlocal last
            if text != last:
                last = text
                errors.print(text, soft_wrap=True)

        yield tell

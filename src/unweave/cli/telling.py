"""How far a command is that waits: one line that changes, or a line per change in a pipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from unweave.cli.common import errors, progress

__all__ = ["telling"]


@contextmanager
def telling(first: str, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Yields what tells the news, on standard error."""
    if quiet:
        yield lambda text: None
    elif errors.is_terminal:
        with progress(counted=False) as bar:
            task = bar.add_task(first, total=None)
            yield lambda text: bar.update(task, description=text)
    else:
        said = ""

        def tell(text: str) -> None:
            nonlocal said
            if text != said:
                said = text
                errors.print(text, soft_wrap=True)

        yield tell

"""Show the progress of long work: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int, str], None]
"""Called with the number of steps since the last call and a note to show beside the bar."""
INTERVAL = 5.0
"""Seconds between lines; shorter work prints none."""
TELL = 1.0
"""Seconds between reports of a worker to the process that shows the progress."""


def watched() -> bool:
    """Whether bars can be drawn: stderr is a terminal, and rich is installed."""
    return sys.stderr is not None and sys.stderr.isatty() and importlib.util.find_spec("rich") is not None


class Regularly:
    """A timer; calling it returns True at most once in so many seconds, and not before they have passed once."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self._last = seconds, time.monotonic()

    def __call__(self) -> bool:
        now = time.monotonic()
        if now - self._last < self.seconds:
            return False
        self._last = now
        return True


class Lines:
    """Prints a line to stderr, for logs, and drops those that come within ``INTERVAL`` seconds of the last."""

    def __init__(self) -> None:
        self._due = Regularly(INTERVAL)

    def __call__(self, text: Callable[[], str]) -> None:
        if self._due() and sys.stderr is not None:
            print(text(), file=sys.stderr, flush=True)


@contextmanager
def bar(title: str, total: int | None, show: bool | None = None, transient: bool = False) -> Iterator[Advance]:
    """Context manager: a progress bar on stderr with the time that is left, or plain lines.

    Args:
        title: shown before the bar.
        total: number of steps; None if it is not known.
        show: True for a bar; None for a bar where ``watched()``, else lines; False for nothing.
        transient: whether the bar is erased at the end.
    """
    if show is None and not watched():
        lines, done = Lines(), 0

        def advance(steps: int, note: str) -> None:
            nonlocal done
            done += steps
            lines(lambda: f"{title}: {done}{'' if total is None else f' of {total}'} {note}".rstrip())

        yield advance
        return
    if show is False:
        yield lambda steps, note: None
        return
    from racecar.support.extras import need

    rich, console = need("rich.progress", "inspect"), need("rich.console", "inspect")
    columns = (
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TimeRemainingColumn(),
        rich.TextColumn("{task.fields[note]}", markup=False),
    )
    with rich.Progress(*columns, console=console.Console(stderr=True), transient=transient) as progress:
        task = progress.add_task(title, total=total, note="")
        yield lambda steps, note: progress.update(task, advance=steps, note=note)

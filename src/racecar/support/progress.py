"""Progress of long work: a bar on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int, str], None]
"""(steps done since the last call, what to show beside the bar) → None."""
INTERVAL = 5.0
"""Seconds between lines: work that is shorter says nothing."""
TELL = 1.0
"""Seconds between what a worker tells the one that shows it."""


def watched() -> bool:
    """Whether somebody watches a terminal on which bars can be drawn."""
    return sys.stderr is not None and sys.stderr.isatty() and importlib.util.find_spec("rich") is not None


class Regularly:
    """True at most once in so many seconds, for the first time when they have passed."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self._last = seconds, time.monotonic()

    def __call__(self) -> bool:
        now = time.monotonic()
        if now - self._last < self.seconds:
            return False
        self._last = now
        return True


class Lines:
    """Prints what it is given on stderr, at most once in ``INTERVAL`` seconds: for logs."""

    def __init__(self) -> None:
        self._due = Regularly(INTERVAL)

    def __call__(self, text: Callable[[], str]) -> None:
        if self._due() and sys.stderr is not None:
            print(text(), file=sys.stderr, flush=True)


@contextmanager
def bar(title: str, total: int | None, show: bool | None = None, transient: bool = False) -> Iterator[Advance]:
    """A progress bar with the time that is left, on stderr; plain lines where there is no terminal for it.

    Args:
        title: what is going on.
        total: number of steps, None if it is not known.
        show: None shows a bar on a terminal if rich is installed, else lines; False shows nothing.
        transient: the bar goes away at the end.
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

"""Progress of long work, for people who watch a terminal."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int, str], None]
"""(steps done since the last call, what to show beside the bar) → None."""


@contextmanager
def bar(title: str, total: int | None, show: bool | None = None) -> Iterator[Advance]:
    """A progress bar with the time that is left, on stderr.

    Args:
        title: what is going on.
        total: number of steps, None if it is not known.
        show: None shows it on a terminal if rich is installed.
    """
    if show is None:
        show = sys.stderr is not None and sys.stderr.isatty() and importlib.util.find_spec("rich") is not None
    if not show:
        yield lambda steps, note: None
        return
    from racecar.extras import need

    rich, console = need("rich.progress", "inspect"), need("rich.console", "inspect")
    columns = (
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TimeRemainingColumn(),
        rich.TextColumn("{task.fields[note]}", markup=False),
    )
    with rich.Progress(*columns, console=console.Console(stderr=True)) as progress:
        task = progress.add_task(title, total=total, note="")
        yield lambda steps, note: progress.update(task, advance=steps, note=note)

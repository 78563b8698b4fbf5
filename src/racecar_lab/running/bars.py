"""How far an engine is: bars on a terminal, now and then a line elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from racecar.support.extras import need
from racecar.support.progress import Lines, watched
from racecar_lab.running.engines.base import Progress


@contextmanager
def bars(stages: int, show: bool | None = None) -> Iterator[Progress]:
    """A bar for all stages, and one for each that is being trained.

    Args:
        stages: how many there are.
        show: None shows bars on a terminal, and elsewhere lines; False shows nothing.
    """
    if show is False:
        yield lambda *message: None
    elif show is None and not watched():
        yield _lines(stages)
    else:
        with _bars(stages) as progress:
            yield progress


def _lines(stages: int) -> Progress:
    """How many stages are done, and the one that was heard of last."""
    lines, finished = Lines(), 0

    def progress(job: str, stage: str, done: int, total: int, note: str) -> None:
        nonlocal finished
        finished += done == -1
        now = f"; {job} {stage}: {done} of {total} steps" if done >= 0 else ""
        lines(lambda: f"{finished} of {stages} stages{now}" + (f", {note}" if note else ""))

    return progress


@contextmanager
def _bars(stages: int) -> Iterator[Progress]:
    rich, console = need("rich.progress", "lab"), need("rich.console", "lab")
    columns = (
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(bar_width=24),
        rich.MofNCompleteColumn(),
        rich.TimeRemainingColumn(),
        rich.TextColumn("{task.fields[note]}", markup=False),
    )
    with rich.Progress(*columns, console=console.Console(stderr=True)) as progress:
        overall = progress.add_task("all stages", total=stages, note="")
        open_: dict[tuple[str, str], int] = {}

        def show_progress(job: str, stage: str, done: int, total: int, note: str) -> None:
            key = (job, stage)
            if done < 0:
                if done == -1:
                    progress.advance(overall)
                if key in open_:
                    progress.remove_task(open_.pop(key))
                return
            if key not in open_:
                open_[key] = progress.add_task(f"{job} {stage}", total=total, note="")
            progress.update(open_[key], completed=done, **({"note": note} if note else {}))

        yield show_progress

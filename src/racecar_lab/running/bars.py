"""Shows the progress of an engine: bars on a terminal; elsewhere a line now and then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from racecar.support.extras import need
from racecar.support.progress import Lines, watched
from racecar_lab.running.engines.base import Progress


@contextmanager
def bars(stages: int, show: bool | None = None) -> Iterator[Progress]:
    """Show a progress bar for all stages together, and one for each stage that is being trained. Yields the function
    that the engine calls to report progress.

    Args:
        stages: number of stages.
        show: None shows bars on a terminal, and lines elsewhere; False shows nothing.
    """
    if show is False:
        yield lambda *message: None
    elif show is None and not watched():
        yield _lines(stages)
    else:
        with _bars(stages) as progress:
            yield progress


def _lines(stages: int) -> Progress:
    """A function that shows progress as lines: the number of finished stages, and the last stage that reported."""
    lines, finished = Lines(), 0

    def progress(job: str, stage: str, done: int, total: int, note: str) -> None:
        nonlocal finished
        finished += done == -1
        latest = f"; {job} {stage}: {done} of {total} steps" if done >= 0 else ""
        lines(lambda: f"{finished} of {stages} stages{latest}" + (f", {note}" if note else ""))

    return progress


@contextmanager
def _bars(stages: int) -> Iterator[Progress]:
    """Show progress as bars of rich, on standard error. Yields the function that the engine calls to report
    progress."""
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
        stage_bars: dict[tuple[str, str], int] = {}

        def show_progress(job: str, stage: str, done: int, total: int, note: str) -> None:
            key = (job, stage)
            if done < 0:
                if done == -1:
                    progress.advance(overall)
                if key in stage_bars:
                    progress.remove_task(stage_bars.pop(key))
                return
            if key not in stage_bars:
                stage_bars[key] = progress.add_task(f"{job} {stage}", total=total, note="")
            progress.update(stage_bars[key], completed=done, **({"note": note} if note else {}))

        yield show_progress

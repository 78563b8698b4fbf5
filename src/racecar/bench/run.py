"""Many models: their kinds of steps compiled side by side, one model measured after the other."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing.connection import wait
from typing import Any

from racecar.bench.kinds import Kind
from racecar.bench.measure import Work, describe, measure, units
from racecar.bench.remote import Remote
from racecar.bench.workload import Circumstances, Open
from racecar.support.progress import bar

Tell = Callable[[str, int, str], None]
"""(model, units of work done, what was done)."""

Records = list[dict[str, Any]]


def run(
    names: Sequence[str],
    open_model: Open,
    how: Circumstances,
    kinds: Sequence[Kind],
    rounds: int,
    jobs: int = 1,
    keep: Callable[[Records], None] = lambda records: None,
) -> Records:
    """Measure models.

    Args:
        names: of the models.
        open_model: from a name to a model and its inputs.
        how: device, precision and so on.
        kinds: the kinds of steps.
        rounds: timed rounds.
        jobs: kinds of steps that are compiled at once, each in a process of its own; 1: all in this one. Timing begins
            when all are compiled, and has the machine for itself.
        keep: given the records so far whenever a model is measured.

    Returns:
        The models' parts of the record, in the order of the names; a model that failed has an "error" alone.
    """
    records: Records = []
    with progress(len(names) * units(kinds, rounds)) as tell:
        if jobs <= 1:
            for name in names:
                records.append(_alone(name, open_model, how, kinds, rounds, tell))
                keep(records)
            return records
        remotes = [Remote(name, open_model, how, group) for group in groups(kinds) for name in names]
        try:
            _prepare(remotes, jobs, tell)
            for name in names:
                records.append(_together(name, [one for one in remotes if one.name == name], kinds, rounds, tell))
                keep(records)
        finally:
            for remote in remotes:
                remote.stop()
    return records


def groups(kinds: Sequence[Kind]) -> list[list[Kind]]:
    """Kinds that differ in ``every`` alone share what is compiled, and so a process."""
    found: dict[Kind, list[Kind]] = {}
    for kind in kinds:
        found.setdefault(replace(kind, every=1), []).append(kind)
    return list(found.values())


def _alone(
    name: str, open_model: Open, how: Circumstances, kinds: Sequence[Kind], rounds: int, tell: Tell
) -> dict[str, Any]:
    work = None
    try:
        work = Work(name, open_model, how, kinds, lambda done, note: tell(name, done, note))
        work.prepare()
        return measure(work, [work], kinds, rounds, work.say)
    except Exception as error:
        return {"model": name, "error": describe(error)}
    finally:
        if work is not None:
            work.close()


def _prepare(remotes: Sequence[Remote], jobs: int, tell: Tell) -> None:
    waiting = list(remotes)
    working: dict[Any, Remote] = {}
    threads = max(1, (os.cpu_count() or 1) // jobs)
    while waiting or working:
        while waiting and len(working) < jobs:
            remote = waiting.pop(0)
            working[remote.start(threads)] = remote
        for connection in wait(list(working)):
            remote = working[connection]
            if not remote.hear(partial(tell, remote.name)):
                del working[connection]


def _together(name: str, remotes: Sequence[Remote], kinds: Sequence[Kind], rounds: int, tell: Tell) -> dict[str, Any]:
    try:
        opened = [remote for remote in remotes if remote.about is not None]
        if not opened:
            return {"model": name, "error": remotes[0].error}
        counted = next((remote for remote in opened if remote.flops is not None), opened[0])
        return measure(counted, remotes, kinds, rounds, lambda done, note: tell(name, done, note))
    except Exception as error:
        return {"model": name, "error": describe(error)}
    finally:
        for remote in remotes:  # the next model needs the memory
            remote.stop()


@contextmanager
def progress(total: int) -> Iterator[Tell]:
    """A bar on a terminal, else a line for each kind of step that is ready."""
    with bar("bench", total) as advance:

        def tell(name: str, done: int, note: str) -> None:
            advance(done, f"{name}: {note}")
            if not sys.stderr.isatty() and not note.startswith("round "):
                print(f"{name}: {note}", file=sys.stderr, flush=True)

        yield tell

"""Many models: compiled side by side, measured one after the other."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from racecar.bench.models import Open
from racecar.bench.steps import Kind
from racecar.bench.subject import Circumstances
from racecar.bench.work import Say, Work, describe, units
from racecar.progress import bar

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
        jobs: models that are compiled at once, each in a process of its own. Where there are more jobs than models,
            their kinds of steps are compiled side by side first, for the compiler's cache on disk. Timing begins when
            all are compiled, and has the machine for itself.
        keep: given the records so far whenever a model is measured.

    Returns:
        The models' parts of the record, in the order of the names; a model that failed has an "error" alone.
    """
    if how.compile and jobs > len(names):
        _compile_ahead(names, open_model, how, kinds, jobs)
    with progress(len(names) * units(kinds, rounds)) as tell:
        if jobs <= 1 or len(names) == 1:
            records: Records = []
            for name in names:
                records.append(_alone(name, open_model, how, kinds, rounds, tell))
                keep(records)
            return records
        return _together(names, (open_model, how, kinds, rounds), jobs, tell, keep)


def _alone(
    name: str, open_model: Open, how: Circumstances, kinds: Sequence[Kind], rounds: int, tell: Tell
) -> dict[str, Any]:
    work = None
    try:
        work = Work(name, open_model, how, kinds, lambda done, note: tell(name, done, note))
        work.prepare()
        return work.measure(rounds)
    except Exception as error:
        return {"model": name, "error": describe(error)}
    finally:
        if work is not None:
            work.close()


def _compile_ahead(
    names: Sequence[str], open_model: Open, how: Circumstances, kinds: Sequence[Kind], jobs: int
) -> None:
    """Fill the compiler's cache. What fails here fails again where it is told of."""
    tasks = [(name, open_model, how, kind) for kind in kinds if kind.every == 1 and not kind.eager for name in names]
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        threads = max(1, (os.cpu_count() or 1) // jobs)
        for name, done in [(task[0], pool.submit(_compile, threads, *task)) for task in tasks]:
            note = describe(error) if (error := done.exception()) else done.result()
            print(f"{name}: compiled ahead: {note}", file=sys.stderr, flush=True)


def _compile(threads: int, name: str, open_model: Open, how: Circumstances, kind: Kind) -> str:
    from torch._inductor import config

    config.compile_threads = threads  # else every process starts a worker for every core
    notes: list[str] = []
    threading.Thread(target=_end_with_parent, daemon=True).start()
    Work(name, open_model, how, [kind], lambda _, note: notes.append(note)).prepare()
    return notes[0]


def _together(
    names: Sequence[str], rest: tuple[Any, ...], jobs: int, tell: Tell, keep: Callable[[Records], None]
) -> Records:
    context = multiprocessing.get_context("spawn")
    waiting = list(names)
    records: dict[str, Any] = {}
    compiling: dict[Any, str] = {}
    ready: dict[Any, str] = {}
    processes = []
    try:
        while waiting or compiling:
            while waiting and len(compiling) < jobs:
                mine, theirs = context.Pipe()
                process = context.Process(target=_child, args=(theirs, waiting[0], torch.get_num_threads(), *rest))
                process.start()
                theirs.close()
                processes.append(process)
                compiling[mine] = waiting.pop(0)
            for connection in wait(list(compiling)):
                _hear(connection, compiling, ready, records, tell)  # type: ignore[arg-type]
        for connection, name in ready.items():
            connection.send("measure")
            timed = {connection: name}
            while timed:
                _hear(connection, timed, {}, records, tell)
            keep([records[one] for one in names if one in records])
        for process in processes:
            process.join(10)
    finally:
        for process in processes:
            process.kill()
    return [records[name] for name in names]


def _hear(
    connection: Connection, talking: dict[Any, str], ready: dict[Any, str], records: dict[str, Any], tell: Tell
) -> None:
    """Take one message of a child process; one that has no more to say is no longer ``talking``."""
    name = talking[connection]
    try:
        word, *content = connection.recv()
    except (EOFError, OSError):
        word, content = "record", [{"model": name, "error": "its process ended: it may have been killed for memory"}]
    if word == "progress":
        tell(name, *content)
    elif word == "warning":
        warnings.warn(f"{name}: {content[0]}", stacklevel=2)
    else:
        del talking[connection]
        if word == "ready":
            ready[connection] = name
        else:
            records[name] = content[0]


def _child(
    parent: Connection,
    name: str,
    threads: int,
    open_model: Open,
    how: Circumstances,
    kinds: Sequence[Kind],
    rounds: int,
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        parent.send(("warning", str(message)))

    say: Say = lambda done, note: parent.send(("progress", done, note))  # noqa: E731
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show
        try:
            work = Work(name, open_model, how, kinds, say)
            work.prepare()
            if how.cuda:
                torch.cuda.empty_cache()  # others compile still
            parent.send(("ready",))
            parent.recv()
            record = work.measure(rounds)
        except Exception as error:
            record = {"model": name, "error": describe(error)}
    parent.send(("record", record))


def _end_with_parent() -> None:
    """Nobody waits for the work of an orphan."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def progress(total: int) -> Iterator[Tell]:
    """A bar on a terminal, else a line for each kind of step that is ready."""
    with bar("bench", total) as advance:

        def tell(name: str, done: int, note: str) -> None:
            advance(done, f"{name}: {note}")
            if not sys.stderr.isatty() and not note.startswith("round "):
                print(f"{name}: {note}", file=sys.stderr, flush=True)

        yield tell

"""Many models: their kinds of steps compiled side by side, one model timed after the other."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait
from typing import Any

from benchmarks.bench.remote import Remote
from racecar.bench import timing
from racecar.bench.kinds import Kind
from racecar.bench.measure import Say, describe
from racecar.bench.record import model_record
from racecar.bench.run import run, units
from racecar.bench.workload import OpenModel, StepOptions
from racecar.support.progress import bar


def run_side_by_side(
    names: Sequence[str],
    open_model: OpenModel,
    options: StepOptions,
    kinds: Sequence[Kind],
    rounds: int,
    jobs: int,
) -> Iterator[dict[str, Any]]:
    """As `racecar.bench.run.run`, with a process for each kind of step of each model.

    Args:
        names: of the models.
        open_model: from a name to a model and its inputs; can be pickled.
        options: device, precision and so on.
        kinds: the kinds of steps.
        rounds: timed rounds.
        jobs: processes that compile at once; 1: all is done in this process. Timing begins when all have compiled, and
            has the machine for itself.
    """
    if jobs <= 1:
        yield from run(names, open_model, options, kinds, rounds)
        return
    remotes = [Remote(name, open_model, options, group) for group in groups(kinds) for name in names]
    with bar("bench", len(names) * units(kinds, rounds)) as advance:
        try:
            prepare(remotes, jobs, advance)
            for name in names:
                ready = [remote for remote in remotes if remote.name == name]
                yield measure_together(name, ready, kinds, rounds, options, advance)
        finally:
            for remote in remotes:
                remote.stop()


def groups(kinds: Sequence[Kind]) -> list[list[Kind]]:
    """Kinds that differ in ``every`` alone share what is compiled, and so a process."""
    groups: dict[Kind, list[Kind]] = {}
    for kind in kinds:
        groups.setdefault(kind.once(), []).append(kind)
    return list(groups.values())


def prepare(remotes: Sequence[Remote], jobs: int, advance: Say) -> None:
    """Compile everything, in so many processes at once."""
    waiting = list(remotes)
    working: dict[Any, Remote] = {}
    threads = max(1, (os.cpu_count() or 1) // jobs)
    while waiting or working:
        while waiting and len(working) < jobs:
            remote = waiting.pop(0)
            working[remote.start(threads)] = remote
        for connection in wait(list(working)):
            remote = working[connection]
            if not remote.hear(lambda done, note, name=remote.name: advance(done, f"{name}: {note}")):
                del working[connection]


def measure_together(
    name: str, remotes: Sequence[Remote], kinds: Sequence[Kind], rounds: int, options: StepOptions, advance: Say
) -> dict[str, Any]:
    """One model's part of a record."""
    try:
        opened = [remote for remote in remotes if remote.description is not None]
        if not opened:
            return {"model": name, "error": remotes[0].error}
        bursts = {label: burst for remote in remotes for label, burst in remote.bursts().items()}
        bursts = {kind.label: bursts[kind.label] for kind in kinds if kind.label in bursts}
        burst, seconds = timing.in_turns(
            bursts, rounds, options.cuda, lambda done, note: advance(done, f"{name}: {note}")
        )
        return model_record(
            opened[0].description,
            {kind: details for remote in remotes for kind, details in remote.details.items()},
            kinds,
            seconds,
            flops=next((remote.flops for remote in opened if remote.flops is not None), None),
            burst=burst,
            graphs=options.graphs,
        )
    except Exception as error:
        return {"model": name, "error": describe(error)}
    finally:
        for remote in remotes:  # the next model needs the memory
            remote.stop()

"""Kinds of steps compiled ahead, several at once: torch's compiler keeps on disk what it makes, for later processes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from multiprocessing import get_context

from racecar.bench.kinds import Kind
from racecar.bench.measure import Measurement
from racecar.bench.timing import fast_device
from racecar.bench.workload import OpenModel, StepOptions
from racecar.support.progress import bar


def compile_ahead(
    names: Sequence[str], open_model: OpenModel, options: StepOptions, kinds: Sequence[Kind], jobs: int
) -> None:
    """Compile every kind of step of every model, ``jobs`` at a time, each in a process of its own. One that fails is
    compiled where it is timed, and reported there.

    Args:
        names: of the models.
        open_model: from a name to a model and its inputs; can be pickled.
        options: device, precision and so on.
        kinds: the kinds of steps.
        jobs: the number of processes.
    """
    tasks = list(product(dict.fromkeys(kind.once() for kind in kinds), names))
    threads = max(1, (os.cpu_count() or 1) // jobs)
    new_pool = ProcessPoolExecutor(jobs, get_context("spawn"), _compile_with, (threads,), max_tasks_per_child=1)
    with bar("compiling", len(tasks)) as advance, new_pool as pool:
        futures = [pool.submit(_compile, name, open_model, options, kind) for kind, name in tasks]
        for _ in as_completed(futures):
            advance(1, "")


def _compile_with(threads: int) -> None:
    from torch._inductor import config

    config.compile_threads = threads  # else every process starts a worker for every core


def _compile(name: str, open_model: OpenModel, options: StepOptions, kind: Kind) -> None:
    with fast_device(options.cuda):
        Measurement(name, open_model, options, [kind]).prepare(lambda done, note: None)

"""Runs jobs with an engine; their results go into the store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from racecar.support.processes import is_rank_zero
from racecar_lab.running.bars import bars
from racecar_lab.running.engines.base import Failure, RunOptions, failure
from racecar_lab.running.job import Job
from racecar_lab.running.jobs import with_earlier
from racecar_lab.running.results import Store
from racecar_lab.training import distributed

ENGINES = ("here", "vmap", "ray")


def run(jobs: Sequence[Job], options: RunOptions, engine: str = "here", show: bool | None = None) -> list[Failure]:
    """Do the jobs whose results are not in the store yet, with an engine.

    Args:
        jobs: the jobs; those that they build on are added.
        options: options of all jobs.
        engine: "here", "vmap" or "ray".
        show: as in ``bars``: None shows bars on a terminal, and lines elsewhere; False shows nothing.

    Returns:
        Failures; the results of all other jobs are in the store.
    """
    check(options, engine)
    store, jobs = Store(options.folder), with_earlier(jobs)
    engine = engine_of(jobs, options, engine)
    failed = {job: error for job in jobs if (error := _add_settings(job, store, options.maker.command))}
    failures = [*failed.values()]
    for has_earlier in (False, True):  # jobs that others build on come first
        group = [job for job in jobs if job not in failed and (job.before is not None) is has_earlier]
        ready = [job for job in group if job.before is None or not job.before.unfinished(store)]
        failures += _run(ready, store, options, engine, show)
        failures += [_blocked(job) for job in group if job not in ready]
    return failures


def _add_settings(job: Job, store: Store, command: str) -> Failure | None:
    """Add a job's setting to those of its results that are in the store already. Returns a failure if one of their
    records cannot be read."""
    try:
        for id in (job.ids[stage.name] for stage in job.stages):
            if store.has(id) and is_rank_zero():
                store.add_setting(id, job.base.to_record(), job.tuned, job.purpose, command)
            elif store.has(id):
                store.get(id)
    except ValueError as error:
        return failure(job.label, error)
    return None


def _blocked(job: Job) -> Failure:
    """The failure of a job that cannot start, because the job that it builds on failed."""
    assert job.before is not None
    return Failure(job.label, f"it starts from {job.before.label}, which failed", "")


def _run(jobs: Sequence[Job], store: Store, options: RunOptions, engine: str, show: bool | None) -> list[Failure]:
    """Do those of the jobs that are not finished. None of the jobs may build on another of them."""
    todo = [job for job in jobs if job.unfinished(store)]
    if not todo:
        return []
    show = show if is_rank_zero() else False
    with bars(sum(len(job.unfinished(store)) for job in todo), show) as progress:
        if engine == "streams":
            from racecar_lab.running.engines import streams

            return streams.run(jobs, options, progress)  # all jobs, as for vmap
        if engine == "vmap":
            from racecar_lab.running.engines import vmap

            return vmap.run(
                jobs, options, progress
            )  # all jobs, because the checkpoint of a batch is named after its members
        if engine == "ray":
            from racecar_lab.running.engines import ray

            return ray.run(todo, options, progress)
        from racecar_lab.running.engines import here

        return here.run(todo, options, progress)


def begun(jobs: Sequence[Job], options: RunOptions, engine: str) -> list[Path]:
    """Paths of the existing checkpoints of stages that are not finished; with ``resume`` a run continues from them."""
    store = Store(options.folder)
    if engine_of(jobs, options, engine) == "streams":
        from racecar_lab.running.engines import streams

        return [path for path in streams.checkpoints(jobs, store) if path.exists()]
    if engine == "vmap":
        from racecar_lab.running.engines import batching

        return [path for path in batching.checkpoints(jobs, store) if path.exists()]
    ids = [job.ids[stage.name] for job in jobs for stage in job.unfinished(store)]
    return [path for id in ids for path in store.begun(id) if path.exists()]


def engine_of(jobs: Sequence[Job], options: RunOptions, engine: str) -> str:
    """The engine that the user chose, or that of an experiment that needs a certain one; options that the latter would
    ignore are refused."""
    experiment = next((job.experiment for job in jobs if job.experiment.engine), None)
    if experiment is None:
        return engine
    for refuse, option in (
        (engine != "here", f"--engine {engine}"),
        (options.compile, "--compile"),
        (options.tensorboard, "--tensorboard"),
        (options.graphs, "--cuda-graphs"),
        (options.workers > 1, f"--workers {options.workers}"),
        (distributed.launched(), "torchrun"),
    ):
        if refuse:
            raise ValueError(
                f"{option}: {experiment.name} trains all nets of a method as one stack, in one process, by CUDA graphs "
                "on a GPU; leave it out, and for several processes give each some --variants and the same --out"
            )
    return experiment.engine


def check(options: RunOptions, engine: str) -> None:
    """Raise a ValueError for options that the engine, or torchrun, would ignore."""
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {engine!r}")
    vmap, ray, torchrun = engine == "vmap", engine == "ray", distributed.launched()
    workers, numbered = f"--workers {options.workers}", options.device.startswith("cuda:")
    for refuse, message in (
        (vmap and options.compile, "--compile: the vmap engine does not compile; use --engine here"),
        (vmap and options.tensorboard, "--tensorboard: the vmap engine does not write it; use --engine here"),
        (
            options.graphs and not options.device.startswith("cuda"),
            "--cuda-graphs goes with --device cuda: add it, or leave --cuda-graphs out",
        ),
        (
            torchrun and options.graphs and not options.compile,
            "--cuda-graphs: under torchrun it goes with --compile alone",
        ),
        (options.address and not ray, "--address is that of a Ray cluster; add --engine ray"),
        (ray and numbered, f"--device {options.device}: Ray chooses the GPU; use --device cuda"),
        (torchrun and engine != "here", f"--engine {engine}: torchrun shares a training, as only --engine here does"),
        (torchrun and options.workers > 1, f"{workers}: torchrun's processes do one job after the other; leave it out"),
        (
            torchrun and numbered and distributed.world() == 1,  # afterwards each process has a numbered GPU
            f"--device {options.device}: torchrun gives each process a GPU of its own; use --device cuda",
        ),
    ):
        if refuse:
            raise ValueError(message)

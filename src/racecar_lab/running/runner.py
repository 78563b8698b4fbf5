"""Experiment × variants × coefficients × seeds → the results store, by an engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from racecar.support.processes import is_rank_zero
from racecar_lab.running.bars import bars
from racecar_lab.running.engines.base import Failure, RunOptions, failure
from racecar_lab.running.jobs import Job, with_earlier
from racecar_lab.running.results import Store
from racecar_lab.training import distributed

ENGINES = ("here", "vmap", "ray")


def run(jobs: Sequence[Job], options: RunOptions, engine: str = "here", show: bool | None = None) -> list[Failure]:
    """Do what the store does not hold yet.

    Args:
        jobs: what to do.
        options: how.
        engine: "here", "vmap" or "ray".
        show: progress bars; None shows them on a terminal, and lines elsewhere.

    Returns:
        The jobs that failed; all others are in the store.
    """
    check(options, engine)
    store, jobs = Store(options.folder), with_earlier(jobs)
    engine = engine_of(jobs, options, engine)
    broken = {job: failed for job in jobs if (failed := _add_settings(job, store, options.maker.command))}
    failures = [*broken.values()]
    for later in (False, True):  # what others build on comes first
        some = [job for job in jobs if job not in broken and (job.before is not None) is later]
        ready = [job for job in some if job.before is None or not job.before.unfinished(store)]
        failures += _run(ready, store, options, engine, show)
        failures += [_waiting(job) for job in some if job not in ready]
    return failures


def _add_settings(job: Job, store: Store, command: str) -> Failure | None:
    """What the store holds of a job is its result under this job's setting, too; where a record cannot be read, this
    job fails, and no other."""
    try:
        for id in (job.ids[stage.name] for stage in job.stages):
            if store.has(id) and is_rank_zero():
                store.add_setting(id, job.base.to_record(), job.tuned, job.purpose, command)
            elif store.has(id):
                store.get(id)
    except ValueError as error:
        return failure(job.label, error)
    return None


def _waiting(job: Job) -> Failure:
    """Of a job that cannot start: what it builds on failed."""
    assert job.before is not None
    return Failure(job.label, f"it starts from {job.before.label}, which failed", "")


def _run(jobs: Sequence[Job], store: Store, options: RunOptions, engine: str, show: bool | None) -> list[Failure]:
    todo = [job for job in jobs if job.unfinished(store)]
    if not todo:
        return []
    show = show if is_rank_zero() else False
    with bars(sum(len(job.unfinished(store)) for job in todo), show) as progress:
        if engine == "streams":
            from racecar_lab.running.engines import streams

            return streams.run(jobs, options, progress)  # all, for the same reason as vmap
        if engine == "vmap":
            from racecar_lab.running.engines import vmap

            return vmap.run(jobs, options, progress)  # all: a batch that was begun is found by its members
        if engine == "ray":
            from racecar_lab.running.engines import ray

            return ray.run(todo, options, progress)
        from racecar_lab.running.engines import here

        return here.run(todo, options, progress)


def begun(jobs: Sequence[Job], options: RunOptions, engine: str) -> list[Path]:
    """Checkpoints of stages that are not finished: what a run goes on from, if it resumes."""
    store = Store(options.folder)
    if engine_of(jobs, options, engine) == "streams":
        from racecar_lab.running.engines import streams

        return [path for path in streams.checkpoints(jobs, store) if path.exists()]
    if engine == "vmap":
        from racecar_lab.running.engines import vmap

        return [path for path in vmap.checkpoints(jobs, store) if path.exists()]
    ids = [job.ids[stage.name] for job in jobs for stage in job.unfinished(store)]
    return [path for id in ids for path in store.begun(id) if path.exists()]


def engine_of(jobs: Sequence[Job], options: RunOptions, engine: str) -> str:
    """The engine that is asked for, or that of an experiment which has one of its own; what that one would silently
    forget is refused."""
    own = next((job.experiment for job in jobs if job.experiment.engine), None)
    if own is None:
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
                f"{option}: {own.name} trains all nets of a method as one stack, in one process, by CUDA graphs on a "
                "GPU; leave it out, and for several processes give each some --variants and the same --out"
            )
    return own.engine


def check(options: RunOptions, engine: str) -> None:
    """Refuse what an engine, or torchrun, would silently forget."""
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
            torchrun and numbered and distributed.world() == 1,  # once they have joined, each has its own
            f"--device {options.device}: torchrun gives each process a GPU of its own; use --device cuda",
        ),
    ):
        if refuse:
            raise ValueError(message)

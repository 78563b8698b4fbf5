"""Jobs on a Ray cluster; on this machine alone when none is named."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from racecar.extras import need
from racecar.files import write_atomically
from racecar.lab.engines.base import Failure, Plan, Progress, do_job, failure
from racecar.lab.jobs import Job
from racecar.lab.results import Store


def run(jobs: Sequence[Job], plan: Plan, progress: Progress) -> list[Failure]:
    """Do all jobs. A worker has a folder of its own; what it finishes is brought here and put into the store."""
    ray: Any = need("ray", "ray")
    mine = not ray.is_initialized()
    if mine:
        cores = {"num_cpus": plan.workers} if plan.workers and plan.address is None else {}
        ray.init(address=plan.address, log_to_driver=False, include_dashboard=False, configure_logging=False, **cores)
    try:
        work = ray.remote(num_cpus=1, num_gpus=0.25 if plan.device.startswith("cuda") else 0)(_work)
        waiting = {work.remote(job, plan, _begun(job, plan)): job for job in jobs}
        failures = []
        while waiting:
            (done,), _ = ray.wait(list(waiting), num_returns=1)
            job = waiting.pop(done)
            try:
                files, failed = ray.get(done)
            except ray.exceptions.RayError as error:
                message = "its worker was lost; run the same command again to go on"
                files, failed = {}, Failure(job.label, message, str(error))
            todo = job.unfinished(Store(plan.folder))
            for name in sorted(files, key=lambda name: name.startswith("records")):  # records last
                with write_atomically(plan.folder / name) as file:
                    file.write(files[name])
            for stage in todo:
                progress(job.label, stage.name, -1, -1, "")
            if failed is not None:
                failures.append(failed)
        return failures
    finally:
        if mine:
            ray.shutdown()


def _begun(job: Job, plan: Plan) -> dict[str, bytes]:
    """What the store holds of a job already: a worker may be on another machine."""
    store, found = Store(plan.folder), {}
    for id in job.ids.values():
        for name in (f"records/{id}.json", f"weights/{id}.safetensors"):
            if store.has(id) and (plan.folder / name).exists():
                found[name] = (plan.folder / name).read_bytes()
    return found


def _work(job: Job, plan: Plan, begun: dict[str, bytes]) -> tuple[dict[str, bytes], Failure | None]:
    """On the worker: the files of all stages that it finished."""
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder, failed = Path(name), None
        for path, content in begun.items():
            with write_atomically(folder / path) as file:
                file.write(content)
        try:
            do_job(job, replace(plan, folder=folder), lambda *message: None)
        except Exception as error:
            failed = failure(job.label, error)
        made = {
            str(path.relative_to(folder)): path.read_bytes()
            for kind in ("weights", "arrays", "tensorboard", "records")
            for path in sorted((folder / kind).rglob("*"))
            if path.is_file() and str(path.relative_to(folder)) not in begun
        }
    return made, failed

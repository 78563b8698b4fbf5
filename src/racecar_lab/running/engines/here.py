"""The engine "here": jobs on this machine, one after the other or in several processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from racecar_lab.running.engines.base import Failure, Progress, RunOptions, do_job, failure
from racecar_lab.running.engines.pool import cores, share_out
from racecar_lab.running.job import Job

ON_ONE_GPU = 4
"""Default number of processes that share a GPU, each with a job of its own."""


def run(jobs: Sequence[Job], options: RunOptions, progress: Progress) -> list[Failure]:
    """Do all jobs, one after the other or in several processes. Results are in the store; failures are returned."""
    workers = min(options.workers or _fitting(options.device), len(jobs))
    options = replace(options, maker=replace(options.maker, workers=workers))
    if workers <= 1:
        return [failed for job in jobs for failed in _attempt(job, options, progress)]
    jobs = sorted(jobs, key=size, reverse=True)  # so that no worker starts the longest job last
    return share_out(jobs, _attempt, lambda job: job.label, workers, options, progress)


def size(job: Job) -> float:
    """A rough estimate of a job's time, for sorting: parameters × epochs × passes per step. A regularised step takes
    about twice as long as a plain one, and Pre's weight is a number of epochs."""
    with torch.device("meta"):  # no weights are allocated, and no random numbers are drawn
        network = job.experiment.networks(job.config, job.stages[0], None)
    extra = {"reverse": 1.0, "orthogonality": 1.0, "pretrain": job.weight or 0.0}
    passes = 1 + extra.get(job.experiment.variant(job.variant).kind, 0.0)
    return passes * job.config.epochs * sum(parameter.numel() for parameter in network.parameters())


def _fitting(device: str) -> int:
    return ON_ONE_GPU if device.startswith("cuda") else cores()


def _attempt(job: Job, options: RunOptions, progress: Progress) -> list[Failure]:
    try:
        do_job(job, options, progress)
    except Exception as error:
        return [failure(job.label, error)]
    return []

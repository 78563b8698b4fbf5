"""Jobs on this machine: one after the other, or in as many processes as fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from racecar_lab.running.engines.base import Failure, Progress, RunOptions, do_job, failure
from racecar_lab.running.engines.pool import cores, share_out
from racecar_lab.running.jobs import Job
from racecar_lab.training.variants import variant

ON_ONE_GPU = 4
"""Processes that share a GPU unless the user says otherwise."""


def run(jobs: Sequence[Job], options: RunOptions, progress: Progress) -> list[Failure]:
    """Do all jobs; those that fail are returned, the others are in the store."""
    workers = min(options.workers or _fitting(options.device), len(jobs))
    options = replace(options, maker=replace(options.maker, workers=workers))
    if workers <= 1:
        return [failed for job in jobs for failed in _attempt(job, options, progress)]
    jobs = sorted(jobs, key=size, reverse=True)  # or one worker does the longest one while the others have ended
    return share_out(jobs, _attempt, lambda job: job.label, workers, options, progress)


def size(job: Job) -> float:
    """Grows with the time that a job takes; a regularised step takes about twice as long as a plain one, and Pre's
    coefficient is epochs."""
    with torch.device("meta"):  # no numbers, and none drawn
        network = job.experiment.networks(job.config, job.stages[0], None)
    extra = {"reverse": 1.0, "orthogonality": 1.0, "pretrain": job.coefficient or 0.0}
    passes = 1 + extra.get(variant(job.variant).kind, 0.0)
    return passes * job.config.epochs * sum(parameter.numel() for parameter in network.parameters())


def _fitting(device: str) -> int:
    return ON_ONE_GPU if device.startswith("cuda") else cores()


def _attempt(job: Job, options: RunOptions, progress: Progress) -> list[Failure]:
    try:
        do_job(job, options, progress)
    except Exception as error:
        return [failure(job.label, error)]
    return []

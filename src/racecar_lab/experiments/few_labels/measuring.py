"""What trained nets are worth for a new task, measured for many of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import mean

import torch
from torch import nn

from racecar_lab.experiment import Measured, Trained, accuracy
from racecar_lab.experiments.few_labels.config import FewLabelsConfig
from racecar_lab.experiments.few_labels.fine_tuning import fine_tuned
from racecar_lab.experiments.few_labels.new_task import NewTask, probed
from racecar_lab.experiments.small_net import small_net
from racecar_lab.measures.calibration import calibration
from racecar_lab.measures.probe import settle
from racecar_lab.training import rng

AT_ONCE = {"cuda": 12}
"""Nets that are probed and fine-tuned together, by device: a GPU waits for launches otherwise. Elsewhere one."""


@dataclass(frozen=True)
class Unmeasured:
    """What is kept of a trained net until it is measured."""

    new: NewTask
    source: dict[str, float]
    """Metrics of the task that it was trained on; none in a search."""
    untrained: NewTask | None = None
    """The same net with its first weights: once for each seed, from Std."""


def measure_all(each: Iterable[tuple[FewLabelsConfig, Trained]]) -> Iterator[Measured]:
    """Of nets whose configurations differ in what they were trained with alone."""
    some: list[Unmeasured] = []
    for config, trained in each:
        some.append(_look(config, trained))
        if len(some) == AT_ONCE.get(trained.device.type, 1):
            yield from _together(some)
            some = []
    if some:
        yield from _together(some)


def _look(config: FewLabelsConfig, trained: Trained) -> Unmeasured:
    new, test = NewTask.of(config, trained), trained.task.test
    if new.task.valid is not None:
        return Unmeasured(new, {})
    source = {"accuracy": accuracy(trained.model, test), **calibration(trained.model, test)}
    first = None
    if trained.variant == "Std" and not config.longer:
        first = NewTask.of(config, trained, settle(_untrained(config, trained), trained.task.train.x))
    return Unmeasured(new, {f"source_{name}": value for name, value in source.items()}, first)


def _together(some: Sequence[Unmeasured]) -> Iterator[Measured]:
    """A search is judged by the probe alone, on pictures held out of the training files: nothing else is measured."""
    nets, config = [one.new for one in some], some[0].new.config
    probes = probed(nets)
    if nets[0].task.valid is not None:
        yield from (Measured({"valid_accuracy": mean(found.values())}) for found in probes)
        return
    tuned = {f"tune_{n}": fine_tuned(nets, n) for n in config.labels} if config.tune_draws else {}
    fresh = [one.untrained for one in some if one.untrained]
    first = iter(probed(fresh) if fresh else [])
    for i, one in enumerate(some):
        metrics = one.source | {f"probe_{n}": value for n, value in probes[i].items()}
        metrics |= {name: found[i][0] for name, found in tuned.items()}
        metrics |= {f"untrained_{n}": value for n, value in next(first).items()} if one.untrained else {}
        lrs = {name: found[i][1] for name, found in tuned.items()}
        yield Measured(metrics, {"learning rates": [lrs]} if config.tune_lrs else {})


def _untrained(config: FewLabelsConfig, trained: Trained) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.seed_of("network", "few-labels", trained.seed))
        return small_net(config.task, config.depth, config.norm, config.start).to(trained.device)

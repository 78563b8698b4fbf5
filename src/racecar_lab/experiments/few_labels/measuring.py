"""Measurement of trained nets on the new task of few-labels, many nets at once: linear probe and fine-tuning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import mean

import torch
from torch import nn

from racecar_lab.experiment import Measured, Trained, accuracy
from racecar_lab.experiments.few_labels.config import FewLabelsConfig
from racecar_lab.experiments.few_labels.fine_tuning import fine_tune
from racecar_lab.experiments.few_labels.new_task import NewTask, probe_accuracies
from racecar_lab.experiments.small_net import small_net
from racecar_lab.measures.calibration import calibration
from racecar_lab.measures.probe import settle
from racecar_lab.training import rng

AT_ONCE = {"cuda": 12}
"""Type of device → number of nets that are probed and fine-tuned together there; on others 1. With fewer, a GPU waits
for kernel launches."""


@dataclass(frozen=True)
class Pending:
    """A trained net that waits to be measured on the new task, together with others."""

    net: NewTask
    source_metrics: dict[str, float]
    """Metrics of the net on the source task; empty in a search."""
    untrained: NewTask | None = None
    """The net with its initial weights, as a baseline; None for all variants but Std, as it is the same for all."""


def measure_all(trained_nets: Iterable[tuple[FewLabelsConfig, Trained]]) -> Iterator[Measured]:
    """Measure trained nets in batches of ``AT_ONCE``, and yield what was measured in the same order. Their
    configurations may differ only in settings of the training."""
    batch: list[Pending] = []
    for config, trained in trained_nets:
        batch.append(_prepare(config, trained))
        if len(batch) == AT_ONCE.get(trained.device.type, 1):
            yield from _measure_batch(batch)
            batch = []
    if batch:
        yield from _measure_batch(batch)


def _prepare(config: FewLabelsConfig, trained: Trained) -> Pending:
    """Measure a net on the source task, and copy all of it that the new task needs."""
    net, test = NewTask.of(config, trained), trained.task.test
    if net.task.valid is not None:
        return Pending(net, {})
    metrics = {"accuracy": accuracy(trained.model, test), **calibration(trained.model, test)}
    untrained = None
    if trained.variant == "Std" and not config.longer:
        untrained = NewTask.of(config, trained, settle(_untrained(config, trained), trained.task.train.x))
    return Pending(net, {f"source_{name}": value for name, value in metrics.items()}, untrained)


def _measure_batch(batch: Sequence[Pending]) -> Iterator[Measured]:
    """Measure nets together on the new task. In a search only the linear probe is measured, on pictures held out of the
    training files."""
    nets, config = [pending.net for pending in batch], batch[0].net.config
    probes = probe_accuracies(nets)
    if nets[0].task.valid is not None:
        yield from (Measured({"valid_accuracy": mean(accuracies.values())}) for accuracies in probes)
        return
    tuned = {f"tune_{n}": fine_tune(nets, n) for n in config.labels} if config.tune_draws else {}
    untrained = [pending.untrained for pending in batch if pending.untrained]
    untrained_probes = iter(probe_accuracies(untrained) if untrained else [])
    for i, pending in enumerate(batch):
        metrics = pending.source_metrics | {f"probe_{n}": value for n, value in probes[i].items()}
        metrics |= {name: results[i][0] for name, results in tuned.items()}
        if pending.untrained:
            metrics |= {f"untrained_{n}": value for n, value in next(untrained_probes).items()}
        lrs = {name: results[i][1] for name, results in tuned.items()}
        yield Measured(metrics, {"learning rates": [lrs]} if config.tune_lrs else {})


def _untrained(config: FewLabelsConfig, trained: Trained) -> nn.Module:
    """Return the net with its initial weights, drawn again as the training drew them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.seed_of("network", "few-labels", trained.seed))
        return small_net(config.task, config.depth, config.norm, config.start).to(trained.device)

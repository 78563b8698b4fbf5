"""Few labels: transfer of a trained net to a new task with 2 to 250 labels per class. Not in the paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from racecar_lab.datasets import CIFAR10, MNIST, Source, motion
from racecar_lab.experiment import Experiment, Measured, Quick, Reporting, Stage, Task, Trained
from racecar_lab.experiments.few_labels.claims import claims
from racecar_lab.experiments.few_labels.config import FewLabelsConfig
from racecar_lab.experiments.few_labels.figures import all_figures
from racecar_lab.experiments.few_labels.measuring import measure_all
from racecar_lab.experiments.shared import OURS, weight_of
from racecar_lab.experiments.small_net import SIDES, convolutions, small_net
from racecar_lab.measures import transfer
from racecar_lab.search_space import Search
from racecar_lab.training import rng
from racecar_lab.training.longer import with_longer
from racecar_lab.training.recipe import Recipe


class FewLabels(Experiment[FewLabelsConfig]):
    name = "few-labels"
    Config = FewLabelsConfig
    quick = Quick(
        {
            "images": 500, "epochs": 2, "batch": 16, "labels": (2, 10), "draws": 2, "tests": 250, "tune_draws": 1,
            "tune_steps": 20, "tune_lrs": (1e-3,), "cost": 1.0,
        },
        seeds=1,
    )  # fmt: skip
    variants = ("Std", "Ort", "OrtB", "Pre", "RR", "lRR")
    seeds = 10
    data_sets: ClassVar[dict[str, Source]] = {"digits": MNIST, "blur": MNIST, "cifar": CIFAR10}
    search = Search(
        lrs={"adam": (1e-3, 3e-3, 1e-2)},
        weights={
            **dict.fromkeys(("Ort", "OrtB"), (0.0, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)),
            "Pre": (2.0, 6.0, 18.0),
            **dict.fromkeys(OURS, (0.0, 3e-2, 1e-1, 3e-1, 1.0, 3.0)),
            "WD": (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2),
        },
        sum_weights=dict.fromkeys(OURS, (0.0, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)),
        own={"Pre": {"pretrain_lr": (1e-3, 3e-3)}},
        seeds=2,
    )
    claims = claims()
    reporting = Reporting(
        title="Few labels: what features are worth for a new task",
        section="ours",
        summary=(
            "A small net is trained on one task, then used for another with 2, 10, 50 or 250 labels per class: by a "
            "linear probe on its frozen features, and by fine-tuning all of it. A first try of four seeds found ten "
            "points more for RR at two labels without normalisation, and nothing with batch norm."
        ),
        figures=all_figures,
    )

    def configs(self, config: FewLabelsConfig, folder: Path | None) -> Sequence[FewLabelsConfig]:
        return with_longer(config)

    def sources(self, config: FewLabelsConfig) -> tuple[Source, ...]:
        return (self.data_sets[config.task],)

    def data(self, config: FewLabelsConfig, seed: int, folder: Path | None) -> Mapping[str, Task]:
        """Two tasks. "A" is the source task. "B" is the new task; its training set is the pool from which the few
        labelled pictures are drawn. The seed chooses the pictures of both. In a search, a share ``valid`` of the
        training files is held out of both and takes the place of the test files, which are not opened."""
        return transfer.tasks(
            self.data_sets[config.task],
            folder,
            rng.generator(self.name, seed),
            sides=SIDES[config.task],
            change=motion.blur if config.task == "blur" else None,
            images=config.images,
            labels=max(config.labels),
            valid=config.valid,
            tests=config.tests,
        )

    def network(self, config: FewLabelsConfig, dropout: float = 0.0) -> nn.Module:
        return small_net(config.task, config.depth, config.norm, config.start)

    def stages(self, config: FewLabelsConfig) -> tuple[Stage, ...]:
        """One stage, "A". If ``config.longer``, it has more epochs, and only Std is trained."""
        return (Stage("A", epochs=config.long_epochs, variants=("Std",)) if config.longer else Stage("A"),)

    def weight(self, config: FewLabelsConfig, variant: str) -> float:
        return weight_of(variant, config.weight, Pre=4.0)

    def reverse(self, config: FewLabelsConfig) -> dict[str, Any]:
        """Arguments of ``Racecar``: only the convolutions of ``config.layers`` have a reverse loss. The rebuilt input
        goes through a ReLU, as pixels are at least 0."""
        return {
            **config.loss,
            "weight": {"*": 0.0, **dict.fromkeys(constrained_layers(config), 1.0)},
            "input_activation": "relu",
        }

    def recipe(self, config: FewLabelsConfig, stage: Stage) -> Recipe:
        cifar = config.task == "cifar"
        return Recipe(shift=(4 if cifar else 2) if config.augment else 0, flip=cifar, fade=config.decay)

    def measure(self, config: FewLabelsConfig, trained: Trained) -> Measured:
        return next(measure_all([(config, trained)]))

    def measure_all(self, each: Iterable[tuple[FewLabelsConfig, Trained]]) -> Iterator[Measured]:
        return measure_all(each)


def constrained_layers(config: FewLabelsConfig) -> list[str]:
    """Names of the convolutions that have a reverse loss, as ``config.layers`` says."""
    return convolutions(config.depth, config.norm, config.layers)

"""MNIST, and MNIST blurred by motion: does it help three convolutions that they can be run backwards? (App.)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from racecar.inspect import ssim
from racecar_lab.config import Schedule
from racecar_lab.datasets import MNIST, Source, digits, motion
from racecar_lab.datasets.base import Samples
from racecar_lab.experiment import (
    Claim,
    Experiment,
    Measured,
    Paper,
    Quick,
    Reporting,
    Split,
    Stage,
    Task,
    Trained,
    accuracy,
)
from racecar_lab.experiments.picture_figures import mnist_figures
from racecar_lab.experiments.shared import OURS, run_back, started, weight_of
from racecar_lab.measures.features import deployed_loss
from racecar_lab.networks.vgg import vgg
from racecar_lab.search_space import Search
from racecar_lab.training.longer import LongerConfig, with_longer
from racecar_lab.training.loss_config import LossConfig

HELD_OUT = 1 / 12
"""Share of the training set, its first 5000 pictures, that no run trains on and only a search looks at."""
BATCH = 1000
"""Number of test pictures that go through the reverse pass at once."""
LAYOUT = (20, "M", 40, "M", 60, "M")
"""Layers of the net: the number of channels of each convolution, and "M" for pooling. The sizes are ours: the paper's
table is missing in our copy."""


@dataclass(frozen=True, kw_only=True)
class MnistConfig(LongerConfig, LossConfig):
    """Settings of mnist.

    λ of the published runs, 0.09, was chosen on the held-out pictures, with the search's seeds (results/mnist-lambda):
    of 0.09, 0.3, 0.9, 3 and 9 the smallest rebuilds them about as well as any without batch norm, and best with it;
    accuracy falls from 0.9 on. (Records have λ of a sum over the three layers, a third of that.) The
    published runs do not use the seeds 0, 1, 100 and 101, with which test pictures had been looked at before.
    """

    unnamed: ClassVar[Mapping[str, Any]] = {**LossConfig.unnamed, "shipped": False}
    epochs: int = 10
    finetune: int = 10
    """Number of epochs of fine-tuning, in the stages AA and AB, which have no regulariser."""
    lr: float = 1e-3
    batch: int = 256
    schedule: Schedule = "cosine"
    fraction: float = 1 / 8
    norm: bool = False
    """True for batch norm after every convolution."""
    share: float = 1.0
    """Share of the pictures, from the first one on, that is used to train and to test."""
    shipped: bool = False
    """True: use the forty digits that come with racecar instead of MNIST; of each digit three to train on, one to
    test."""
    cost: float = 1.61
    """Time of a step of RR divided by that of a step of Std: in the paper, 5.675 s / 3.522 s per epoch. Std's longer
    training has this many times as many epochs in stage A."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.finetune < 1:
            raise ValueError(f"finetune must be at least 1, not {self.finetune!r}")
        self.refuse_no_part("share")


def claims() -> tuple[Claim, ...]:
    """Claims about RR's accuracy after fine-tuning, and about the likeness of the pictures that its reverse pass
    rebuilds."""
    result = []
    for stage, data in (("AA", "on MNIST"), ("AB", "on blurred MNIST")):
        claim = Claim("", "test_accuracy", stage, "RR", "Std", where={"longer": False})
        result += [
            replace(claim, text=f"RR beats {than}, fine-tuned {data}", than=than) for than in ("Std", "Ort", "WD")
        ]
        text = f"RR beats Std trained as many seconds, fine-tuned {data}"
        result.append(replace(claim, text=text, against={"longer": True}))
    scratch = Claim("RR beats Std from scratch, on blurred MNIST", "test_accuracy", "AB", "RR", "Std", than_stage="B")
    result.append(replace(scratch, where={"longer": False}))
    for metric, suffix in (("ssim", ""), ("ssim_scaled", ", brightness apart")):
        for than in ("Std", "Ort"):
            text = f"RR's reverse pass rebuilds the picture better than {than}'s{suffix}"
            result.append(Claim(text, metric, "A", "RR", than, where={"longer": False}))
    return tuple(result)


class Mnist(Experiment[MnistConfig]):
    name = "mnist"
    Config = MnistConfig
    quick = Quick(
        {"epochs": 2, "finetune": 1, "batch": 50, "share": 1 / 60, "cost": 1.0},
        shipped={"shipped": True, "share": 1.0, "epochs": 30, "finetune": 15},
        seeds=1,
    )
    variants = ("Std", "Ort", "Pre", "RR", "lRR", "RR1", "WD")
    search = Search(
        lrs={"adam": (3e-4, 1e-3, 3e-3), "sgd": (1e-2, 3e-2, 1e-1)},
        weights={
            "Ort": (0.0, 1e-3, 1e-2, 1e-1),
            "Pre": (1.0, 3.0, 10.0, 30.0),
            **dict.fromkeys(OURS, (0.0, 1e-2, 1e-1, 1.0)),
            "WD": (0.0, 1e-5, 1e-4, 1e-3),
        },
        sum_weights=dict.fromkeys(OURS, (0.0, 1e-6, 1e-5, 1e-4)),
        stages=("AA", "AB"),
        valid=HELD_OUT,
    )
    claims = claims()
    source: ClassVar[Source] = MNIST
    reporting = Reporting(
        title="MNIST, and MNIST blurred by motion",
        section="App. (MNIST classification)",
        summary=(
            "Three convolutions learn MNIST with a regulariser (A), then go on without it (AA) or learn MNIST blurred "
            "by motion (AB), which Std also learns from scratch (B). The paper has RR slightly behind in A and best in "
            "AA and AB; only RR's reverse pass rebuilds the picture."
        ),
        paper=(
            *(
                Paper(
                    "test_accuracy", "A", variant, value, where={"longer": False}, note=f"{seconds} s per epoch there"
                )
                for variant, value, seconds in (("RR", 0.9810, 5.675), ("Std", 0.9827, 3.522), ("Ort", 0.9792, 4.969))
            ),
            *(
                Paper("test_accuracy", "AA", variant, value, where={"longer": False}, note="of an earlier version")
                for variant, value in (("RR", 0.9859), ("Std", 0.9842))
            ),
        ),
        describe_data=digits.describe,
        figures=mnist_figures,
    )

    def configs(self, config: MnistConfig, folder: Path | None) -> Sequence[MnistConfig]:
        return with_longer(config)

    def fingerprint(self, config: MnistConfig, folder: Path | None) -> str:
        return "shipped digits" if config.shipped else self.source.title

    def sources(self, config: MnistConfig) -> tuple[Source, ...]:
        return () if config.shipped else (self.source,)

    def data(self, config: MnistConfig, seed: int, folder: Path | None) -> Mapping[str, Task]:
        """Two tasks, "A": MNIST; "B": the same pictures, blurred by motion. The data do not depend on the seed."""
        sharp, blurred = pictures(folder, config.share, config.shipped)
        count = len(sharp[0])
        held_out = round((config.valid or HELD_OUT) * count)
        if not 0 < held_out < count:
            raise ValueError(f"of {count} pictures, {held_out} are held out: set a larger share, or another valid")

        def task(train: Split, test: Split) -> Task:
            valid = Split(train.x[:held_out], train.y[:held_out]) if config.valid else None
            return Task(Split(train.x[held_out:], train.y[held_out:]), test, valid)

        return {"A": task(*sharp), "B": task(*blurred)}

    def network(self, config: MnistConfig, dropout: float = 0.0) -> nn.Module:
        return started(vgg(LAYOUT, norm=config.norm, size=28, channels=1, hidden=(128,), dropout=dropout))

    def stages(self, config: MnistConfig) -> tuple[Stage, ...]:
        """The stages: A with the regulariser, AA (MNIST) and AB (blurred) that continue from it without, and B, blurred
        from scratch. The paper calls them mni, MNI, n-MNI and n-MNI from scratch. Only Std has B, and only Std has the
        longer training, which leaves out B."""
        variants, epochs = (("Std",), config.long_epochs) if config.longer else (None, None)
        after: dict[str, Any] = {"after": "A", "regularised": False, "epochs": config.finetune, "variants": variants}
        stages = (Stage("A", epochs=epochs, variants=variants), Stage("AA", **after), Stage("AB", task="B", **after))
        return stages if config.longer else (*stages, Stage("B", task="B", regularised=False, variants=("Std",)))

    def weight(self, config: MnistConfig, variant: str) -> float:
        return weight_of(variant, config.weight, Pre=3.0, Drop=0.5)

    def reverse(self, config: MnistConfig) -> dict[str, Any]:
        """Arguments of ``Racecar``: the reverse loss compares the three convolutions, not the linear layers. A ReLU
        keeps rebuilt pixels from being negative."""
        return {
            **config.loss,
            "weight": {"features*": 1.0},
            "input_activation": "relu",
        }

    def measure(self, config: MnistConfig, trained: Trained) -> Measured:
        """Accuracy, reverse loss, and likeness of rebuilt pictures to the true ones, on the test set (in a search: on
        held-out pictures)."""
        model, task = trained.model, trained.task
        name, split = task.evaluated
        rebuilt, reverse_loss = run_back(model, split.x, {**self.reverse(config), "scale": "relative"})
        metrics = {
            f"{name}_accuracy": accuracy(model, split),
            "reverse_loss": reverse_loss,
            **likeness(split.x, rebuilt),
        }
        if config.norm:
            options = {**self.reverse(config), "scale": "relative"}
            metrics["reverse_loss_eval"] = deployed_loss(model, task.train.x[: 4 * BATCH], split.x, options, BATCH)
        if trained.stage.name != "A" or task.valid is not None:
            return Measured(metrics)
        shown = [int((task.test.y == digit).nonzero()[0]) for digit in task.test.y.unique()]
        return Measured(metrics, arrays={"d1": task.test.x[shown].cpu(), "rebuilt": rebuilt[shown].cpu()})


@lru_cache(maxsize=1)
def pictures(folder: Path | None, share: float, shipped: bool) -> tuple[tuple[Split, Split], tuple[Split, Split]]:
    """Training and test set with pixels in [0, 1], sharp and blurred by motion; cached, since blurring takes seconds.

    Args:
        folder: the data folder.
        share: share of the pictures that is used, from the first one on.
        shipped: True for the digits that come with racecar instead of MNIST.
    """
    sharp = []
    for x, y in _shipped() if shipped else (Mnist.source.load(folder, name) for name in ("train", "test")):
        count = max(1, round(share * len(y)))
        sharp.append(Split(x[:count].float() / 255, y[:count]))
    train, test = sharp
    return (train, test), (Split(motion.blur(train.x), train.y), Split(motion.blur(test.x), test.y))


def _shipped() -> tuple[Samples, Samples]:
    """Training and test set of the forty digits that come with racecar: of each of the ten digits three pictures to
    train on, and the fourth to test on."""
    x, y = digits.load()
    train = torch.arange(40).view(10, 4)[:, :3].T.flatten()
    return (x[train], y[train]), (x[3::4], y[3::4])


def likeness(x: Tensor, rebuilt: Tensor) -> dict[str, float]:
    """Mean SSIM of pictures x (N, 1, H, W) in [0, 1] and rebuilt pictures (N, 1, H, W), clamped to [0, 1]: "ssim" as
    they are, and "ssim_scaled".

    For "ssim_scaled" each rebuilt picture is first multiplied by the factor that fits x best, in favour of nets that
    never learned the brightness.
    """
    inner, size = ((other * rebuilt).sum((1, 2, 3), keepdim=True) for other in (x, rebuilt))
    scaled = rebuilt * (inner / size.clamp(min=torch.finfo(size.dtype).tiny))
    metrics = {}
    for name, pictures in (("ssim", rebuilt), ("ssim_scaled", scaled)):
        batches = zip(x.split(BATCH), pictures.clamp(0, 1).split(BATCH), strict=True)
        metrics[name] = float(torch.cat([ssim(*pair) for pair in batches]).mean())
    return metrics

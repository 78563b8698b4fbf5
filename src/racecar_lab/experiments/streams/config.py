"""The streams of tasks, their protocols and how these differ from published ones, and the configuration of a run."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from racecar_lab.config import Config
from racecar_lab.datasets import CIFAR10, CIFAR100, MNIST, Source
from racecar_lab.streams import METHODS, Method
from racecar_lab.streams.nets import Norm

CHOOSING = 1000
"""The first seed of a search: seeds from this one on make the streams on which settings are chosen, smaller seeds make
the streams by which claims are judged."""
USED = ("lr", "batch", "optimiser", "valid")
"""The fields of ``Config`` that streams use; the others have no meaning here."""


@dataclass(frozen=True)
class Protocol:
    """How a stream of tasks is made and trained on."""

    title: str
    source: Source
    """Data set of the pictures."""
    classes: int
    """Number of classes in each task, and of the net's outputs."""
    tasks: int
    """Number of tasks."""
    passes: int
    """Number of passes over the samples of each task."""
    images: int
    """Number of training pictures of each task."""
    batch: int
    """Batch size."""
    difference: str
    """Difference from the published protocol, in words; empty if there is none."""
    tested: bool = False
    """Whether tasks have test pictures."""
    zero_head: bool = False
    """Whether the head's parameters are set to 0 at the beginning of each task."""
    metric: str = "online_accuracy"
    """Name of the metric by which claims are judged."""


PROTOCOLS = {
    "permuted": Protocol(
        "digits with permuted pixels", MNIST, 10, tasks=200, passes=1, images=10_000, batch=16, tested=True,
        difference="Kumar et al. (2023) have 500 tasks, here 200",
    ),
    "labels": Protocol(
        "random labels of digits", MNIST, 10, tasks=50, passes=80, images=1200, batch=16,
        difference="Kumar et al. (2023) pass 400 times over each of 50 tasks, here 80 times",
    ),
    "cifar-labels": Protocol(
        "random labels of CIFAR-10's pictures", CIFAR10, 10, tasks=50, passes=80, images=1200, batch=16,
        difference="Kumar et al. (2023) pass 400 times over each of 50 tasks, here 80 times",
    ),
    "pairs": Protocol(
        "pairs of CIFAR-100's classes", CIFAR100, 2, tasks=500, passes=10, images=1000, batch=100,
        tested=True, zero_head=True, metric="test_accuracy",
        difference="Dohare et al. (2024) have 5000 pairs of ImageNet's classes, 600 pictures each, and 250 passes, "
        "Kumar et al. (2023) 500 pairs and 10 passes; here 500 pairs, 500 pictures each, and 10 passes, and as "
        "CIFAR-100 has 50 pairs at a time, classes are paired anew after every 50 tasks",
    ),
}  # fmt: skip
"""The streams by name. Pictures are in [0, 1], and weights are initialised as PyTorch does."""


@dataclass(frozen=True, kw_only=True)
class StreamsConfig(Config):
    """Configuration of a run. Where a field is 0, the number of the stream's protocol is used."""

    stackable = ("lr", "second")
    stream: Literal["permuted", "labels", "cifar-labels", "pairs"] = "permuted"
    net: Literal["mlp2", "mlp3", "mlp6", "kumar", "conv3"] = "mlp3"
    """An MLP with 2, 3 or 6 hidden layers of 100 units, the convolutional net of Kumar et al., or 3 convolutions."""
    norm: Norm = "none"
    """Norm of every method's net; with "none" a net has the norm of its method, if any."""
    tasks: int = 0
    """Number of tasks."""
    passes: int = 0
    """Number of passes over the samples of each task."""
    images: int = 0
    """Number of training pictures of each task."""
    tests: int = 1000
    """Largest number of test pictures of each task."""
    second: float = 0.0
    """The method's second number: σ of Shrink & Perturb, steps between ReDo's checks, maturity of continual backprop;
    0: the usual one."""
    lr: float = 1e-3
    epochs: int = 1
    """Always 1: ``passes`` takes its place."""
    shipped: bool = False
    """Use the forty digits that are part of racecar instead of the data set."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_negative("tasks", "passes", "images", "tests", "second")
        usual = {f.name: f.default for f in fields(Config) if f.name not in (*USED, "epochs")} | {"epochs": 1}
        for name, value in usual.items():
            if getattr(self, name) != value:
                hint = ": passes says how often a task is gone through" if name == "epochs" else ""
                raise ValueError(f"{name} has no meaning for streams{hint}; leave it out")
        if self.optimiser not in ("adam", "sgd"):
            raise ValueError(f"optimiser must be adam or sgd for streams, not {self.optimiser!r}")
        if self.shipped and self.protocol.source is not MNIST:
            raise ValueError(f"shipped: stream {self.stream} is not of digits; use permuted or labels")

    @property
    def protocol(self) -> Protocol:
        """The protocol of the stream."""
        return PROTOCOLS[self.stream]

    @property
    def length(self) -> int:
        """Number of tasks."""
        return self.tasks or self.protocol.tasks

    @property
    def repeats(self) -> int:
        """Number of passes over the samples of each task."""
        return self.passes or self.protocol.passes

    @property
    def size(self) -> int:
        """Number of training pictures of each task."""
        return self.images or self.protocol.images

    @property
    def size_of_batch(self) -> int:
        """Batch size."""
        return self.batch or self.protocol.batch

    @property
    def judged_by(self) -> str:
        """Name of the metric of claims, or, if pictures are held out for a search, of the metric on those."""
        return self.protocol.metric.replace("test", "valid") if self.valid else self.protocol.metric


def method_of(name: str, norm: Norm = "none") -> Method:
    """The method of this name, on a net with the given norm.

    Raises:
        ValueError: there is no such method, or it does not work with the norm.
    """
    from dataclasses import replace
    from difflib import get_close_matches

    if name not in METHODS:
        close = get_close_matches(name, METHODS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"the methods are: {', '.join(METHODS)}"
        raise ValueError(f"no method {name!r}; {hint}")
    method = METHODS[name]
    if norm == "none":
        return method
    if method.norm != "none":
        raise ValueError(f"norm={norm}: {name} has a norm of its own; leave it out by --variants, or use norm=none")
    if method.reverse and norm == "batch":
        raise ValueError(f"norm=batch: {name} does not keep the statistics of batch norms; leave it out by --variants")
    return replace(method, norm=norm)

"""The streams of tasks, their protocols and how these differ from published ones, and the configuration of a run."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from racecar_lab.config import Config
from racecar_lab.datasets import CIFAR10, CIFAR100, MNIST, Source
from racecar_lab.streams import METHODS, Method
from racecar_lab.streams.nets import Norm

CHOOSING = 1000
"""The first seed of a search. Seeds from this one on make the streams on which settings are chosen, smaller seeds make
the streams by which claims are judged."""
USED = ("lr", "batch", "optimiser", "valid")
"""Names of the fields of ``Config`` that streams use; the others have no meaning here."""


@dataclass(frozen=True)
class Protocol:
    """How a stream of tasks is made and trained on."""

    title: str
    source: Source
    """Data set from which the pictures of all tasks are drawn."""
    classes: int
    """Number of classes in each task, and of the net's outputs."""
    tasks: int
    """Number of tasks in the stream."""
    passes: int
    """Number of passes over the samples of each task."""
    images: int
    """Number of training pictures of each task."""
    batch: int
    """Number of samples in a batch."""
    difference: str
    """Difference of this protocol from the published one, in words; empty if there is none."""
    tested: bool = False
    """True if tasks have test pictures."""
    zero_head: bool = False
    """True if the parameters of the head, the last layer, are set to 0 at the beginning of each task."""
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
"""Name of a stream → its protocol. In all of them pictures are in [0, 1], and weights are initialised as PyTorch
does."""


@dataclass(frozen=True, kw_only=True)
class StreamsConfig(Config):
    """Configuration of a run of streams. Where tasks, passes, images or batch is 0, the number of the stream's protocol
    is used."""

    stackable = ("lr", "second")
    stream: Literal["permuted", "labels", "cifar-labels", "pairs"] = "permuted"
    net: Literal["mlp2", "mlp3", "mlp6", "kumar", "conv3"] = "mlp3"
    """Network: an MLP with 2, 3 or 6 hidden layers of 100 units, the convolutional net of Kumar et al., or 3
    convolutions."""
    norm: Norm = "none"
    """Norm in the nets of all methods; "none": a net has the norm that its method adds, if any."""
    tasks: int = 0
    """Number of tasks in the stream; 0: that of the stream's protocol."""
    passes: int = 0
    """Number of passes over the samples of each task; 0: that of the stream's protocol."""
    images: int = 0
    """Number of training pictures of each task; 0: that of the stream's protocol."""
    tests: int = 1000
    """Largest number of test pictures of each task."""
    second: float = 0.0
    """Second number of the method: σ of Shrink & Perturb, steps between ReDo's checks, maturity of continual backprop;
    0: the usual one."""
    lr: float = 1e-3
    epochs: int = 1
    """Number of epochs: always 1, as ``passes`` takes its place."""
    shipped: bool = False
    """True: use the forty digits that are part of racecar instead of the data set."""

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
        """The settings of this stream that are usual here: how its tasks are made and trained on."""
        return PROTOCOLS[self.stream]

    @property
    def length(self) -> int:
        """Number of tasks in the stream, as configured, or else that of its protocol."""
        return self.tasks or self.protocol.tasks

    @property
    def repeats(self) -> int:
        """Number of passes over the samples of each task, as configured, or else that of the stream's protocol."""
        return self.passes or self.protocol.passes

    @property
    def size(self) -> int:
        """Number of training pictures of each task, as configured, or else that of the stream's protocol."""
        return self.images or self.protocol.images

    @property
    def size_of_batch(self) -> int:
        """Number of samples in a batch, as configured, or else that of the stream's protocol."""
        return self.batch or self.protocol.batch

    @property
    def judged_by(self) -> str:
        """Name of the metric by which claims are judged, measured on held-out training pictures if ``valid`` is not
        0."""
        return self.protocol.metric.replace("test", "valid") if self.valid else self.protocol.metric


def method_of(name: str, norm: Norm = "none") -> Method:
    """Return the method of this name, for a net with the given norm.

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

"""Which streams there are, by which published protocol, and what of it is shortened."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from racecar_lab.config import Config
from racecar_lab.datasets import CIFAR10, CIFAR100, MNIST, Source
from racecar_lab.streams import METHODS, Method
from racecar_lab.streams.nets import Norm

CHOOSING = 1000
"""Seeds from here on make the streams on which settings are chosen; those below make the streams that are judged."""
USED = ("lr", "batch", "optimiser", "valid")
"""What of the settings of all experiments these trainings have."""


@dataclass(frozen=True)
class Protocol:
    """One stream of tasks."""

    title: str
    source: Source
    classes: int
    """Outputs of the net."""
    tasks: int
    passes: int
    """Over the samples of each task."""
    images: int
    """Of each task."""
    batch: int
    shortened: str
    """What the published protocol has instead; empty where there is no difference."""
    tested: bool = False
    """Whether its tasks have test pictures."""
    zero_head: bool = False
    """Whether the head is 0 when a task begins."""
    metric: str = "online_accuracy"
    """What is judged."""


PROTOCOLS = {
    "permuted": Protocol(
        "digits with permuted pixels", MNIST, 10, tasks=200, passes=1, images=10_000, batch=16, tested=True,
        shortened="Kumar et al. (2023) have 500 tasks, here 200",
    ),
    "labels": Protocol(
        "random labels of digits", MNIST, 10, tasks=50, passes=80, images=1200, batch=16,
        shortened="Kumar et al. (2023) pass 400 times over each of 50 tasks, here 80 times",
    ),
    "cifar-labels": Protocol(
        "random labels of CIFAR-10's pictures", CIFAR10, 10, tasks=50, passes=80, images=1200, batch=16,
        shortened="Kumar et al. (2023) pass 400 times over each of 50 tasks, here 80 times",
    ),
    "pairs": Protocol(
        "pairs of CIFAR-100's classes", CIFAR100, 2, tasks=500, passes=10, images=1000, batch=100,
        tested=True, zero_head=True, metric="test_accuracy",
        shortened="Dohare et al. (2024) have 5000 pairs of ImageNet's classes, 600 pictures each, and 250 passes, "
        "Kumar et al. (2023) 500 pairs and 10 passes; here 500 pairs, 500 pictures each, and 10 passes, and as "
        "CIFAR-100 has 50 pairs at a time, classes are paired anew after every 50 tasks",
    ),
}  # fmt: skip
"""By name. Pictures are in [0, 1], first weights PyTorch's own."""


@dataclass(frozen=True, kw_only=True)
class StreamsConfig(Config):
    """0 is what the stream's protocol has."""

    stream: Literal["permuted", "labels", "cifar-labels", "pairs"] = "permuted"
    net: Literal["mlp2", "mlp3", "mlp6", "kumar", "conv3"] = "mlp3"
    """MLPs with 2, 3 or 6 times 100 units, the convolutional net of Kumar et al., or three convolutions."""
    norm: Norm = "none"
    """Of every method's net; with "none" each has its own."""
    tasks: int = 0
    passes: int = 0
    """Over the samples of each task."""
    images: int = 0
    """Of each task."""
    tests: int = 1000
    """Test pictures of each task, at most."""
    second: float = 0.0
    """A method's second number: σ of Shrink & Perturb, steps between ReDo's checks, maturity of continual backprop; 0:
    the usual one."""
    lr: float = 1e-3
    epochs: int = 1
    """No other: ``passes`` says it."""
    shipped: bool = False
    """Take the forty digits that racecar brings along."""

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
        return PROTOCOLS[self.stream]

    @property
    def length(self) -> int:
        """Tasks."""
        return self.tasks or self.protocol.tasks

    @property
    def repeats(self) -> int:
        """Passes over the samples of each task."""
        return self.passes or self.protocol.passes

    @property
    def size(self) -> int:
        """Samples of each task."""
        return self.images or self.protocol.images

    @property
    def size_of_batch(self) -> int:
        return self.batch or self.protocol.batch

    @property
    def judged_by(self) -> str:
        """The metric that claims are about, and in a search, which sees no test picture, the one that it goes by."""
        return self.protocol.metric.replace("test", "valid") if self.valid else self.protocol.metric


def method_of(name: str, norm: Norm = "none") -> Method:
    """A method by its name, on a net with that norm."""
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

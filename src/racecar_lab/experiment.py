"""What an experiment is: data, network, stages, what is measured, what is claimed and what the paper has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic

import torch
from torch import Tensor, nn

from racecar_lab.claim import Claim as Claim
from racecar_lab.claim import Paper as Paper
from racecar_lab.clusters import Clusters
from racecar_lab.config import C, Config
from racecar_lab.incomplete import Incomplete as Incomplete
from racecar_lab.incomplete import lacks
from racecar_lab.training.recipe import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from racecar_lab.report.page_table import Table
    from racecar_lab.running.run import Run
    from racecar_lab.search_space import Search
    from racecar_lab.training.variants import Variant


@dataclass(frozen=True)
class Stage:
    """One training: from fresh weights or from those of an earlier stage, with or without the regulariser."""

    name: str
    """"A", "AA" (fine-tuned on the same task), "AB" (on a transfer task), "B" (that task from scratch)."""
    task: str = "A"
    after: str | None = None
    """The stage whose weights it starts from."""
    regularised: bool = True
    epochs: int | None = None
    """None: as the configuration says."""
    variants: tuple[str, ...] | None = None
    """The variants that have it; None: all."""
    network: str = ""
    """What is trained, in words, where it is not the experiment's network."""

    @property
    def told(self) -> str:
        """What it is, in words."""
        start = "from fresh weights" if self.after is None else f"from {self.after}'s weights"
        task = "" if self.task == "A" else f" on task {self.task}"
        trained = f"{self.network} trained" if self.network else "trained"
        return f"{trained} {start}{task}{'' if self.regularised else ' without regulariser'}"


@dataclass(frozen=True, eq=False)
class Split:
    """Samples (N, …) with their labels (N,): classes, or what else a recipe's loss takes, (N, …)."""

    x: Tensor
    y: Tensor

    @property
    def classes(self) -> bool:
        """Whether every sample has one label, which is a class: then there is an accuracy."""
        return self.y.dim() == 1 and not self.y.is_floating_point()

    def __len__(self) -> int:
        return len(self.x)

    def to(self, device: torch.device | str) -> Split:
        return Split(self.x.to(device), self.y.to(device))


@dataclass(frozen=True, eq=False)
class Task:
    """What a stage trains on, and what it is measured on."""

    train: Split
    test: Split
    valid: Split | None = None

    def to(self, device: torch.device | str) -> Task:
        valid = None if self.valid is None else self.valid.to(device)
        return Task(self.train.to(device), self.test.to(device), valid)


@dataclass(frozen=True, eq=False)
class Trained:
    """A finished training, ready to be measured."""

    stage: Stage
    model: nn.Module
    """One network, or several by name in an ``nn.ModuleDict``."""
    task: Task
    seed: int
    variant: str
    device: torch.device
    folder: Path | None = None
    """Where the data are."""
    history: dict[str, Tensor] = field(default_factory=dict)
    """What ``Recipe.look`` kept during training, stacked; first dimension: looks."""
    tasks: Mapping[str, Task] = field(default_factory=dict)
    """All that ``Experiment.data`` gave, on the CPU."""


@dataclass(frozen=True)
class Measured:
    """What is kept of a finished stage."""

    metrics: dict[str, float]
    tables: dict[str, Any] = field(default_factory=dict)
    """Anything JSON can hold."""
    arrays: dict[str, Tensor] = field(default_factory=dict)
    """Small tensors that figures are drawn from."""


PROBED = 256
"""Training samples on which is looked whether a net is dead."""
STARTS = {"torch": "PyTorch's own", "he": "He's", "orthogonal": "orthogonal"}
"""First weights by the names that configurations have for them."""


class Experiment(Generic[C]):
    """One experiment of the paper, with a configuration of type C; subclasses read like its section. Instances hold
    nothing."""

    name: ClassVar[str]
    title: ClassVar[str]
    section: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    version: ClassVar[int] = 1
    """Raised when a change makes earlier records incomparable."""
    Config: ClassVar[type[Config]] = Config
    quick: ClassVar[dict[str, Any]] = {}
    """What ``--quick`` changes: a minute on two cores at most."""
    quick_shipped: ClassVar[dict[str, Any]] = {}
    """What ``--quick`` changes besides where its data are not in the data folder: some that come with racecar serve."""
    quick_seeds: ClassVar[int] = 2
    variants: ClassVar[tuple[str, ...]] = ("Std", "Ort", "RR")
    seeds: ClassVar[int] = 5
    claims: ClassVar[tuple[Claim, ...]] = ()
    paper: ClassVar[tuple[Paper, ...]] = ()
    search: ClassVar[Search | None] = None
    """What ``racecar search`` tries, if it can choose the settings."""
    paper_coefficients: ClassVar[Mapping[str, tuple[float, ...]]] = {}
    """What it tries instead for variants whose loss is a plain sum, as the paper's: their λ has another unit."""
    stackable: ClassVar[tuple[str, ...]] = ()
    """Fields of the configuration that change the first weights or the coefficient, and nothing else: nets that differ
    in them alone can be trained as one batched net."""
    builds_on: ClassVar[str] = ""
    """The experiment that comes first: stages start from its networks, with the same settings and seed, and name its
    stage in ``after``. What is trained there already is not trained again. Its search comes first, too."""
    rebuilds: ClassVar[bool] = False
    """Whether the output of its networks should be their input: then those that nearly always say the same are dead."""
    clusters: ClassVar[Clusters | None] = None
    """Runs that are not independent, as the seeds within a fold: how they are told, and what they share."""
    light: ClassVar[bool] = False
    """Records hold what was measured, and neither weights nor curves: for thousands of nets. Only where no stage starts
    from another's weights."""
    joins: ClassVar[bool] = False
    """Whether its network has joins, over which no reverse pass leads: RR starts again at each (mode "auto")."""
    start: ClassVar[str] = "PyTorch's own"
    """First weights of its networks, unless the configuration has a ``start``."""
    engine: ClassVar[str] = ""
    """The engine that trains its nets instead of the one that a user names, where it has one of its own."""
    tells: ClassVar[bool] = False
    """Whether ``told`` and ``figures``, given all runs, are its page: for designs with too many settings for tables."""

    def variant(self, name: str) -> Variant:
        """One of its ways of training, by name."""
        from racecar_lab.training.variants import variant

        return variant(name)

    def configs(self, config: C, folder: Path | None) -> Sequence[C]:
        """The configurations that a run goes through, for example one for each network."""
        return (config,)

    def fingerprint(self, config: C, folder: Path | None) -> str:
        """Says which data a result depends on, where they are not made from the seed."""
        return "made from the seed"

    def needs(self, config: C) -> tuple[str, ...]:
        """Names of the data sets that must be in the data folder."""
        return ()

    def told_data(self, config: C) -> str:
        """What its data are, in words, where they are not those of the paper; empty where they are."""
        return ""

    def data(self, config: C, seed: int, folder: Path | None) -> Mapping[str, Task]:
        """Tasks by name; the same for the same seed."""
        raise lacks(type(self), "data")

    def network(self, config: C, dropout: float = 0.0) -> nn.Module:
        """The untrained network, from torch's random state."""
        raise lacks(type(self), "network")

    def first_weights(self, config: C) -> str:
        """As pages name them."""
        return STARTS.get(getattr(config, "start", ""), self.start)

    def networks(self, config: C, stage: Stage, earlier: nn.Module | None, dropout: float = 0.0) -> nn.Module:
        """What a stage trains: one network, or several that take turns, by name in an ``nn.ModuleDict``.

        Args:
            earlier: what the stage that it starts from has trained, to go on with or to take parts of; None for a stage
                that starts anew.
        """
        if earlier is not None:
            return earlier
        return self.network(config, dropout) if dropout else self.network(config)

    def stages(self, config: C) -> tuple[Stage, ...]:
        return (Stage("A"),)

    def search_for(self, config: C) -> Search | None:
        """What ``racecar search`` tries under a configuration."""
        if self.search is None or self.reverse(config).get("scale") != "sum":
            return self.search
        return replace(self.search, coefficients={**self.search.coefficients, **self.paper_coefficients})

    def coefficient(self, config: C, variant: str) -> float:
        """What a variant's regulariser is multiplied by, unless the user says otherwise."""
        raise lacks(type(self), "coefficient")

    def reverse(self, config: C) -> dict[str, Any]:
        """Arguments of ``Racecar`` but mode: the loss, weight (patterns, times the coefficient), input_activation …"""
        return {"fraction": config.fraction}

    def orthogonality(self, config: C) -> dict[str, Any]:
        """Arguments of ``orthogonality.srip``."""
        return {}

    def recipe(self, config: C, stage: Stage) -> Recipe:
        """What a training does: losses, augmentation, looks …; by default cross-entropy and nothing else."""
        return Recipe()

    def measure(self, config: C, trained: Trained) -> Measured:
        """Metrics of a finished stage, the model in evaluation mode. In a search, which holds samples out as
        ``task.valid``, they are measured on these, and nothing is on the test set."""
        if trained.task.valid is not None:
            return Measured({"valid_accuracy": accuracy(trained.model, trained.task.valid)})
        return Measured({"test_accuracy": accuracy(trained.model, trained.task.test)})

    def probed(self, config: C, trained: Trained) -> tuple[nn.Module, Tensor] | None:
        """A network and inputs (N, …) by which is seen whether it died; None: nobody looks. Networks that take turns
        are called as their losses say, which an experiment knows itself."""
        if self.recipe(config, trained.stage).turns:
            return None
        return trained.model, trained.task.train.x[:PROBED]

    def measure_all(self, each: Iterable[tuple[C, Trained]]) -> Iterator[Measured] | None:
        """``measure`` for nets that were trained as one, where that is faster together; None: one after the other.

        Args:
            each: they lend each other one model: it has a net's weights until the next one is asked for.
        """
        return None

    def figures(self, runs: Sequence[Run]) -> dict[str, Figure]:
        """Figures by title, from the records of finished stages; if it ``tells``, of diverged ones, too. Without any, a
        page shows every run and the curves over training."""
        return {}

    def beside_paper(self, runs: Sequence[Run]) -> Table | None:
        """A short table of what the paper prints and what came out, which the page opens with; None: there is none."""
        return None

    def told(self, runs: Sequence[Run]) -> tuple[Sequence[str], Sequence[Table]]:
        """What came out, in sentences and short tables, from the records of all stages."""
        raise lacks(type(self), "told")


@torch.no_grad()
def accuracy(model: nn.Module, split: Split, batch: int | None = None) -> float:
    """Share of the samples whose largest output is their label. The device is read once, at the end."""
    batch = batch or (4096 if split.x.is_cuda else 1024)
    right = sum(
        (model(x).argmax(1) == y).sum() for x, y in zip(split.x.split(batch), split.y.split(batch), strict=True)
    )
    return float(right) / len(split)

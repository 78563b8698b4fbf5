"""The base class of experiments: data, network, stages, measurements, claims and the paper's numbers."""

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
    """One training of an experiment: from fresh weights or from an earlier stage's, with or without the regulariser."""

    name: str
    """"A", "AA" (fine-tuned on the same task), "AB" (on a transfer task), "B" (that task from scratch)."""
    task: str = "A"
    """Name of the task that it trains on."""
    after: str | None = None
    """Name of the stage whose weights it starts from; None: fresh weights."""
    regularised: bool = True
    epochs: int | None = None
    """None: the configuration's."""
    variants: tuple[str, ...] | None = None
    """Names of the variants that have this stage; None: all."""
    network: str = ""
    """Description of the trained network, if it is not the experiment's."""

    @property
    def told(self) -> str:
        """A description of the stage, for pages."""
        start = "from fresh weights" if self.after is None else f"from {self.after}'s weights"
        task = "" if self.task == "A" else f" on task {self.task}"
        trained = f"{self.network} trained" if self.network else "trained"
        return f"{trained} {start}{task}{'' if self.regularised else ' without regulariser'}"


@dataclass(frozen=True, eq=False)
class Split:
    """Samples x (N, …) with labels y: classes (N,), or other targets of the recipe's loss (N, …)."""

    x: Tensor
    y: Tensor

    @property
    def classes(self) -> bool:
        """True if the labels are classes, one for each sample, so that accuracy is defined."""
        return self.y.dim() == 1 and not self.y.is_floating_point()

    def __len__(self) -> int:
        return len(self.x)

    def to(self, device: torch.device | str) -> Split:
        return Split(self.x.to(device), self.y.to(device))


@dataclass(frozen=True, eq=False)
class Task:
    """The data of a stage: training, test and, if samples are held out, validation samples."""

    train: Split
    test: Split
    valid: Split | None = None

    def to(self, device: torch.device | str) -> Task:
        valid = None if self.valid is None else self.valid.to(device)
        return Task(self.train.to(device), self.test.to(device), valid)


@dataclass(frozen=True, eq=False)
class Trained:
    """A finished stage, ready to be measured."""

    stage: Stage
    model: nn.Module
    """One network, or several by name in an ``nn.ModuleDict``."""
    task: Task
    seed: int
    variant: str
    device: torch.device
    folder: Path | None = None
    """The data folder; None: the default one."""
    history: Mapping[str, Tensor] = field(default_factory=dict)
    """Snapshots that ``Recipe.look`` took during training, by name, stacked; the first dimension is time."""
    tasks: Mapping[str, Task] = field(default_factory=dict)
    """All tasks of ``Experiment.data`` by name, on the CPU."""


@dataclass(frozen=True)
class Measured:
    """The measurements of a finished stage."""

    metrics: dict[str, float]
    tables: dict[str, Any] = field(default_factory=dict)
    """Anything that JSON can represent."""
    arrays: dict[str, Tensor] = field(default_factory=dict)
    """Small tensors for figures."""


PROBED = 256
"""Number of training samples for the check whether a net has collapsed."""
STARTS = {"torch": "PyTorch's own", "he": "He's", "orthogonal": "orthogonal"}
"""Initial weights in words, by the value of a configuration's ``start``."""


class Experiment(Generic[C]):
    """One experiment, with a configuration of type C. A subclass reads like a section of the paper; instances have no
    state."""

    name: ClassVar[str]
    title: ClassVar[str]
    section: ClassVar[str] = ""
    """Section of the paper."""
    summary: ClassVar[str] = ""
    """A few sentences for its page."""
    version: ClassVar[int] = 1
    """Version of the experiment; a change that makes earlier records incomparable increases it."""
    Config: ClassVar[type[Config]] = Config
    quick: ClassVar[dict[str, Any]] = {}
    """Configuration fields that ``--quick`` sets, for a run of at most a minute on two cores."""
    quick_shipped: ClassVar[dict[str, Any]] = {}
    """Further fields that ``--quick`` sets if the data are not in the data folder, to use data that come with
    racecar."""
    quick_seeds: ClassVar[int] = 2
    """Number of seeds with ``--quick``."""
    variants: ClassVar[tuple[str, ...]] = ("Std", "Ort", "RR")
    """Default variants of a run."""
    seeds: ClassVar[int] = 5
    """Default number of seeds."""
    claims: ClassVar[tuple[Claim, ...]] = ()
    paper: ClassVar[tuple[Paper, ...]] = ()
    """Numbers that the paper prints."""
    search: ClassVar[Search | None] = None
    """Search space of ``racecar search``; None: no search."""
    paper_weights: ClassVar[Mapping[str, tuple[float, ...]]] = {}
    """λ for the search, by variant, if the loss is a plain sum like the paper's: λ then has another unit."""
    stackable: ClassVar[tuple[str, ...]] = ()
    """Fields of the configuration that change only the initial weights or λ, so that nets that differ in
    them can be trained as one batched net."""
    builds_on: ClassVar[str] = ""
    """Name of an experiment that is run first: stages start from its networks, with the same settings and seed, and
    name its stage in ``after``. Finished stages are not trained again. Its search comes first, too."""
    rebuilds: ClassVar[bool] = False
    """True if its networks are autoencoders. The collapse check then also finds those whose output hardly varies."""
    clusters: ClassVar[Clusters | None] = None
    """Groups of runs that are not independent, such as the seeds within a fold; None: all runs are independent."""
    light: ClassVar[bool] = False
    """True if records leave out weights and curves, for experiments with thousands of nets. Not possible if a stage
    starts from another's weights."""
    joins: ClassVar[bool] = False
    """True if its network has joins, which no reverse pass crosses: RR starts again at each (mode "auto")."""
    start: ClassVar[str] = "PyTorch's own"
    """Initial weights of its networks, in words, unless the configuration has a ``start``."""
    engine: ClassVar[str] = ""
    """Name of its own engine, which replaces the one that a user names; empty: none."""
    tells: ClassVar[bool] = False
    """True if its page consists of ``told`` and ``figures``, because it has too many settings for tables."""

    def variant(self, name: str) -> Variant:
        """One of its variants, by name."""
        from racecar_lab.training.variants import variant

        return variant(name)

    def configs(self, config: C, folder: Path | None) -> Sequence[C]:
        """All configurations of a run, for example one for each network."""
        return (config,)

    def fingerprint(self, config: C, folder: Path | None) -> str:
        """A text that identifies the data of a result, such as checksums of their files."""
        return "made from the seed"

    def needs(self, config: C) -> tuple[str, ...]:
        """Names of the data sets that must be in the data folder."""
        return ()

    def told_data(self, config: C) -> str:
        """A description of its data, if they are not the paper's; otherwise empty."""
        return ""

    def data(self, config: C, seed: int, folder: Path | None) -> Mapping[str, Task]:
        """Its tasks by name, such as "A"; the same for the same seed."""
        raise lacks(type(self), "data")

    def network(self, config: C, dropout: float = 0.0) -> nn.Module:
        """The untrained network; its weights are drawn from torch's global random state."""
        raise lacks(type(self), "network")

    def first_weights(self, config: C) -> str:
        """The initial weights, in words, for pages."""
        return STARTS.get(getattr(config, "start", ""), self.start)

    def networks(self, config: C, stage: Stage, earlier: nn.Module | None, dropout: float = 0.0) -> nn.Module:
        """The model of a stage before training: one network, or several that take turns, by name in an
        ``nn.ModuleDict``.

        Args:
            earlier: the trained model of the stage that this one starts from, to continue with or to take parts of;
                None for a stage that starts from fresh weights.
        """
        if earlier is not None:
            return earlier
        return self.network(config, dropout) if dropout else self.network(config)

    def stages(self, config: C) -> tuple[Stage, ...]:
        """Its stages, in order."""
        return (Stage("A"),)

    def search_for(self, config: C) -> Search | None:
        """The search space of ``racecar search`` for a configuration; None: no search."""
        if self.search is None or self.reverse(config).get("scale") != "sum":
            return self.search
        return replace(self.search, weights={**self.search.weights, **self.paper_weights})

    def weight(self, config: C, variant: str) -> float:
        """The default λ of a variant, the weight of its regulariser."""
        raise lacks(type(self), "weight")

    def reverse(self, config: C) -> dict[str, Any]:
        """Arguments of ``Racecar`` except mode. Its ``weight`` is multiplied by λ."""
        return {"fraction": config.fraction}

    def orthogonality(self, config: C) -> dict[str, Any]:
        """Arguments of ``orthogonality.srip``."""
        return {}

    def recipe(self, config: C, stage: Stage) -> Recipe:
        """The recipe of a stage: loss, augmentation, snapshots; by default cross-entropy and nothing else."""
        return Recipe()

    def measure(self, config: C, trained: Trained) -> Measured:
        """Metrics of a finished stage, the model in evaluation mode. In a search, which holds samples out as
        ``task.valid``, they are measured on these, and nothing is on the test set."""
        if trained.task.valid is not None:
            return Measured({"valid_accuracy": accuracy(trained.model, trained.task.valid)})
        return Measured({"test_accuracy": accuracy(trained.model, trained.task.test)})

    def probed(self, config: C, trained: Trained) -> tuple[nn.Module, Tensor] | None:
        """A model and inputs (N, …) for the collapse check (``measures.dead``); None skips it. None is the default if
        networks take turns, because only the experiment knows how they are called."""
        if self.recipe(config, trained.stage).turns:
            return None
        return trained.model, trained.task.train.x[:PROBED]

    def measure_all(self, each: Iterable[tuple[C, Trained]]) -> Iterator[Measured] | None:
        """Measure nets that were trained as one batched net, if that is faster than one after the other; None: use
        ``measure``.

        Args:
            each: pairs of configuration and finished stage. All share one module, which holds the weights of a net
                until the next pair is taken.
        """
        return None

    def figures(self, runs: Sequence[Run]) -> dict[str, Figure]:
        """Figures by title, from the records of finished stages; if it ``tells``, of diverged ones, too. Without any, a
        page shows every run and the curves over training."""
        return {}

    def beside_paper(self, runs: Sequence[Run]) -> Table | None:
        """A short table of the paper's results and ours, at the top of the page; None: no table."""
        return None

    def told(self, runs: Sequence[Run]) -> tuple[Sequence[str], Sequence[Table]]:
        """The results in sentences and short tables, from the records of all stages."""
        raise lacks(type(self), "told")


@torch.no_grad()
def accuracy(model: nn.Module, split: Split, batch: int | None = None) -> float:
    """Share of the samples whose largest output is that of their label. The device is read once, at the end."""
    batch = batch or (4096 if split.x.is_cuda else 1024)
    right = sum(
        (model(x).argmax(1) == y).sum() for x, y in zip(split.x.split(batch), split.y.split(batch), strict=True)
    )
    return float(right) / len(split)

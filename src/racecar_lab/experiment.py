"""The base class of experiments: configuration, data, network, stages, measurements and claims."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from torch import nn

from racecar_lab.claim import Claim as Claim
from racecar_lab.claim import Paper as Paper
from racecar_lab.clusters import Clusters
from racecar_lab.config import C, Config
from racecar_lab.incomplete import Incomplete as Incomplete
from racecar_lab.incomplete import lacks
from racecar_lab.measures.accuracy import accuracy as accuracy
from racecar_lab.measures.dead import SAMPLES, CollapseCheck
from racecar_lab.quick import Quick as Quick
from racecar_lab.reporting import Reporting as Reporting
from racecar_lab.stage import Measured as Measured
from racecar_lab.stage import Stage as Stage
from racecar_lab.stage import Trained as Trained
from racecar_lab.task import Split as Split
from racecar_lab.task import Task as Task
from racecar_lab.training.recipe import Recipe

if TYPE_CHECKING:
    from racecar_lab.datasets import Source
    from racecar_lab.search_space import Search
    from racecar_lab.training.variants import Variant


class Experiment(Generic[C]):
    """One experiment, with a configuration of type C. A subclass reads like a section of the paper; instances have no
    state. It must define ``name``, ``data``, ``network`` and ``weight``."""

    name: ClassVar[str]
    """Name of the experiment on the command line and in its records."""
    version: ClassVar[int] = 1
    """Version of the experiment; a change that makes earlier records incomparable increases it."""
    Config: ClassVar[type[Config]] = Config
    """The class of the experiment's settings; the defaults of its fields are those of a full run."""
    quick: ClassVar[Quick] = Quick()
    """The short form of the experiment, which ``--quick`` runs to show that everything works."""
    variants: ClassVar[tuple[str, ...]] = ("Std", "Ort", "RR")
    """Names of the variants that are trained unless the user names others."""
    seeds: ClassVar[int] = 5
    """Number of seeds of a run, unless the user gives another."""
    claims: ClassVar[tuple[Claim, ...]] = ()
    """The claims that the experiment tests, such as that one variant is better than another; reports give each a
    verdict."""
    search: ClassVar[Search | None] = None
    """The settings that ``racecar search`` tries; None: there is no search."""
    reporting: ClassVar[Reporting] = Reporting()
    """Title, summary, figures and more for its page; all of it is optional."""
    builds_on: ClassVar[str] = ""
    """Name of an experiment that is run first: stages start from its networks, with the same settings and seed, and
    name its stage in ``after``. Finished stages are not trained again. Its search comes first, too."""
    clusters: ClassVar[Clusters | None] = None
    """Groups of runs that are not independent, such as the seeds within a fold; None: all runs are independent."""
    joins: ClassVar[bool] = False
    """True if its network has joins, such as residual additions, which no reverse pass crosses: RR starts again at each
    (mode "auto")."""
    engine: ClassVar[str] = ""
    """Name of the only engine that can train this experiment; it replaces the one that the user names. Empty: any
    can."""

    @property
    def title(self) -> str:
        """The heading of the experiment's page: that in ``reporting``, or else its name."""
        return self.reporting.title or self.name

    def variant(self, name: str) -> Variant:
        """The variant of this name; if the experiment's networks have joins, its RR starts again at each."""
        from racecar_lab.training.variants import variant

        return variant(name, self.joins)

    def configs(self, config: C, folder: Path | None) -> Sequence[C]:
        """The configurations that a run trains, for example one for each network; by default only the given one."""
        return (config,)

    def sources(self, config: C) -> tuple[Source, ...]:
        """The data sets that the data folder must hold for this configuration; by default none."""
        return ()

    def fingerprint(self, config: C, folder: Path | None) -> str:
        """A text that identifies the data of a result: by default the titles of the data sets."""
        return "; ".join(source.title for source in self.sources(config)) or "made from the seed"

    def data(self, config: C, seed: int, folder: Path | None) -> Mapping[str, Task]:
        """The data of all tasks of the experiment: name of a task, such as "A" → its training, test and held-out
        samples. The same seed gives the same data."""
        raise lacks(type(self), "data")

    def network(self, config: C, dropout: float = 0.0) -> nn.Module:
        """The untrained network; its weights are drawn from torch's global random state."""
        raise lacks(type(self), "network")

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
        """The stages of the experiment, which are its trainings, in order; by default one, from fresh weights."""
        return (Stage("A"),)

    def search_for(self, config: C) -> Search | None:
        """The settings that ``racecar search`` tries for a configuration; None: no search. If the reverse loss is a
        plain sum (scale "sum"), λs are those of ``sum_weights``."""
        if self.search is None or self.reverse(config).get("scale") != "sum":
            return self.search
        return replace(self.search, weights={**self.search.weights, **self.search.sum_weights})

    def weight(self, config: C, variant: str) -> float:
        """The default λ of a variant, the weight of its regulariser."""
        raise lacks(type(self), "weight")

    def reverse(self, config: C) -> Mapping[str, Any]:
        """Arguments of ``Racecar``, the library's reverse pass, except mode and fraction. Its ``weight``, of each layer
        or all, is multiplied by λ."""
        return {}

    def orthogonality(self, config: C) -> dict[str, Any]:
        """Arguments of ``orthogonality.srip``, the regulariser of variant Ort."""
        return {}

    def recipe(self, config: C, stage: Stage) -> Recipe:
        """The recipe of a stage: loss, augmentation, snapshots; by default cross-entropy and nothing else."""
        return Recipe()

    def measure(self, config: C, trained: Trained) -> Measured:
        """Measure the trained model of a stage, which is in evaluation mode; by default its accuracy. A search holds
        samples out as ``task.valid``: everything is then measured on these, and nothing on the test set."""
        kind, split = trained.task.evaluated
        return Measured({f"{kind}_accuracy": accuracy(trained.model, split)})

    def collapse_check(self, config: C, trained: Trained) -> CollapseCheck | None:
        """The model and inputs by which a trained net is tested for collapse (the same output for every input); None:
        it is not tested. That is the default if networks take turns, because only the experiment knows how they are
        called."""
        if self.recipe(config, trained.stage).turns:
            return None
        return CollapseCheck(trained.model, trained.task.train.x[:SAMPLES])

    def measure_all(self, each: Iterable[tuple[C, Trained]]) -> Iterator[Measured] | None:
        """Measure nets that were trained as one batched net, if that is faster than one after the other; None: use
        ``measure``.

        Args:
            each: pairs of configuration and finished stage. All share one module, which holds the weights of a net
                until the next pair is taken.
        """
        return None

"""The variants of training: Std, Ort, Pre, RR, lRR, RR1, Lin and two everyday controls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from racecar.orthogonality import BANSAL, Schedule

SCHEDULE_EPOCHS = 200
"""Number of epochs of the training in Bansal et al. (2018), whose schedule of λ has its steps at epochs 20, 50, 70 and
120."""
IN_LOSS = ("reverse", "orthogonality", "own")
"""Kinds of variants that add a regulariser to the loss."""


@dataclass(frozen=True)
class Variant:
    """One of the ways of training that experiments compare, such as Std or RR."""

    name: str
    title: str
    kind: str
    """Kind of method: "plain", "reverse", "orthogonality", "pretrain", "decay", "dropout"; "own" is ``OwnVariant``."""
    mode: str = ""
    """Mode of ``Racecar``, for kind "reverse"; empty for other kinds."""
    meaning: str = ""
    """The quantity that is called λ of this variant, in words; empty if it has none."""
    schedule: Schedule | None = None
    """The schedule of λ over ``SCHEDULE_EPOCHS`` epochs, stretched or compressed to the length of a training;
    None: λ is constant."""

    def schedule_factor(self, progress: float) -> float:
        """The factor by which λ is multiplied when a share ``progress`` of the training is over."""
        if self.schedule is None:
            return 1.0
        return self.schedule.at(int(progress * SCHEDULE_EPOCHS)) / self.schedule.at(0)

    def arguments(self, reverse: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of ``Racecar`` for this variant: those of an experiment, and the mode. Mode "linear" calls
        "weights" the gradient that other modes call "reverse"."""
        linear = self.mode == "linear" and reverse.get("gradient") == "reverse"
        return {**reverse, "mode": self.mode, **({"gradient": "weights"} if linear else {})}


@dataclass(frozen=True)
class OwnVariant(Variant):
    """A variant with a regulariser of an experiment's own, which may have networks that are trained with the network
    that it regularises."""

    kind: str = field(default="own", init=False)
    meaning: str = "λ"
    networks: Mapping[str, Callable[[Any], nn.Module]] = field(kw_only=True)
    """Name of a further network → function of a configuration that makes it, untrained. The experiment's own networks
    are in an ``nn.ModuleDict`` then."""
    regularised: Callable[[Mapping[str, nn.Module], Any], Any] = field(kw_only=True)
    """(all networks of the stage by name, configuration) → the trained network with its regulariser, an
    ``objective.Regularised``. Its submodules, that network and the variant's own ones, are trained by one optimiser."""


VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("Std", "no regulariser", "plain"),
        Variant("Ort", "orthogonality, SRIP (Bansal et al. 2018)", "orthogonality", meaning="β of the spectral norm"),
        Variant(
            "OrtB",
            "orthogonality, SRIP, falling as in Bansal et al. 2018",
            "orthogonality",
            meaning="β of the spectral norm, at first",
            schedule=BANSAL,
        ),
        Variant("Pre", "greedy layer-wise autoencoder pretraining", "pretrain", meaning="epochs per layer"),
        Variant("RR", "racecar, the full reverse pass", "reverse", "full", "λ"),
        Variant("lRR", "racecar, layer by layer", "reverse", "layerwise", "λ"),
        Variant("RR1", "racecar, compared at the input alone", "reverse", "input", "λ"),
        Variant("Lin", "racecar, every layer an isometry along its data", "reverse", "linear", "λ"),
        Variant("WD", "weight decay", "decay", meaning="weight decay"),
        Variant("Drop", "dropout", "dropout", meaning="probability"),
    )
}
BETWEEN_JOINS = Variant("RR", "racecar, the full reverse pass between joins", "reverse", "auto", "λ")
"""The variant RR for a network with joins, such as residual additions: the full reverse pass starts again at each
one."""


def variant(name: str, joins: bool = False) -> Variant:
    """The variant with this name, such as "RR".

    Args:
        joins: the variant is for a network with joins, such as residual additions. No full reverse pass crosses them,
            so RR starts again at each one.
    """
    if name not in VARIANTS:
        raise ValueError(f"no variant {name!r}; the variants are: {', '.join(VARIANTS)}")
    return BETWEEN_JOINS if joins and name == BETWEEN_JOINS.name else VARIANTS[name]

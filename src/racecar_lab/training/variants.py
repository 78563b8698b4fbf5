"""Std, Ort, Pre, RR, lRR, RR1 and two everyday controls: what changes in a training, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from racecar import Every, Racecar
from racecar.orthogonality import BANSAL, Schedule, srip
from racecar_lab.training import distributed


@dataclass(frozen=True)
class Variant:
    """One way of training."""

    name: str
    title: str
    kind: str
    """"plain", "reverse", "orthogonality", "pretrain", "decay" or "dropout"."""
    mode: str = ""
    """Of the reverse pass."""
    meaning: str = ""
    """What its coefficient is; empty if it has none."""
    falls: Schedule | None = None
    """How its coefficient falls over a training that lasts ``PUBLISHED`` epochs; of a shorter one, in proportion."""

    def left(self, done: float) -> float:
        """What the coefficient is multiplied by when a share ``done`` of the training is over."""
        return 1.0 if self.falls is None else self.falls.at(int(done * PUBLISHED)) / self.falls.at(0)


PUBLISHED = 200
"""Epochs that Bansal et al. train, whose schedule has its steps at 20, 50, 70 and 120."""


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
            falls=BANSAL,
        ),
        Variant("Pre", "greedy layer-wise autoencoder pretraining", "pretrain", meaning="epochs per layer"),
        Variant("RR", "racecar, the full reverse pass", "reverse", "full", "λ"),
        Variant("lRR", "racecar, layer by layer", "reverse", "layerwise", "λ"),
        Variant("RR1", "racecar, compared at the input alone", "reverse", "input", "λ"),
        Variant("WD", "weight decay", "decay", meaning="weight decay"),
        Variant("Drop", "dropout", "dropout", meaning="probability"),
    )
}


BETWEEN_JOINS = Variant("RR", "racecar, the full reverse pass between joins", "reverse", "auto", "λ")
"""RR of a network with joins."""


def variant(name: str, joins: bool = False) -> Variant:
    """By its name.

    Args:
        joins: whether it is for a network with joins, over which no full reverse pass leads.
    """
    if name not in VARIANTS:
        raise ValueError(f"no variant {name!r}; the variants are: {', '.join(VARIANTS)}")
    return BETWEEN_JOINS if joins and name == BETWEEN_JOINS.name else VARIANTS[name]


class Regularised(nn.Module):
    """A model whose call also returns what its regulariser says, before the coefficient."""

    noise = 0
    """How many random numbers a call needs: they are given, so that every engine can give the same ones."""

    where = "model."
    """How the names of the model's parameters begin in this module."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    @property
    def terms(self) -> Mapping[str, Tensor]:
        """The parts of the last call's regulariser, by layer."""
        return {}

    def begin(self, step: int) -> bool:
        """Before each step of the training, counted from 0; whether the regulariser is on in it."""
        return True

    def forward(self, *inputs: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        output = self.model(*inputs)
        return output, output.new_zeros(())


class _Reverse(Regularised):
    """RR, lRR and RR1."""

    where = "rr.model."

    def __init__(self, model: nn.Module, example: Any, mode: str, options: Mapping[str, Any], every: int) -> None:
        nn.Module.__init__(self)  # the model is in here once: functional_call gets lost in modules that are shared
        self.rr = Racecar(model, example, mode=mode, **{"weight": 1.0, **options})  # λ is the coefficient
        self.every = Every(self.rr, every)
        # Gradients are averaged over processes, each of which sums over its own part of the batch.
        self.share = distributed.world() if self.rr.scale == "sum" else 1

    @property
    def model(self) -> nn.Module:  # type: ignore[override]
        return self.rr.model

    @property
    def terms(self) -> Mapping[str, Tensor]:
        return self.rr.terms

    def begin(self, step: int) -> bool:
        self.every.load_state_dict({"steps": step})  # a resumed training goes on where it was
        return self.every.step()

    def forward(self, *inputs: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        output, loss = self.rr(*inputs)
        return output, loss * self.share


class _Orthogonal(Regularised):
    """Ort."""

    def __init__(self, model: nn.Module, options: Mapping[str, Any]) -> None:
        super().__init__(model)
        self.options = dict(options)
        self.noise = _count(self.regulariser)

    def regulariser(self, draw: Any) -> Tensor:
        return srip(self.model, draw=draw, **self.options)

    def forward(self, *inputs: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self.model(*inputs), self.regulariser(None if noise is None else _Dealer(noise))


class _Dealer:
    """Deals random numbers that were drawn beforehand."""

    def __init__(self, numbers: Tensor) -> None:
        self.numbers, self.dealt = numbers, 0

    def __call__(self, *shape: int, **like: Any) -> Tensor:
        count = torch.Size(shape).numel()
        part = self.numbers.narrow(-1, self.dealt, count)
        self.dealt += count
        return part.reshape(shape).to(**like)


def _count(use: Any) -> int:
    """How many random numbers a function asks for."""
    asked = 0

    def draw(*shape: int, **like: Any) -> Tensor:
        nonlocal asked
        asked += torch.Size(shape).numel()
        return torch.ones(shape, **like)

    with torch.no_grad():
        use(draw)
    return asked


def regularise(
    model: nn.Module,
    which: Variant,
    example: Tensor | tuple[Tensor, ...],
    reverse: Mapping[str, Any],
    orthogonality: Mapping[str, Any],
    every: int = 1,
) -> Regularised:
    """A model with the regulariser of a variant.

    Args:
        model: on its device.
        which: the variant; those without a term in the loss give a regulariser of 0.
        example: some inputs (N, …) of it, to plan the reverse pass.
        reverse: arguments of ``Racecar`` but mode.
        orthogonality: arguments of ``srip``.
        every: the reverse pass is on in every so-many-th step.
    """
    if which.kind == "reverse":
        return _Reverse(model, example, which.mode, reverse, every)
    if which.kind == "orthogonality":
        return _Orthogonal(model, orthogonality)
    return Regularised(model)

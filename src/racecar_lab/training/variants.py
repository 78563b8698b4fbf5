"""The variants of training: Std, Ort, Pre, RR, lRR, RR1 and two everyday controls, each with its regulariser."""

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
    """The mode of ``Racecar``; empty for other kinds."""
    meaning: str = ""
    """The quantity that the variant's λ is; empty if it has none."""
    schedule: Schedule | None = None
    """The schedule of λ over ``SCHEDULE_EPOCHS`` epochs, stretched or compressed to the length of a training;
    None: λ is constant."""

    def schedule_factor(self, progress: float) -> float:
        """The multiplier of λ when a share ``progress`` of the training is over."""
        if self.schedule is None:
            return 1.0
        return self.schedule.at(int(progress * SCHEDULE_EPOCHS)) / self.schedule.at(0)


SCHEDULE_EPOCHS = 200
"""Length of the training in Bansal et al. (2018), whose schedule has its steps at epochs 20, 50, 70 and 120."""


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
        Variant("WD", "weight decay", "decay", meaning="weight decay"),
        Variant("Drop", "dropout", "dropout", meaning="probability"),
    )
}


BETWEEN_JOINS = Variant("RR", "racecar, the full reverse pass between joins", "reverse", "auto", "λ")
"""The variant RR for a network with joins."""


def variant(name: str, joins: bool = False) -> Variant:
    """The variant with this name.

    Args:
        joins: the variant is for a network with joins, such as residual additions. No full reverse pass crosses them,
            so RR starts again at each one.
    """
    if name not in VARIANTS:
        raise ValueError(f"no variant {name!r}; the variants are: {', '.join(VARIANTS)}")
    return BETWEEN_JOINS if joins and name == BETWEEN_JOINS.name else VARIANTS[name]


class Regularised(nn.Module):
    """A model whose call returns its output and its regulariser, before λ. This base class has a
    regulariser of 0, for variants that add nothing to the loss."""

    noise = 0
    """Number of random numbers in a call's argument ``noise``. The caller draws them, so that all engines can pass the
    same ones."""

    prefix = "model."
    """Prefix of the model's parameter names in this module."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    @property
    def terms(self) -> Mapping[str, Tensor]:
        """The parts of the last call's regulariser, by layer."""
        return {}

    def begin(self, step: int) -> bool:
        """Prepare for a step of the training, counted from 0. Returns whether the regulariser is on in it."""
        return True

    def forward(self, *inputs: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        output = self.model(*inputs)
        return output, output.new_zeros(())


class _Reverse(Regularised):
    """A model with the loss of its reverse pass: RR, lRR and RR1.

    ``rr.weight`` only says which layers count. λ multiplies the loss outside, because batched nets have a λ each, it
    may fade from step to step, and curves show the loss before it. With λ in ``rr.weight``, results round differently.
    """

    prefix = "rr.model."

    def __init__(self, model: nn.Module, example: Any, mode: str, options: Mapping[str, Any], every: int) -> None:
        nn.Module.__init__(self)  # without self.model: functional_call fails on a module that is registered twice
        self.rr = Racecar(model, example, mode=mode, **{"weight": 1.0, **options})
        self.every = Every(self.rr, every)
        # Gradients are averaged over processes, each of which sums over its own part of the batch.
        self.processes = distributed.world() if self.rr.scale == "sum" else 1

    @property
    def model(self) -> nn.Module:  # type: ignore[override]
        return self.rr.model

    @property
    def terms(self) -> Mapping[str, Tensor]:
        return self.rr.terms

    def begin(self, step: int) -> bool:
        self.every.load_state_dict({"steps": step})  # so that a resumed training continues where it was
        return self.every.step()

    def forward(self, *inputs: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        output, loss = self.rr(*inputs)
        return output, loss * self.processes


class _Orthogonal(Regularised):
    """A model with the orthogonality regulariser SRIP of its weights: Ort and OrtB."""

    def __init__(self, model: nn.Module, options: Mapping[str, Any]) -> None:
        super().__init__(model)
        self.options = dict(options)
        self.noise = _count_draws(self.regulariser)

    def regulariser(self, draw: Any) -> Tensor:
        """SRIP, with ``draw(*shape)`` as its source of random numbers; None: torch's."""
        return srip(self.model, draw=draw, **self.options)

    def forward(self, *inputs: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self.model(*inputs), self.regulariser(None if noise is None else _Draws(noise))


class _Draws:
    """A function ``draw(*shape)`` that returns numbers drawn beforehand, each once."""

    def __init__(self, numbers: Tensor) -> None:
        self.numbers, self.position = numbers, 0

    def __call__(self, *shape: int, **like: Any) -> Tensor:
        count = torch.Size(shape).numel()
        part = self.numbers.narrow(-1, self.position, count)
        self.position += count
        return part.reshape(shape).to(**like)


def _count_draws(function: Any) -> int:
    """The number of random numbers that a function takes from its argument ``draw``."""
    count = 0

    def draw(*shape: int, **like: Any) -> Tensor:
        nonlocal count
        count += torch.Size(shape).numel()
        return torch.ones(shape, **like)

    with torch.no_grad():
        function(draw)
    return count


def regularise(
    model: nn.Module,
    variant: Variant,
    example: Tensor | tuple[Tensor, ...],
    reverse: Mapping[str, Any],
    orthogonality: Mapping[str, Any],
    every: int = 1,
) -> Regularised:
    """A model with the regulariser of a variant.

    Args:
        model: on its device.
        variant: those without a term in the loss have a regulariser of 0.
        example: inputs (N, …) of the model, from which the reverse pass is planned.
        reverse: arguments of ``Racecar`` except mode.
        orthogonality: arguments of ``srip``.
        every: the reverse pass is on in every ``every``-th step.
    """
    if variant.kind == "reverse":
        return _Reverse(model, example, variant.mode, reverse, every)
    if variant.kind == "orthogonality":
        return _Orthogonal(model, orthogonality)
    return Regularised(model)

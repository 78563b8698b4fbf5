"""The kinds of training steps that are compared. None has an optimiser: all would share it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, TypeVar

from torch import Tensor

from racecar.bench.workload import Workload
from racecar.racecar import Racecar
from racecar.reverse.settings import Settings

Loss = Callable[[], Tensor]
K = TypeVar("K", bound="Kind")

DEFAULT = Settings()
PLANNED = 8
"""Samples that a plan is made with: it needs no more, and its pass keeps every activation for a moment."""


@dataclass(frozen=True)
class Kind:
    """A kind of training step; this one is the plain step, a subclass adds a regulariser to its loss."""

    fraction: float = 0.0
    """Share of the batch that the reverse pass sees; 0: there is no reverse pass."""
    every: int = 1
    """The regulariser is in every k-th step alone; the steps between are plain."""
    way: ClassVar[str] = "plain"
    """Name of the regulariser in a record, for example "racecar"; "plain" for none."""
    capturable: ClassVar[bool] = True
    """Whether steps of this kind can be captured as a CUDA graph."""

    @property
    def label(self) -> str:
        """Name of this step, with all that differs from the default."""
        slice_ = [str(Fraction(self.fraction).limit_denominator(4096))] if self.fraction else []
        return " ".join([self.way, *self.words(), *slice_, *([f"every {self.every}"] if self.every > 1 else [])])

    def words(self) -> list[str]:
        """Words of the label between way and fraction."""
        return []

    def once(self: K) -> K:
        """This kind with ``every`` = 1, the step with the regulariser: it is compiled, and its memory is measured."""
        return replace(self, every=1)

    def settings(self) -> dict[str, Any]:
        """Entries of a record that this kind alone has."""
        return {}

    def has_floor(self) -> bool:
        """True if a floor is computed for this kind: the ratio to the plain step if matrix products alone took time."""
        return True

    def applies_to(self, workload: Workload) -> bool:
        """Whether this kind of step exists for the model; the record leaves out those that do not."""
        return True

    def forward(self, workload: Workload) -> Callable[[], tuple[Any, Tensor | None]]:
        """A function that runs the model and returns (output, regulariser); None: there is no regulariser."""
        model, args, kwargs = workload.model, workload.args, workload.kwargs
        return lambda: (model(*args, **kwargs), None)

    def loss(self, workload: Workload) -> Loss:
        """The loss of a step as a function that torch.compile takes as one graph: all decisions are made here."""
        forward = self.forward(workload)

        def loss() -> Tensor:
            with workload.autocast():
                output, term = forward()
            task = workload.task_loss(output)
            return task if term is None else task + term

        return with_own_code(loss, self.label)

    def finish(self, loss: Loss, workload: Workload) -> Loss:
        """The loss, after it was compiled: a kind that has an eager part adds it here."""
        return loss


@dataclass(frozen=True)
class ReverseKind(Kind):
    """A step with `Racecar`, every weighted layer constrained."""

    gradient: str = "reverse"
    """``gradient`` of `Racecar`; the label names it where it is not the default of the mode."""
    mode: str = "layerwise"
    """``mode`` of `Racecar`; the label names it where it is not the default."""
    way: ClassVar[str] = "racecar"

    def words(self) -> list[str]:
        mode = [] if self.mode == DEFAULT.mode else [self.mode]
        return mode if self.gradient == Settings(mode=self.mode).reach else [*mode, self.gradient]

    def settings(self) -> dict[str, Any]:
        return {"gradient": self.gradient, "mode": self.mode}

    def has_floor(self) -> bool:
        return (self.gradient, self.mode) == (DEFAULT.reach, DEFAULT.mode)

    def forward(self, workload: Workload) -> Callable[[], tuple[Any, Tensor]]:
        few, args, kwargs = workload.first_samples(PLANNED), workload.args, workload.kwargs
        example = few.kwargs or few.args
        rr = Racecar(workload.model, example, mode=self.mode, fraction=self.fraction, gradient=self.gradient)
        return lambda: rr(*args, **kwargs)


PLAIN = Kind()


def reverse_kinds(
    fractions: Sequence[float],
    everys: Sequence[int] = (1,),
    gradients: Sequence[str] = ("reverse",),
    modes: Sequence[str] = ("layerwise",),
) -> list[Kind]:
    """The plain step, then a step for every combination of the settings of the reverse pass."""
    return [PLAIN] + [
        ReverseKind(fraction, every, gradient, mode)
        for mode in modes
        for gradient in gradients_of(mode, gradients)
        for every in everys
        for fraction in fractions
    ]


def gradients_of(mode: str, gradients: Sequence[str]) -> Sequence[str]:
    """Settings of `gradient` to time with a mode: those asked for that it accepts, or else its default."""
    if mode != "linear":
        return gradients
    return [gradient for gradient in gradients if gradient != "reverse"] or [Settings(mode=mode).reach]


def with_own_code(loss: Loss, label: str) -> Loss:
    """The function with a code object of its own, because torch.compile caches (and limits recompilations) by it."""
    name = "_".join(["loss", *label.replace("/", "_").split()])
    loss.__code__ = loss.__code__.replace(co_name=name)
    return loss

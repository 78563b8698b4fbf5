"""The kinds of training steps that are compared. None has an optimiser, which all would share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module

import torch
from torch import Tensor
from torch.nn import functional as F

from racecar.bench.workload import Workload
from racecar.orthogonality import srip
from racecar.orthogonality.weights import find
from racecar.racecar import Racecar
from racecar.reverse.settings import Settings

LossFunction = Callable[[torch.nn.Module, Tensor, float], tuple[Tensor, Tensor]]
"""(model, input, fraction) → output and loss, λ included."""
WAYS = ("plain", "racecar", "by hand", "srip", "srip as published")


@dataclass(frozen=True)
class Kind:
    """A kind of step."""

    way: str
    """One of WAYS."""
    fraction: float = 0.0
    """Share of the batch that the reverse pass sees."""
    every: int = 1
    """Only every k-th step has the reverse pass."""
    gradient: str = "reverse"
    """``gradient`` of `Racecar`; the label names it if it is not the default of the mode."""
    mode: str = "layerwise"
    """``mode`` of `Racecar`; the label names it if it is not the default."""

    @property
    def label(self) -> str:
        usual = Settings(mode=self.mode).reach
        words = [self.way, *([] if self.mode == DEFAULT.mode else [self.mode])]
        words += [] if self.gradient == usual else [self.gradient]
        if self.fraction:
            words.append(str(Fraction(self.fraction).limit_denominator(4096)))
        if self.every > 1:
            words.append(f"every {self.every}")
        return " ".join(words)

    @property
    def eager(self) -> bool:
        """Whether it stays as its authors run it, whatever is compiled or captured around it."""
        return self.way == "srip as published"


DEFAULT = Settings()
PLAIN = Kind("plain")
PLANNED = 8
"""Samples that a plan is made with: it needs no more, and its pass keeps every activation for a moment."""


def kinds(
    fractions: Sequence[float],
    everys: Sequence[int] = (1,),
    hand: bool = True,
    ort: bool = True,
    gradients: Sequence[str] = ("reverse",),
    modes: Sequence[str] = ("layerwise",),
) -> list[Kind]:
    """All kinds, plain first. ``everys``: on which steps the reverse pass runs; by hand it runs on all of them, and its
    gradient is the default one."""
    losses = [(reach, mode) for mode in modes for reach in _reaches(mode, gradients)]
    kinds = [PLAIN, *(Kind("racecar", *one, *loss) for loss in losses for one in _slices(fractions, everys))]
    kinds += [Kind("by hand", fraction) for fraction in fractions] if hand else []
    kinds += [Kind("srip"), Kind("srip as published")] if ort else []
    return kinds


def _reaches(mode: str, gradients: Sequence[str]) -> Sequence[str]:
    """The gradients, of those that are asked for, that a mode takes; its default if it takes none of them."""
    if mode != "linear":
        return gradients
    return [one for one in gradients if one != "reverse"] or [Settings(mode=mode).reach]


def _slices(fractions: Sequence[float], everys: Sequence[int]) -> list[tuple[float, int]]:
    return [(fraction, every) for every in everys for fraction in fractions]


def loss_function(kind: Kind, workload: Workload) -> Callable[[], Tensor]:
    """The loss of a step with the regulariser, as a function that can be compiled; None of it is left to decide.

    Raises:
        LookupError: the kind does not exist for this model.
    """
    model, args, kwargs = workload.model, workload.args, workload.kwargs
    if kind.way == "plain":

        def loss() -> Tensor:
            with workload.autocast():
                output = model(*args, **kwargs)
            return workload.task(output)

    elif kind.way == "racecar":
        few = workload.few(PLANNED)
        rr = Racecar(model, few[1] or few[0], mode=kind.mode, fraction=kind.fraction, gradient=kind.gradient)

        def loss() -> Tensor:
            with workload.autocast():
                output, term = rr(*args, **kwargs)
            return workload.task(output) + term

    elif kind.way == "by hand":
        step, fraction = hand_written(workload, kind.fraction), kind.fraction

        def loss() -> Tensor:
            with workload.autocast():
                output, term = step(model, args[0], fraction)
            return workload.task(output) + term

    else:
        ort = srip_as_published if kind.eager else srip_ours

        def loss() -> Tensor:
            with workload.autocast():
                output = model(*args, **kwargs)
            return workload.task(output) + ort(model)

    # A code object of its own: the compiler keeps what it made, and its limit of versions, by code object.
    loss.__code__ = loss.__code__.replace(co_name="_".join(["loss", *kind.label.replace("/", "_").split()]))
    return loss


def hand_written(workload: Workload, fraction: float) -> LossFunction:
    """The hand-written step, if there is one and it computes the loss that ours computes."""
    # By name: the steps by hand are for nets of the laboratory, which the library does not import.
    step: LossFunction | None = import_module("racecar_lab.bench.by_hand").find(workload.model)
    if step is None or workload.kwargs or len(workload.args) != 1:
        raise LookupError("nobody wrote one for this model")
    (x,), _ = workload.few(PLANNED)
    buffers = {name: buffer.clone() for name, buffer in workload.model.named_buffers()}
    losses = []
    with torch.no_grad(), torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
        for call in (Racecar(workload.model, x, fraction=fraction), lambda x: step(workload.model, x, fraction)):
            torch.manual_seed(0)
            losses.append(float(call(x)[1]))
            for name, buffer in workload.model.named_buffers():
                buffer.copy_(buffers[name])
    if abs(losses[0] - losses[1]) > 1e-2 * abs(losses[0]):  # TF32 and the order of sums, no more
        raise RuntimeError(f"by hand the loss is {losses[1]:.6g}, ours is {losses[0]:.6g}: their times mean nothing")
    return step


def srip_ours(model: torch.nn.Module) -> Tensor:
    """Our SRIP, in the form of the published one."""
    return srip(model, squared=True, side="smaller")


def srip_as_published(model: torch.nn.Module, draw: Callable[..., Tensor] = torch.rand) -> Tensor:
    """SRIP as Bansal et al. published it for Wide ResNets: one layer after the other, σ² of the smaller Gram matrix.

    With G = W Wᵀ − I and a random u: v = Gᵀu, u = Gv, both of length 1, and σ = uᵀGv.
    """
    total: Tensor | float = 0.0
    for layer in find(model, None):
        w = layer.weight.flatten(1)
        if w.shape[0] > w.shape[1]:
            w = w.t()
        gram = w @ w.t() - torch.eye(len(w), device=w.device, dtype=w.dtype)
        u = F.normalize(draw(len(w), device=w.device, dtype=w.dtype), dim=0)
        v = F.normalize(gram.t() @ u, dim=0)
        u = F.normalize(gram @ v, dim=0)
        total = total + (u @ (gram @ v)).square()
    assert isinstance(total, Tensor)
    return total

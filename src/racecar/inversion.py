"""Find an input for which a model gives a wanted output, by gradient steps that begin where the reverse pass ends."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from racecar.plan.outputs import named_tensors
from racecar.racecar import Racecar
from racecar.reverse.way_arguments import GivenTensors
from racecar.support.eval_mode import eval_mode
from racecar.support.progress import bar
from racecar.support.torch_private import before_compile


class Inverted(NamedTuple):
    """An input that was found by gradient steps."""

    x: Tensor
    """(N, …), of the shape of the model's input."""
    errors: Tensor
    """(steps + 1, N): for each sample Σ(model(x) − y)² / Σy² before each step, and after the last one."""


def invert(
    rr: Racecar,
    y: Any,
    steps: int = 100,
    *,
    lr: float = 0.05,
    start: Tensor | None = None,
    given: GivenTensors | None = None,
    progress: bool | None = False,
) -> Inverted:
    """Find an input x for which model(x) is near y: gradient steps on x that start from ``rr.reverse(y)``.

        x, errors = invert(rr, y, steps=50)

    The model is in evaluation mode meanwhile, and nothing in it is changed. The steps are Adam's, on the sum over the
    samples of Σ(model(x) − y)² / Σy², so that no sample depends on the others.

    Args:
        rr: a Racecar of a model with one floating-point input.
        y: the wanted output, (N, …), or several outputs, as :meth:`racecar.Racecar.reverse` takes them.
        steps: number of gradient steps; 0: only the start is judged.
        lr: Adam's learning rate, about how far an element of x moves in a step; 0.05 is for inputs of variance 1.
        start: the input to start from, (N, …); None: ``rr.reverse(y, given=given)``.
        given: as for :meth:`racecar.Racecar.reverse`.
        progress: True for a bar, None for a bar on a terminal and lines elsewhere, False for nothing.
    """
    rr = _checked(rr, steps, lr)
    with eval_mode(rr):
        begin = rr.reverse(y, given=given) if start is None else start
        if not isinstance(begin, Tensor) or not begin.is_floating_point():
            raise TypeError("invert needs a model with one floating-point input: start must be a tensor of its shape")
        x = begin.detach().clone().requires_grad_()
        optimiser = torch.optim.Adam([x], lr)
        errors = []
        with torch.enable_grad(), bar("invert", steps, progress) as advance:
            for _ in range(steps):
                error = _errors(rr, x, y)
                (x.grad,) = torch.autograd.grad(error.sum(), [x])  # the weights get no gradient
                optimiser.step()
                errors.append(error.detach())
                advance(1, f"error {float(errors[-1].mean()):.3g}" if progress is not False else "")
        with torch.no_grad():
            errors.append(_errors(rr, x, y))
    return Inverted(x.detach(), torch.stack(errors))


def _checked(rr: Racecar, steps: int, lr: float) -> Racecar:
    plain = before_compile(rr)
    if not isinstance(plain, Racecar):
        raise TypeError(f"rr must be a Racecar, not {type(rr).__name__}: invert(Racecar(model, x), y)")
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
        raise ValueError(f"steps must be a whole number of at least 0, not {steps!r:.80}")
    if not isinstance(lr, (int, float)) or not lr > 0:
        raise ValueError(f"lr must be a number above 0, not {lr!r:.80}")
    return plain


def _errors(rr: Racecar, x: Tensor, y: Any) -> Tensor:
    """Σ(model(x) − y)² / Σy² of each sample, over all outputs that y gives: (N,)."""
    try:
        output = dict(named_tensors(rr.model(x)))
    except RuntimeError as error:
        raise ValueError(f"start: the model does not accept an input of shape {tuple(x.shape)}: {error}") from error
    wanted = dict.fromkeys(output, y) if isinstance(y, Tensor) else dict(named_tensors(y))
    for name, tensor in wanted.items():
        if name not in output or output[name].shape != tensor.shape:
            shapes = {name: tuple(one.shape) for name, one in output.items()}
            raise ValueError(f"y: {tuple(tensor.shape)} is not the shape of an output of the model, which are {shapes}")
    errors = torch.stack([(output[name] - one).square().flatten(1).sum(1) for name, one in wanted.items()]).sum(0)
    energy = torch.stack([one.square().flatten(1).sum(1) for one in wanted.values()]).sum(0)
    return errors / torch.where(energy == 0, 1, energy)

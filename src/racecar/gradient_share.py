"""Hold the gradient of a regulariser at a fixed share of the task's, so that one number suits other nets and data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import Any

import torch
from torch import Tensor, nn


class GradientShare:
    """A factor for the racecar loss with which its gradient has this share of the norm of the task's gradient.

        share = GradientShare(model.parameters(), 0.03)
        for x, y in batches:
            output, loss = rr(x)
            share(task_loss(output, y), loss).backward()

    It takes the place of a search for λ: the λ of ``rr`` cancels out. Both norms are over the parameters that the
    gradient of the loss reaches: in mode "linear" the weights of the constrained layers. They are measured in the first
    step and then in every ``every``-th one, with one more backward pass through each loss; the factor stays as it is in
    between. In data-parallel training every process measures on its own batch.

    With a gradient scaler: ``scaler.scale(share(task, loss)).backward()``. With :class:`racecar.Every` the share is
    that of a step in which the reverse pass runs.

    Args:
        parameters: those of the model, as an optimiser takes them.
        share: the norm of the loss's gradient over that of the task's gradient, for example 0.03.
        every: steps from one measurement to the next.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], share: float, every: int = 100) -> None:
        if isinstance(parameters, Tensor):
            raise TypeError("parameters must be those of a model, as model.parameters() gives them, not one tensor")
        self.parameters = list(parameters)
        if not self.parameters or not all(isinstance(parameter, Tensor) for parameter in self.parameters):
            raise TypeError("parameters must be those of a model: GradientShare(model.parameters(), 0.03)")
        if not (isinstance(share, (int, float)) and 0 < share < math.inf):
            raise ValueError(f"share must be a number above 0, such as 0.03, not {share!r}")
        if index(every) < 1:
            raise ValueError(f"every must be at least 1, not {every}")
        self.share, self.every = float(share), index(every)
        self.steps = 0
        """Number of calls so far in which the loss had a gradient."""
        self.factor = torch.zeros(())
        """Factor of the loss in the last call: detached, shape ()."""

    def __call__(self, task: Tensor, loss: Tensor) -> Tensor:
        """``task`` + factor · ``loss``, shape (); to be called in every training step, before ``backward``.

        Args:
            task, loss: scalars, the loss as a Racecar returns it. Where it has no gradient, in evaluation or in steps
                that leave the reverse pass out, nothing is measured.
        """
        if not (torch.is_grad_enabled() and task.requires_grad and loss.requires_grad):
            return task + self.factor.to(loss) * loss
        if self.steps % self.every == 0:
            self.factor = self.share * self._ratio(task, loss)
        self.steps += 1
        return task + self.factor.to(loss) * loss

    def _ratio(self, task: Tensor, loss: Tensor) -> Tensor:
        """Norm of the task's gradient over that of the loss's, shape (); 0 where the latter is 0."""
        trained = [parameter for parameter in self.parameters if parameter.requires_grad]
        of_task, of_loss = _norms(task, trained), _norms(loss, trained)
        reached = of_loss > 0  # compiled, the gradient of a parameter that the loss does not reach is 0, and not None
        return torch.where(reached.any(), (of_task * reached).norm() / of_loss.norm(), 0.0)

    def state_dict(self) -> dict[str, Any]:
        """Steps and factor, for a checkpoint."""
        return {"steps": self.steps, "factor": float(self.factor)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take steps and factor from a checkpoint, so that training goes on as without the break."""
        try:
            steps, factor = index(state["steps"]), float(state["factor"])
        except (KeyError, TypeError, ValueError):
            steps, factor = -1, math.nan
        if steps < 0 or not factor >= 0:
            raise ValueError(f"state must be what GradientShare.state_dict() gave, not {state!r:.80}")
        self.steps, self.factor = steps, torch.tensor(factor, dtype=torch.float64)


def _norms(scalar: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Norm of the gradient for each parameter, (number of parameters,); 0 where the scalar does not depend on it."""
    gradients = torch.autograd.grad(scalar, parameters, retain_graph=True, allow_unused=True)
    zero = scalar.new_zeros(())
    return torch.stack(
        [zero if gradient is None else gradient.norm(dtype=zero.dtype).to(zero.device) for gradient in gradients]
    )

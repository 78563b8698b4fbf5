"""Training many nets at once: a step is written for one net and done for all of them by ``torch.func.vmap``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, grad_and_value, vmap
from torch.nn import functional as F
from torch.utils._pytree import tree_map

from racecar_lab.streams import continual_backprop
from racecar_lab.streams.draws import normal
from racecar_lab.streams.method import Method, MethodSetting
from racecar_lab.streams.metrics import metrics
from racecar_lab.streams.nets import Design, Tensors, Watched, run, stream_net
from racecar_lab.streams.penalties import PENALTIES, TINY
from racecar_lab.streams.resets import count_activity, dormant_units, renew
from racecar_lab.streams.reverse import make_racecar, output_and_loss
from racecar_lab.streams.updates import OPTIMISERS, Moments, decoupled, no_moments, shrink_and_perturb
from racecar_lab.training.steps.cuda_graph import Captured
from racecar_lab.training.steps.recorded import record

MEASURED = 100
"""Number of steps between two measurements of the factor by which coupling "ratio" multiplies a penalty's gradient."""
EVALUATED = 8
"""Number of nets that are evaluated at once, to save memory. All sixty of Kumar et al.'s nets at once took 30 GB for
256 pictures."""
SLOTS, DIRECTIONS, RANDOM = 256, 128, 192
"""Random draws are numbered: each step has ``SLOTS`` numbers, the first ones for the parameters, those from
``DIRECTIONS`` on for the vectors u of spectral regularisation, those from ``RANDOM`` on for random h."""
State = dict[str, Any]
"""All that training changes, of one net, or of a stack with a first dimension for the nets: nested dicts of tensors."""


class StreamStack:
    """E nets of one method and one design, each with its own seed and setting.

    Args:
        method: how the nets are trained.
        design: their layers before the head.
        shape: shape of a sample, (C, H, W) or (D,).
        classes: number of classes in each task; labels are 0 to ``classes`` − 1.
        seeds: a seed for each net; a net does not depend on the other nets.
        settings: a setting for each net.
        optimiser: "adam" or "sgd".
        quick: record a step once and repeat the recording, which saves the time of Python and of launching kernels: on
            a GPU compiled and as a CUDA graph (0.29 ms for a step of sixty plainly trained MLPs on an H200), on a CPU
            as a list of operations.
    """

    def __init__(
        self,
        method: Method,
        design: Design,
        shape: Sequence[int],
        classes: int,
        seeds: Sequence[int],
        settings: Sequence[MethodSetting],
        *,
        optimiser: str = "adam",
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        quick: bool = True,
    ) -> None:
        if len(seeds) != len(settings):
            raise ValueError(f"{len(seeds)} seeds and {len(settings)} settings: every net needs one of each")
        self.method, self.update = method, OPTIMISERS[optimiser]
        self.steps = 0
        self.device, self.quick = torch.device(device), quick
        self.net = stream_net(design, shape, classes, method.activation, method.norm).to(self.device, dtype)
        self.eval_net = copy.deepcopy(self.net).eval()
        self.racecar = make_racecar(self.net, shape, method.reverse) if method.reverse else None
        self.penalty = PENALTIES[method.penalty] if method.penalty else None
        self.settings = torch.tensor(list(settings), dtype=dtype, device=self.device)
        self._periods = {int(setting.second) for setting in settings} if method.change == "redo" else set()
        initial = vmap(self._initial_state)(torch.tensor(list(seeds), device=self.device))
        self.state: State = tree_map(partial(torch.clone, memory_format=torch.contiguous_format), initial)
        self._call = Captured(self._step_all) if quick and self.device.type == "cuda" else self._step_all
        self._steps: dict[bool, Callable[..., Tensor]] = {}
        self._size: list[torch.Size] | None = None

    def step(self, x: Tensor, y: Tensor, earlier: Tensor | None = None) -> Tensor:
        """Train every net on its batch, without waiting for the device.

        Args:
            x, y: samples (E, N, *shape) and labels (E, N), of the same shape in all steps.
            earlier: samples of an earlier task, for a method with ``h_from="earlier"``; None: x.

        Returns:
            The task's loss and the accuracy of every net on its batch before the step, (E, 2).
        """
        self.steps += 1
        due = any(self.steps % period == 0 for period in self._periods)
        batch = x, y, x if earlier is None else earlier
        if self._size not in (None, sizes := [tensor.shape for tensor in batch]):
            raise ValueError(f"a batch of another size, {sizes}, after {self._size}: leave out the rest of an epoch")
        self._size = sizes
        return self._call(due, *batch)

    @torch.no_grad()
    def new_task(self, zero_head: bool = False) -> None:
        """Prepare for a new task; to be called before each. The method "Reset" draws new nets here.

        Args:
            zero_head: set the head's parameters and their moments to 0.
        """
        if self.method.change == "reset":
            overwrite(self.state, vmap(self._initial_state)(self.state["key"], self.state["step"]))
        if zero_head:
            for tensors in (self.state["parameters"], *self.state["moments"].values()):
                for name in ("head.weight", "head.bias"):
                    tensors[name].zero_()

    @torch.no_grad()
    def outputs(self, x: Tensor) -> Tensor:
        """Logits (E, N, classes) of every net for its samples (E, N, *shape), in evaluation mode."""
        forward = vmap(lambda p, b, x: run(self.eval_net, p, b, x)[0], chunk_size=EVALUATED)
        return forward(self.state["parameters"], self.state["buffers"], x)

    @torch.no_grad()
    def metrics(self, x: Tensor) -> Tensors:
        """Measures of every net by name (see ``metrics.metrics``), each (E,), for samples (E, N, *shape), in evaluation
        mode."""
        measure = vmap(partial(metrics, self.eval_net), chunk_size=EVALUATED)
        return measure(self.state["parameters"], self.state["buffers"], x)

    def state_dict(self) -> dict[str, Any]:
        """The state of all nets, for a checkpoint."""
        return {"state": self.state, "steps": self.steps}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue with the state of a checkpoint, as ``state_dict`` returned it."""
        with torch.no_grad():
            overwrite(self.state, saved["state"])
        self.steps = saved["steps"]

    @torch.no_grad()
    def _step_all(self, due: bool, *batch: Tensor) -> Tensor:
        """Train every net by one step on its batch (x, y, earlier); ``due`` is True if ReDo checks at least one net in
        this step. Returns the task's loss and the accuracy before the step, (E, 2)."""
        if due not in self._steps:
            self._steps[due] = self._prepared(due, batch)
        return self._steps[due](self.state, self.settings, *batch)

    def _prepared(self, due: bool, batch: Sequence[Tensor]) -> Callable[..., Tensor]:
        """A function (state, settings, batch) → losses and accuracies that does one step of all nets and changes their
        state in place. It is recorded if ``quick``; ``due`` is True if ReDo checks at least one net in the step."""

        def step(state: State, settings: Tensor, *batch: Tensor) -> Tensor:
            after, measured = vmap(partial(self._step, due))(state, settings, *batch)
            overwrite(state, after)
            return measured

        if not self.quick:
            return step
        recorded = record(step, tree_map(torch.clone, self.state), self.settings, *batch)
        return torch.compile(recorded, dynamic=False, fullgraph=True) if self.device.type == "cuda" else recorded

    def _initial_state(self, key: Tensor, step: Tensor | None = None) -> State:
        """The state of a newly initialised net with this random key; ``step`` is the number of the steps that were done
        before, so that a net that replaces another is drawn anew; None: 0."""
        step = torch.zeros_like(key) if step is None else step
        number = step * SLOTS
        parameters = {name: self.net.fresh(key, number, name) for name, _ in self.net.named_parameters()}
        state: State = {
            "key": key,
            "step": step,
            "parameters": parameters,
            "buffers": {name: buffer.clone() for name, buffer in self.net.named_buffers()},
            "moments": no_moments(parameters, each=self.method.change == "continual-backprop"),
            "penalty": {},
            "change": {},
            "factor": key.new_zeros((), dtype=self.settings.dtype),
        }
        if self.penalty:
            state["penalty"] = self.penalty.initial_state(self.net, parameters, key, number + DIRECTIONS)
        if self.method.change == "redo":
            biases = [parameters[f"{name}.bias"] for name in self.net.layers[:-1]]
            state["change"] = {f"{i}": torch.zeros_like(bias) for i, bias in enumerate(biases)}
        elif self.method.change == "continual-backprop":
            state["change"] = continual_backprop.initial_state(self.net, parameters)
        return state

    def _step(
        self, due: bool, state: State, setting: Tensor, x: Tensor, y: Tensor, earlier: Tensor
    ) -> tuple[State, Tensor]:
        """Train one net by one step. Returns its state after the step, and its loss and accuracy before it, (2,).

        Args:
            due: whether this is a step in which ReDo checks at least one net of the stack.
            setting: learning rate, weight and second number, (3,).
            x, y, earlier: samples (N, *shape), their labels (N,), and samples of an earlier task.
        """
        lr, weight, second = setting.unbind()
        key, parameters, step = state["key"], state["parameters"], state["step"] + 1
        number = step * SLOTS
        state = {**state, "step": step}
        (_, (logits, loss, watched, buffers)), gradients = self._task(parameters, state["buffers"], x, y, weight)
        penalty_gradients: Tensors = {}
        if (penalty := self.penalty) is not None:
            inputs = self._inputs(parameters, state["buffers"], watched, earlier, key, number)
            penalty_state = state["penalty"] = penalty.advance(self.net, parameters, state["penalty"])
            penalty_gradients = grad(lambda p: penalty.value(self.net, p, penalty_state, inputs))(parameters)
            if self.method.coupling == "ratio":
                measured = weight * self._ratio(gradients, penalty_gradients)
                state["factor"] = torch.where((step - 1) % MEASURED == 0, measured, state["factor"])
            if self.method.coupling != "decoupled":
                factor = state["factor"] if self.method.coupling == "ratio" else weight
                gradients = {name: g + factor * penalty_gradients[name] for name, g in gradients.items()}
        moments: Moments
        parameters, moments = self.update(parameters, gradients, state["moments"], lr)
        if self.method.coupling == "decoupled":
            parameters = decoupled(parameters, penalty_gradients, lr * weight)
        fresh = partial(self.net.fresh, key, number)
        if self.method.change == "shrink-and-perturb":
            parameters = shrink_and_perturb(self.net, parameters, fresh, weight, second)
        elif self.method.change == "redo":
            sums = state["change"] = count_activity(state["change"], watched.units, step, second)
            if due:
                dormant = dormant_units(sums, step, weight, second)
                parameters, moments = renew(self.net, parameters, moments, dormant, fresh)
        elif self.method.change == "continual-backprop":
            chosen, state["change"] = continual_backprop.choose_units(
                self.net, parameters, state["change"], watched.units, weight, second
            )
            rows = {name: (1, *p.shape[1:]) for name, p in parameters.items()}
            parameters, moments = renew(self.net, parameters, moments, chosen, lambda name: fresh(name, rows[name]))
        accuracy = (logits.argmax(1) == y).to(loss.dtype).mean()
        state |= {"parameters": parameters, "moments": moments, "buffers": buffers}
        return state, torch.stack((loss, accuracy))

    def _task(self, parameters: Tensors, buffers: Tensors, x: Tensor, y: Tensor, weight: Tensor) -> Any:
        """The minimised loss with (logits, the task's loss, tensors of the forward pass, buffers after it), and its
        gradients by parameter. The minimised loss is the task's, with the paper's reverse loss if the method has it."""

        def minimised(parameters: Tensors) -> tuple[Tensor, tuple[Tensor, Tensor, Watched, Tensors]]:
            if self.racecar is None:
                logits, watched, after = run(self.net, parameters, buffers, x)
                loss = F.cross_entropy(logits, y)
                return loss, (logits, loss, watched, after)
            logits, reverse = output_and_loss(self.racecar, parameters, buffers, x)
            loss = F.cross_entropy(logits, y)
            return loss + weight * reverse, (logits, loss, Watched([], []), buffers)

        gradients, value = grad_and_value(minimised, has_aux=True)(parameters)
        return value, gradients

    def _inputs(
        self, parameters: Tensors, buffers: Tensors, watched: Watched, earlier: Tensor, key: Tensor, number: Tensor
    ) -> list[Tensor]:
        """The input h of every layer for the penalty ``linear``: of the first samples of this batch or of the earlier
        one, or random numbers of the same shapes, as the method says."""
        count = max(1, round(self.method.fraction * len(watched.inputs[0])))
        if self.method.h_from == "earlier":
            watched = run(self.net, parameters, buffers, earlier[:count])[1]
        inputs = [h[:count].detach() for h in watched.inputs]
        if self.method.h_from == "random":
            return [normal(key, number + RANDOM + i, h.shape, h.dtype) for i, h in enumerate(inputs)]
        return inputs

    def _ratio(self, gradients: Tensors, penalty_gradients: Tensors) -> Tensor:
        """Norm of the task's gradient divided by that of the penalty's, shape (); each over the weights of all layers
        but the head."""
        names = [f"{name}.weight" for name in self.net.layers[:-1]]
        task, penalty = (
            torch.stack([tensors[name].square().sum() for name in names]).sum().sqrt()
            for tensors in (gradients, penalty_gradients)
        )
        return task / penalty.clamp_min(TINY)


def overwrite(state: State, other: State) -> None:
    """Copy the values of ``other`` into the tensors of ``state``, in place, because recorded steps read and write these
    tensors."""
    for name, value in state.items():
        if isinstance(value, dict):
            overwrite(value, other[name])
        else:
            value.copy_(other[name])

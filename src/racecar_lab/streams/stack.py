"""Many nets trained at once: every step is written for one net, and done for all by ``torch.func.vmap``."""

from __future__ import annotations

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
from racecar_lab.streams.resets import count_activity, redo
from racecar_lab.streams.reverse import output_and_loss, planned
from racecar_lab.streams.updates import OPTIMISERS, Moments, decoupled, no_moments, shrink_and_perturb
from racecar_lab.training.steps.cuda_graph import Captured
from racecar_lab.training.steps.recorded import record

MEASURED = 100
"""Steps for which the factor of "ratio" is held."""
SLOTS, DIRECTIONS, RANDOM = 256, 128, 192
"""Numbers of draws in a step, of which the first are those of the parameters; where those of spectral regularisation's
directions begin, and those of random h."""
State = dict[str, Any]
"""Of one net, or of all with a first dimension for the nets: nested dicts of tensors."""


class StreamStack:
    """E nets of one method and one design, each with its own seed and setting.

    Args:
        method, design: what is trained.
        shape: of a sample, (C, H, W) or (D,).
        classes: of all tasks; labels are 0 to ``classes`` − 1.
        seeds: one for each net; a net does not depend on the others.
        settings: likewise.
        optimiser: "adam" or "sgd".
        quick: repeat recorded steps: compiled and as a CUDA graph, or on a CPU without Python per operation. Compiled,
            sixty MLPs with plain training took 0.29 ms a step on an H200, of which each launch of a kernel is a part.
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
        self.steps, self._due = 0, False
        self.device, self.quick = torch.device(device), quick
        self.net = stream_net(design, shape, classes, method.activation, method.norm).to(self.device, dtype)
        self.still = stream_net(design, shape, classes, method.activation, method.norm).to(self.device, dtype).eval()
        self.racecar = planned(self.net, shape, method.reverse) if method.reverse else None
        self.penalty = PENALTIES[method.penalty] if method.penalty else None
        self.settings = torch.tensor(list(settings), dtype=dtype, device=self.device)
        self._periods = {int(one.second) for one in settings} if method.change == "redo" else set()
        begun = vmap(self._begin)(torch.tensor(list(seeds), device=self.device))
        self.state: State = tree_map(partial(torch.clone, memory_format=torch.contiguous_format), begun)
        self._captured = Captured(lambda *given: self._whole(self._due, *given))
        self._steps: dict[bool, Callable[..., Tensor]] = {}
        self._size: list[torch.Size] | None = None

    def step(self, x: Tensor, y: Tensor, earlier: Tensor | None = None) -> Tensor:
        """Train every net on its batch, without waiting for the device.

        Args:
            x, y: samples (E, N, *shape) and labels (E, N), of one size in all steps.
            earlier: samples of an earlier task, for the method whose h comes from them; None: x.

        Returns:
            The task's loss and the accuracy on the batch, as they were before the step, (E, 2).
        """
        self.steps += 1
        self._due = any(self.steps % period == 0 for period in self._periods)
        given = x, y, x if earlier is None else earlier
        if self._size not in (None, sizes := [one.shape for one in given]):
            raise ValueError(f"a batch of another size, {sizes}, after {self._size}: leave out the rest of an epoch")
        self._size = sizes
        if self.quick and self.device.type == "cuda":
            return self._captured(self._due, *given)
        return self._whole(self._due, *given)

    @torch.no_grad()
    def new_task(self, zero_head: bool = False) -> None:
        """To be called before every task: "reset" makes new nets.

        Args:
            zero_head: the head's parameters and their moments become 0.
        """
        if self.method.change == "reset":
            overwrite(self.state, vmap(self._begin)(self.state["key"], self.state["step"]))
        if zero_head:
            for each in (self.state["parameters"], *self.state["moments"].values()):
                for name in ("head.weight", "head.bias"):
                    each[name].zero_()

    @torch.no_grad()
    def outputs(self, x: Tensor) -> Tensor:
        """Logits (E, N, classes) of samples (E, N, *shape), in evaluation mode."""
        return vmap(lambda p, b, x: run(self.still, p, b, x)[0])(self.state["parameters"], self.state["buffers"], x)

    @torch.no_grad()
    def metrics(self, x: Tensor) -> Tensors:
        """``metrics`` of every net, (E,) each, for samples (E, N, *shape), in evaluation mode."""
        return vmap(partial(metrics, self.still))(self.state["parameters"], self.state["buffers"], x)

    def state_dict(self) -> dict[str, Any]:
        """All that a checkpoint needs."""
        return {"state": self.state, "steps": self.steps}

    def load_state_dict(self, kept: dict[str, Any]) -> None:
        """Go on from there."""
        with torch.no_grad():
            overwrite(self.state, kept["state"])
        self.steps = kept["steps"]

    @torch.no_grad()
    def _whole(self, due: bool, *given: Tensor) -> Tensor:
        """A step of all nets."""
        if due not in self._steps:
            self._steps[due] = self._prepared(due, given)
        return self._steps[due](self.state, self.settings, *given)

    def _prepared(self, due: bool, given: Sequence[Tensor]) -> Callable[..., Tensor]:
        """A step, of a state that it changes in place, settings and what else is given; recorded if ``quick``."""

        def step(state: State, settings: Tensor, *given: Tensor) -> Tensor:
            after, measured = vmap(partial(self._step, due))(state, settings, *given)
            overwrite(state, after)
            return measured

        if not self.quick:
            return step
        recorded = record(step, tree_map(torch.clone, self.state), self.settings, *given)
        return torch.compile(recorded, dynamic=False, fullgraph=True) if self.device.type == "cuda" else recorded

    def _begin(self, key: Tensor, step: Tensor | None = None) -> State:
        """One net before its first step; after step number ``step`` a new one instead."""
        step = torch.zeros_like(key) if step is None else step
        names = [name for name, _ in self.net.named_parameters()]
        number = step * SLOTS
        parameters = {name: self.net.fresh(name, key, number + i) for i, name in enumerate(names)}
        state: State = {
            "key": key,
            "step": step,
            "parameters": parameters,
            "buffers": {name: one.clone() for name, one in self.net.named_buffers()},
            "moments": no_moments(parameters, each=self.method.change == "continual-backprop"),
            "penalty": self.penalty.begin(self.net, parameters, key, number + DIRECTIONS) if self.penalty else {},
            "change": {},
            "factor": key.new_zeros((), dtype=self.settings.dtype),
        }
        if self.method.change == "redo":
            biases = [parameters[f"{name}.bias"] for name in self.net.layers[:-1]]
            state["change"] = {f"{i}": torch.zeros_like(one) for i, one in enumerate(biases)}
        elif self.method.change == "continual-backprop":
            state["change"] = continual_backprop.begin(self.net, parameters)
        return state

    def _step(
        self, due: bool, state: State, setting: Tensor, x: Tensor, y: Tensor, earlier: Tensor
    ) -> tuple[State, Tensor]:
        """One net's step: its state afterwards, and loss and accuracy (2,).

        Args:
            due: whether ReDo may have to check.
            setting: learning rate, strength and second number, (3,).
        """
        lr, strength, second = setting.unbind()
        key, parameters, step = state["key"], state["parameters"], state["step"] + 1
        number = step * SLOTS
        state = {**state, "step": step}
        (_, (logits, loss, watched, buffers)), gradients = self._task(parameters, state["buffers"], x, y, strength)
        pull: Tensors = {}
        if (penalty := self.penalty) is not None:
            inputs = self._inputs(parameters, state["buffers"], watched, earlier, key, number)
            kept = state["penalty"] = penalty.advance(self.net, parameters, state["penalty"])
            pull = grad(lambda p: penalty.value(self.net, p, kept, inputs))(parameters)
            if self.method.how == "ratio":
                now = strength * self._ratio(gradients, pull)
                state["factor"] = torch.where((step - 1) % MEASURED == 0, now, state["factor"])
            if self.method.how != "decoupled":
                factor = state["factor"] if self.method.how == "ratio" else strength
                gradients = {name: g + factor * pull[name] for name, g in gradients.items()}
        moments: Moments
        parameters, moments = self.update(parameters, gradients, state["moments"], lr)
        if self.method.how == "decoupled":
            parameters = decoupled(parameters, pull, lr * strength)
        if self.method.change == "shrink-and-perturb":
            parameters = shrink_and_perturb(self.net, parameters, key, number, strength, second)
        elif self.method.change == "redo":
            sums = state["change"] = count_activity(state["change"], watched.units, step, second)
            if due:
                args = (self.net, parameters, moments, sums, key, number, step, strength, second)
                parameters, moments = redo(*args)
        elif self.method.change == "continual-backprop":
            args = (self.net, parameters, moments, state["change"], watched.units, key, number, strength, second)
            parameters, moments, state["change"] = continual_backprop.replace_units(*args)
        accuracy = (logits.argmax(1) == y).to(loss.dtype).mean()
        state |= {"parameters": parameters, "moments": moments, "buffers": buffers}
        return state, torch.stack((loss, accuracy))

    def _task(self, parameters: Tensors, buffers: Tensors, x: Tensor, y: Tensor, strength: Tensor) -> Any:
        """What is minimised with (logits, the task's loss, what was watched, buffers afterwards), and its gradients.
        With the paper's reverse loss that is a part of what is minimised."""

        def minimised(parameters: Tensors) -> tuple[Tensor, tuple[Tensor, Tensor, Watched, Tensors]]:
            if self.racecar is None:
                logits, watched, after = run(self.net, parameters, buffers, x)
                loss = F.cross_entropy(logits, y)
                return loss, (logits, loss, watched, after)
            logits, reverse = output_and_loss(self.racecar, parameters, buffers, x)
            loss = F.cross_entropy(logits, y)
            return loss + strength * reverse, (logits, loss, Watched([], []), buffers)

        gradients, value = grad_and_value(minimised, has_aux=True)(parameters)
        return value, gradients

    def _inputs(
        self, parameters: Tensors, buffers: Tensors, watched: Watched, earlier: Tensor, key: Tensor, number: Tensor
    ) -> list[Tensor]:
        """h of every layer, as the method has it."""
        count = max(1, round(self.method.fraction * len(watched.inputs[0])))
        if self.method.along == "earlier":
            watched = run(self.net, parameters, buffers, earlier[:count])[1]
        inputs = [h[:count].detach() for h in watched.inputs]
        if self.method.along == "random":
            return [normal(key, number + RANDOM + i, h.shape, h.dtype) for i, h in enumerate(inputs)]
        return inputs

    def _ratio(self, gradients: Tensors, pull: Tensors) -> Tensor:
        """Norm of the task's gradient over that of the penalty's, both for the weights of all layers but the head."""
        names = [f"{name}.weight" for name in self.net.layers[:-1]]
        task, penalty = (
            torch.stack([each[name].square().sum() for name in names]).sum().sqrt() for each in (gradients, pull)
        )
        return task / penalty.clamp_min(TINY)


def overwrite(state: State, other: State) -> None:
    """In place: recorded steps read and write these tensors."""
    for name, one in state.items():
        if isinstance(one, dict):
            overwrite(one, other[name])
        else:
            one.copy_(other[name])

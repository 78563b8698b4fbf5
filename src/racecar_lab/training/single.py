"""One training: its network, or several that take turns, each with its own step."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from racecar_lab.training import distributed, rng
from racecar_lab.training.batches import Batches, Draws
from racecar_lab.training.nets import Nets
from racecar_lab.training.objective import Objective
from racecar_lab.training.spec import Training, TrainingOptions
from racecar_lab.training.steps.cuda_graph import CudaGraph
from racecar_lab.training.steps.eager import Compiled, Eager
from racecar_lab.training.steps.recorded import Recorded


def _use_graphs(options: TrainingOptions) -> bool:
    return options.graphs and not options.compile and options.device.startswith("cuda")


def kind_of_step(training: Training, options: TrainingOptions) -> type[Eager]:
    """The kind of step that a training's options and recipe ask for: compiled, recorded or eager. If CUDA graphs are
    asked for, they are made of it afterwards."""
    if options.compile:
        return Compiled
    config, recipe = training.config, training.recipe
    fading = recipe.fade or training.variant.schedule is not None
    changing = fading or config.every > 1 or options.scalars is not None  # TensorBoard shows the terms of each step
    unsupported = _use_graphs(options) or config.precision != "float32" or distributed.launched()
    return Recorded if recipe.steady and not changing and not unsupported else Eager


class Single(Nets):
    """The network of one training, or its networks that take turns, with a step for each turn."""

    batches: Batches

    def __init__(self, training: Training, options: TrainingOptions) -> None:
        super().__init__([training], options)
        self.model, self.networks, config = training.model, training.networks, training.config
        for turn in self.turns:
            if turn.network not in self.networks:
                known = ", ".join(filter(None, self.networks)) or "one, without a name"
                raise ValueError(f"a turn trains network {turn.network!r}; the networks are: {known}")
        if config.precision == "float16" and _use_graphs(options):
            raise ValueError("--cuda-graphs cannot record float16's scaling of the loss: use --set precision=bfloat16")
        layout = torch.channels_last if training.task.train.x.dim() == 4 else None
        if layout is not None:  # the fastest layout for convolutions, on a CPU, too
            self.model.to(memory_format=layout)  # type: ignore[call-overload]
        turns = sorted(self.turns, key=lambda turn: turn.regularised)  # a network's regularised turn names the most
        self._together = {turn.network: training.trained(turn) for turn in turns}
        """Name of a network that turns train → all networks that are trained with it, itself among them."""
        self._trained = {
            name: [p for network in networks for p in network.parameters() if p.requires_grad]
            for name, networks in self._together.items()
        }
        self._ask_for_gradients(*self._trained)
        objectives = {turn: Objective(training, turn) for turn in self.turns}
        self.batches = Batches(training, [objectives[turn] for turn in self.turns], self.device, layout)
        kind = kind_of_step(training, options)
        steps = {turn: kind(objective, training, self.batches, options) for turn, objective in objectives.items()}
        self.distinct_steps = list(steps.values())
        """One step for each turn; a turn that the recipe lists twice has one step and one optimiser."""
        calls: dict[Any, Callable[..., Tensor]] = dict(steps)
        if _use_graphs(options):
            calls = {turn: CudaGraph(step) for turn, step in steps.items()}
        self.steps = [calls[turn] for turn in self.turns]
        self.average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(config.ema)) if config.ema else None
        torch.manual_seed(rng.seed_of("stage", training.seed, training.name))
        if self.device.type == "cuda":
            gc.collect()  # garbage of earlier runs in this process is not this run's memory
            torch.cuda.reset_peak_memory_stats(self.device)

    def _ask_for_gradients(self, *names: str) -> None:
        """Let autograd compute the gradients of the networks with these names, and of no others."""
        self.model.requires_grad_(False)  # first, because networks may share parameters
        for name in names:
            for parameter in self._trained[name]:
                parameter.requires_grad_(True)

    def train_step(self, turn: int, step: int, draws: Draws) -> Tensor:
        if len(self._trained) > 1:
            self._ask_for_gradients(self.turns[turn].network)
        losses = self.steps[turn](step, draws)
        if self.average is not None and turn == len(self.turns) - 1:
            self.average.update_parameters(self.model)
        return losses

    def train(self) -> None:
        self.model_of(0).train()
        self.model.eval()
        for networks in self._together.values():
            for network in networks:
                network.train()

    def model_of(self, i: int) -> nn.Module:
        """The model for evaluation: the trained one, or the moving average of its weights if there is one. The losses
        on the curves are those of the trained one."""
        return self.model if self.average is None else self.average.module

    def finite(self) -> list[bool]:
        return [bool(torch.stack([p.isfinite().all() for p in self.model_of(0).parameters()]).all())]

    def terms(self) -> Mapping[str, Tensor]:
        return {
            f"{step.turn.network}.{layer}" if step.turn.network else layer: term
            for step in self.distinct_steps
            for layer, term in step.objective.regularised.terms.items()
        }

    def end(self) -> int | None:
        self._ask_for_gradients(*self._trained)
        if self.average is not None:
            self.model.load_state_dict(self.average.module.state_dict())
        self.model.eval()
        self.steps = []  # CUDA graphs hold memory
        return torch.cuda.max_memory_allocated(self.device) if self.device.type == "cuda" else None

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "steps": [step.state() for step in self.distinct_steps],
            "average": None if self.average is None else self.average.state_dict(),
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
        }

    def load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        for step, saved in zip(self.distinct_steps, state["steps"], strict=True):
            step.load(saved)
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        torch.set_rng_state(state["random"])
        if state["random_cuda"] is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(state["random_cuda"], self.device)

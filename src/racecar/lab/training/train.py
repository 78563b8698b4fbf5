"""One training stage: regularised or fine-tuning; mixed precision, compile, checkpoint, resume."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from racecar.lab.config import Config
from racecar.lab.experiment import Loss, Split, Task, accuracy
from racecar.lab.training import augment, checkpoint, distributed, rng
from racecar.lab.training.curves import Curves, Diverged
from racecar.lab.training.optimiser import Fused, fading, load_optimiser, make_optimiser, set_step_size, step_size
from racecar.lab.training.steps import recorded
from racecar.lab.training.steps.cuda_graph import Captured
from racecar.lab.training.variants import Regularised
from racecar.support.processes import is_rank_zero
from racecar.support.progress import TELL, Regularly

Report = Callable[[int, int, str], None]
"""(steps done, steps in all, what to show) → None."""


@dataclass
class Options:
    """How a stage is run; none of it changes what comes out, but for rounding."""

    device: str = "cpu"
    compile: bool = False
    graphs: bool = False
    """On a GPU: replay a step's kernels as CUDA graphs, which helps nets that wait for their launches."""
    interval: float = 60.0
    """Seconds between checkpoints."""
    resume: bool = True
    """Go on from a checkpoint if there is one; else start the stage anew."""
    report: Report | None = None
    scalars: Any = None
    """A TensorBoard writer."""


@dataclass
class Outcome:
    """What a training leaves behind beside the weights."""

    curves: dict[str, list[float]]
    steps: int
    step_s: float
    """Seconds for a step."""
    peak_memory: int | None
    history: dict[str, Tensor] = field(default_factory=dict)


class Trainer:
    """Trains one model; its whole state can be put into a file and taken up again."""

    def __init__(
        self,
        module: Regularised,
        task: Task,
        config: Config,
        *,
        name: str,
        seed: int,
        epochs: int,
        loss: Loss,
        shift: int = 0,
        flip: bool = True,
        coefficient: float = 0.0,
        fade: bool = False,
        weight_decay: float = 0.0,
        look: Callable[[nn.Module, Task], dict[str, Tensor]] | None = None,
        looks: int = 0,
        steady: bool = False,
        options: Options | None = None,
    ) -> None:
        self.options = options or Options()
        self.device = torch.device(self.options.device)
        self.module, self.config, self.name, self.seed, self.epochs = module, config, name, seed, epochs
        self.task = task.to(self.device)
        self.loss, self.shift, self.flip, self.coefficient, self.fade = loss, shift, flip, coefficient, fade
        self.per_epoch = rng.steps_per_epoch(len(task.train), config.batch)
        self.total = self.per_epoch * epochs
        self.look, self.look_every = look, max(1, self.total // looks) if looks else 0
        self.history: list[dict[str, Tensor]] = []
        rewritten = self.options.compile or config.precision != "float32" or distributed.launched()
        changing = fade or config.every > 1 or self.options.scalars is not None  # TensorBoard shows the terms, too
        on_gpu = self.device.type == "cuda"
        self.captured = Captured(self._whole) if self.options.graphs and not self.options.compile and on_gpu else None
        repeats = steady and not rewritten and not changing and self.captured is None
        self.recorded = recorded.Step(module, loss, coefficient) if repeats else None
        self.optimiser = make_optimiser(module.model.parameters(), config, weight_decay, fused=repeats)
        self.fused = Fused(self.optimiser) if repeats and config.optimiser != "sgd" else None
        half = config.precision == "float16" and on_gpu
        if half and self.captured is not None:
            raise ValueError("--cuda-graphs cannot record float16's scaling of the loss: use --set precision=bfloat16")
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=half)
        self.average = (
            AveragedModel(module.model, multi_avg_fn=get_ema_multi_avg_fn(config.ema)) if config.ema else None
        )
        self._graphs = self.options.compile and self.options.graphs and on_gpu
        self._layout = torch.channels_last if on_gpu and task.train.x.dim() == 4 else None
        if self._layout is not None:  # what convolutions are fastest with there
            module.model.to(memory_format=self._layout)  # type: ignore[call-overload]
        self.curves = Curves(epochs)
        self.step = 0
        torch.manual_seed(rng.seed_of("stage", seed, name))

    def run(self, path: Path | None = None) -> Outcome:
        """Train to the end, from the checkpoint if it is there. Raises Diverged where the loss stops being finite."""
        if path is not None and path.exists():
            self.load(path)
        if self.device.type == "cuda":
            gc.collect()  # what earlier runs of this process left behind, in circles, is not this run's memory
            torch.cuda.reset_peak_memory_stats(self.device)
        self.module.train()
        call: nn.Module = distributed.wrap(self.module)
        if self.options.compile:
            call = torch.compile(call, mode="reduce-overhead" if self._graphs else None)  # type: ignore[assignment]
        saved, prepared, due = time.monotonic(), -1, Regularly(TELL)
        self.curves.go()
        while self.step < self.total:
            epoch, within = divmod(self.step, self.per_epoch)
            if epoch != prepared:
                order, noise, moves = self._epoch(epoch)
                numbers = self._numbers(epoch) if self.captured is not None else None
                prepared = epoch
            if self.look_every and self.step % self.look_every == 0:
                self._look()
            one = (None if drawn is None else drawn[within] for drawn in (noise, moves, numbers))
            self._step(call, order[within], *one)
            self.step += 1
            if self.step % self.per_epoch == 0 and self.curves.due(epoch):
                self._point(epoch)
            if path is not None and time.monotonic() - saved >= self.options.interval and self.step < self.total:
                self.curves.pause()
                self.save(path)
                self.curves.go()
                saved = time.monotonic()
            if self.options.report is not None and due():  # an epoch may be long
                self.options.report(self.step, self.total, "")
        if not finite(self.measured):
            raise Diverged("the weights were not finite any more at the end")
        if self.look_every:
            self._look()
        if self.average is not None:
            self.module.model.load_state_dict(self.measured.state_dict())
        self.module.eval()
        self.captured = None  # its recordings hold memory, and it holds this trainer
        memory = torch.cuda.max_memory_allocated(self.device) if self.device.type == "cuda" else None
        history = {name: torch.stack([one[name] for one in self.history]) for name in (self.history or [{}])[0]}
        return Outcome(self.curves.points, self.total, self.curves.step_s, memory, history)

    @property
    def measured(self) -> nn.Module:
        """What is measured, meanwhile and at the end: the moving average of the weights if there is one. The losses on
        the curves alone are those of the steps, which the weights themselves make."""
        return self.module.model if self.average is None else self.average.module

    def _epoch(self, epoch: int) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """All that is random in an epoch, on the device: indices, noise, and moves of pictures."""
        name, batch = (self.seed, self.name, epoch), self.config.batch
        order = rng.order(len(self.task.train), batch, *name).to(self.device)
        noise = rng.noise(self.module.noise, self.per_epoch, *name).to(self.device) if self.module.noise else None
        moves = augment.moves(self.shift, order.shape, *name, flip=self.flip).to(self.device) if self.shift else None
        return order, noise, moves

    def _numbers(self, epoch: int) -> Tensor:
        """Learning rate and coefficient of every step of an epoch, (steps, 2), on the device."""
        steps = range(epoch * self.per_epoch, (epoch + 1) * self.per_epoch)
        numbers = [(step_size(self.config, step, self.total), self._coefficient(step)) for step in steps]
        return torch.tensor(numbers, device=self.device)

    def _coefficient(self, step: int) -> float:
        return self.coefficient * (fading(step, self.total) if self.fade else 1.0)

    def _step(
        self,
        call: nn.Module,
        chosen: Tensor,
        noise: Tensor | None,
        moves: Tensor | None,
        numbers: Tensor | None = None,
    ) -> None:
        reversed_ = self.module.begin(self.step)
        if self.captured is not None:
            losses = self.captured(reversed_, chosen, noise, moves, numbers)
        else:
            set_step_size(self.optimiser, step_size(self.config, self.step, self.total))
            losses = self._update(call, chosen, noise, moves, self._coefficient(self.step))
        if self.average is not None:
            self.average.update_parameters(self.module.model)
        self.curves.add(losses)

    def _whole(self, chosen: Tensor, noise: Tensor | None, moves: Tensor | None, numbers: Tensor) -> Tensor:
        """A step in which nothing but tensors changes from time to time."""
        set_step_size(self.optimiser, numbers[0])
        return self._update(self.module, chosen, noise, moves, numbers[1])

    def _update(
        self, call: nn.Module, chosen: Tensor, noise: Tensor | None, moves: Tensor | None, coefficient: float | Tensor
    ) -> Tensor:
        """Change the weights; returns the loss of the task and the regulariser, (2,)."""
        chosen = distributed.share(chosen)
        train = self.task.train
        whole = len(chosen) == len(train)  # then in their order
        x, y = (train.x, train.y) if whole else (train.x[chosen], train.y[chosen])
        if moves is not None:
            x = augment.move(x, distributed.share(moves), self.shift)
        if self._layout is not None:
            x = x.contiguous(memory_format=self._layout)
        recorded = self.recorded
        losses = self._gradients(call, x, y, noise, coefficient) if recorded is None else recorded(x, y, noise)
        if self.config.clip:
            self.scaler.unscale_(self.optimiser)
            nn.utils.clip_grad_norm_(self.module.model.parameters(), self.config.clip)
        if self.fused is not None:
            self.fused.step()
        else:
            self.scaler.step(self.optimiser)
            self.scaler.update()
        return losses

    def _gradients(
        self, call: nn.Module, x: Tensor, y: Tensor, noise: Tensor | None, coefficient: float | Tensor
    ) -> Tensor:
        """Leaves the gradients with the parameters; returns the loss of the task and the regulariser, (2,)."""
        if self._graphs:  # the tensors of the step before may be overwritten
            torch.compiler.cudagraph_mark_step_begin()
        with self._precision():
            output, regulariser = call(x, noise)
            task = self.loss(output, y)
        total = task if self.coefficient == 0 else task + coefficient * regulariser
        self.optimiser.zero_grad(set_to_none=True)
        self.scaler.scale(total).backward()
        return torch.stack((task.detach().float(), regulariser.detach().float()))

    def _precision(self) -> Any:
        if self.config.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, getattr(torch, self.config.precision))

    def _point(self, epoch: int) -> None:
        task, regulariser = self.curves.point(epoch)
        if self.task.valid is not None:
            self.curves.note("valid_accuracy", self._accuracy(self.task.valid))
        if self.options.report is not None:
            self.options.report(self.step, self.total, f"loss {task:.4g}, regulariser {regulariser:.4g}")
        if self.options.scalars is not None:
            for name, values in self.curves.points.items():
                if name != "epoch":
                    self.options.scalars.add_scalar(name, values[-1], epoch + 1)
            for name, term in self.module.terms.items():
                self.options.scalars.add_scalar(f"terms/{name}", float(term), epoch + 1)
        self.curves.go()

    def _accuracy(self, split: Split) -> float:
        value = accuracy(self.measured.eval(), split)
        self.measured.train()
        return value

    def _look(self) -> None:
        self.curves.pause()
        with torch.no_grad():
            assert self.look is not None
            seen = self.look(self.measured.eval(), self.task)
        self.history.append({name: tensor.detach().cpu().clone() for name, tensor in seen.items()})
        self.measured.train()
        self.curves.go()

    def save(self, path: Path) -> None:
        """The whole state, into a file that is there whole or not at all."""
        if not is_rank_zero():
            return
        state = {
            "step": self.step,
            "model": self.module.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "scaler": self.scaler.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "curves": self.curves.state(),
            "history": self.history,
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
        }
        checkpoint.write(path, state)

    def load(self, path: Path) -> None:
        """Go on from a file that ``save`` wrote."""
        with checkpoint.reading(path) as state:
            self.step = state["step"]
            self.module.model.load_state_dict(state["model"])
            load_optimiser(self.optimiser, state["optimiser"])
            self.scaler.load_state_dict(state["scaler"])
            if self.average is not None:
                self.average.load_state_dict(state["average"])
            self.curves.load(state["curves"], self.device)
            self.history = state["history"]
            torch.set_rng_state(state["random"])
            if state["random_cuda"] is not None and self.device.type == "cuda":
                torch.cuda.set_rng_state(state["random_cuda"], self.device)


def finite(model: nn.Module) -> bool:
    """Whether all parameters are."""
    return bool(torch.stack([parameter.isfinite().all() for parameter in model.parameters()]).all())

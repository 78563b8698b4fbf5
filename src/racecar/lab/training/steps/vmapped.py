"""E nets as one batched net: every parameter and every buffer has a first dimension E."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from racecar.lab.experiment import Stage, Task, accuracy
from racecar.lab.running.jobs import Job
from racecar.lab.running.work import decay, strength
from racecar.lab.training import augment, checkpoint, rng
from racecar.lab.training.curves import POINTS, short
from racecar.lab.training.optimiser import fading, load_optimiser, make_optimiser, set_step_size, step_size
from racecar.lab.training.steps.cuda_graph import Captured
from racecar.lab.training.steps.recorded import record
from racecar.lab.training.train import Outcome
from racecar.lab.training.variants import Regularised
from racecar.support.progress import TELL, Regularly


class Batched:
    """E nets as one: every parameter and every buffer has a first dimension E.

    Args:
        members: jobs, and what they train on; of one seed it is the same.
        module: the first net with its regulariser, on the device; the others go through it, and it is overwritten.
        states: the first weights and buffers of all nets.
        stage: of all jobs.
        graphs: on a GPU: replay a step as a CUDA graph.
    """

    def __init__(
        self,
        members: Sequence[tuple[Job, Task]],
        module: Regularised,
        states: Sequence[Mapping[str, Tensor]],
        stage: Stage,
        device: torch.device,
        graphs: bool = False,
    ) -> None:
        jobs = [job for job, _ in members]
        self.jobs, self.stage, self.device = jobs, stage, device
        self.config, self.experiment = jobs[0].config, jobs[0].experiment
        self.module = module
        moved = {job.seed: task.to(device) for job, task in {job.seed: (job, task) for job, task in members}.values()}
        self.tasks, self.seeds = [moved[job.seed] for job in jobs], list(moved)
        self.which = torch.tensor([self.seeds.index(job.seed) for job in jobs], device=device)
        """Of every net, the place of its seed among the seeds."""
        self.shift, self.flip = self.experiment.shift(self.config), self.experiment.flips(self.config)
        self.fade = self.experiment.fades(self.config)
        self.x = torch.stack([task.train.x for task in moved.values()])
        self.y = torch.stack([task.train.y for task in moved.values()])
        stacked = {name: torch.stack([one[name].detach() for one in states]).to(device) for name in states[0]}
        self.parameters = {name: stacked[name] for name, _ in module.model.named_parameters()}
        self.buffers = {name: stacked[name] for name, _ in module.model.named_buffers()}
        self.coefficients = torch.tensor([strength(job, stage) for job in jobs], device=device)
        self.epochs = stage.epochs or self.config.epochs
        self.per_epoch = rng.steps_per_epoch(self.x.shape[1], self.config.batch)
        self.total, self.step, self.seconds = self.per_epoch * self.epochs, 0, 0.0
        self.parts = self._parts()
        self.optimisers = [
            make_optimiser(tensors, jobs[start].config, decay(jobs[start], stage)) for start, tensors in self.parts
        ]
        self.points: list[Tensor] = []
        self.sums, self.count = torch.zeros(2, len(jobs), device=device), 0
        self.finite = torch.ones(len(jobs), dtype=torch.bool)
        self.history: list[list[dict[str, Tensor]]] = []
        self.valid: list[list[float]] = []
        self.look_every = (
            max(1, self.total // self.experiment.looks) if self.experiment.looks and stage.regularised else 0
        )
        self._recorded: dict[bool, Callable[..., Any]] = {}
        self.captured = Captured(self._whole) if graphs and device.type == "cuda" else None

    def _parts(self) -> list[tuple[int, list[Tensor]]]:
        """Nets of one step size and weight decay stand together: where they start, and views of their parameters."""
        keys = [(job.config.lr, decay(job, self.stage)) for job in self.jobs]
        starts = [i for i, key in enumerate(keys) if i == 0 or key != keys[i - 1]]
        return [
            (start, [tensor[start:end] for tensor in self.parameters.values()])
            for start, end in zip(starts, [*starts[1:], len(keys)], strict=True)
        ]

    def losses(
        self,
        parameters: dict[str, Tensor],
        buffers: dict[str, Tensor],
        x: Tensor,
        y: Tensor,
        coefficient: Tensor,
        noise: Tensor,
    ) -> Any:
        """Of one net: what is minimised, its two parts, and the buffers afterwards."""
        buffers = {name: one.clone() for name, one in buffers.items()}  # the net changes them in place
        given = {f"{self.module.where}{name}": value for name, value in (parameters | buffers).items()}
        output, regulariser = functional_call(self.module, given, (x, noise if self.module.noise else None))
        task = self.experiment.loss(output, y)
        return task + coefficient * regulariser, (torch.stack((task, regulariser)).detach(), buffers)

    def gradients(self, on: bool, *args: Any) -> Any:
        """Gradients and losses of all nets. Where no CUDA graph repeats them, by operations that were recorded once,
        with the regulariser on and with it off: no Python per layer."""
        if on not in self._recorded:
            self.module.train()
            function = vmap(grad_and_value(self.losses, has_aux=True))
            if self.captured is not None:
                return function(*args)
            self._recorded[on] = record(function, *args)
        return self._recorded[on](*args)

    def _whole(self, chosen: Tensor, noise: Tensor, moves: Tensor, numbers: Any) -> Tensor:
        """A step of all nets, in which nothing but numbers changes from time to time; returns the losses (E, 2)."""
        x, y = self._batch(chosen, moves)
        strengths = self.coefficients * numbers[-1]
        args = self.parameters, self.buffers, x, y, strengths, noise
        gradients, (_, (losses, buffers)) = self.gradients(self._on, *args)
        for name, buffer in self.buffers.items():
            buffer.copy_(buffers[name])
        self._update(gradients, numbers)
        return losses

    def _step(self, *given: Any) -> Tensor:
        """One step; whether the regulariser is on in it hangs on its number."""
        self._on = self.module.begin(self.step)
        return self._whole(*given) if self.captured is None else self.captured(self._on, *given)

    def _batch(self, chosen: Tensor, moves: Tensor) -> tuple[Tensor, Tensor]:
        """Samples and labels (E, batch, …)."""
        rows = self.which.unsqueeze(1)
        x, y = self.x[rows, chosen], self.y[rows, chosen]
        if self.shift:
            x = augment.move(x.flatten(0, 1), moves.flatten(0, 1), self.shift).view_as(x)
        return x, y

    def run(self, path: Path, interval: float, report: Callable[[int, int, str], None]) -> None:
        """Train to the end, from the checkpoint if it is there."""
        if path.exists():
            self.load(path)
        every = max(1, -(-self.epochs // POINTS))
        saved, prepared, began, due = time.monotonic(), -1, time.perf_counter(), Regularly(TELL)
        while self.step < self.total:
            epoch, within = divmod(self.step, self.per_epoch)
            if epoch != prepared:
                order, noise, moves = self._epoch(epoch)
                numbers = self._numbers(epoch)
                prepared = epoch
            if self.look_every and self.step % self.look_every == 0:
                self._look()
            self.sums += self._step(order[:, within], noise[:, within], moves[:, within], numbers[within]).t()
            self.count += 1
            self.step += 1
            if self.step % self.per_epoch == 0 and ((epoch + 1) % every == 0 or epoch + 1 == self.epochs):
                self.seconds += time.perf_counter() - began
                self._point()
                report(self.step, self.total, f"mean loss {float(self.points[-1][0].nanmean()):.4g}")
                began = time.perf_counter()
            if self.step == self.total or time.monotonic() - saved >= interval:  # at the end: to be written in peace
                self.save(path)
                saved = time.monotonic()
            if due():
                report(self.step, self.total, "")
        for tensor in self.parameters.values():
            self.finite &= tensor.isfinite().flatten(1).all(1).cpu()
        if self.look_every:
            self._look()
        self.captured = None  # its recordings hold memory, and it holds this batch

    def _epoch(self, epoch: int) -> tuple[Tensor, Tensor, Tensor]:
        """Indices (E, steps, batch), random numbers (E, steps, count) and moves of pictures (E, steps, batch, 3): each
        net's own, as if it were alone."""
        name, samples, batch = self.stage.name, self.x.shape[1], self.config.batch
        order = torch.stack([rng.order(samples, batch, seed, name, epoch) for seed in self.seeds])
        count = max(1, self.module.noise)
        noise = torch.stack([rng.noise(count, self.per_epoch, seed, name, epoch) for seed in self.seeds])
        moves = order[..., :0]
        if self.shift:
            shape = order.shape[1:]
            moves = torch.stack([augment.moves(self.shift, shape, s, name, epoch, self.flip) for s in self.seeds])
        return tuple(one.to(self.device)[self.which] for one in (order, noise, moves))  # type: ignore[return-value]

    def _numbers(self, epoch: int) -> Any:
        """Of every step of an epoch the step size of each part, and what coefficients are multiplied by; on the device
        where a graph reads them there."""
        numbers = [
            [
                *(step_size(self.jobs[start].config, step, self.total) for start, _ in self.parts),
                fading(step, self.total) if self.fade else 1.0,
            ]
            for step in range(epoch * self.per_epoch, (epoch + 1) * self.per_epoch)
        ]
        return numbers if self.captured is None else torch.tensor(numbers, device=self.device)

    def _update(self, gradients: dict[str, Tensor], numbers: Any) -> None:
        if self.config.clip:  # each net by its own norm
            square = sum(g.flatten(1).square().sum(1) for g in gradients.values())
            factor = (self.config.clip / (torch.as_tensor(square).sqrt() + 1e-6)).clamp(max=1.0)
            gradients = {n: g * factor.view(-1, *(1,) * (g.dim() - 1)) for n, g in gradients.items()}
        for i, ((start, tensors), optimiser) in enumerate(zip(self.parts, self.optimisers, strict=True)):
            for tensor, gradient in zip(tensors, gradients.values(), strict=True):
                tensor.grad = gradient[start : start + len(tensor)]
            set_step_size(optimiser, numbers[i])
            optimiser.step()

    def _point(self) -> None:
        means = (self.sums / self.count).cpu()
        self.finite &= means.isfinite().all(0)
        self.points.append(means)
        self.sums, self.count = torch.zeros_like(self.sums), 0
        if self.tasks[0].valid is not None:
            self.valid.append([self._accuracy(i) for i in range(len(self.jobs))])

    def _accuracy(self, i: int) -> float:
        split = self.tasks[i].valid
        assert split is not None
        return accuracy(self.unstack(i).eval(), split)

    def _look(self) -> None:
        seen = []
        for i, task in enumerate(self.tasks):
            model = self.unstack(i).eval()
            with torch.no_grad():
                seen.append({name: one.cpu() for name, one in self.experiment.look(model, task).items()})
        self.history.append(seen)

    def unstack(self, i: int) -> nn.Module:
        """Net i by itself, until the next one takes its place."""
        model = self.module.model
        with torch.no_grad():
            for name, tensor in (*model.named_parameters(), *model.named_buffers()):
                tensor.copy_((self.parameters | self.buffers)[name][i])
        return model

    def outcome(self, i: int) -> Outcome:
        """What net i leaves behind; its time is its share of all."""
        every = max(1, -(-self.epochs // POINTS))
        epochs = [min((j + 1) * every, self.epochs) for j in range(len(self.points))]
        curves = {
            "epoch": [float(epoch) for epoch in epochs],
            "train_loss": [short(float(point[0, i])) for point in self.points],
            "regulariser": [short(float(point[1, i])) for point in self.points],
        }
        if self.valid:
            curves["valid_accuracy"] = [short(values[i]) for values in self.valid]
        looks = [seen[i] for seen in self.history]
        history = {name: torch.stack([look[name] for look in looks]) for name in (looks or [{}])[0]}
        return Outcome(curves, self.total, self.seconds / max(1, self.total) / len(self.jobs), None, history)

    def save(self, path: Path) -> None:
        state = {
            "ids": [job.ids[self.stage.name] for job in self.jobs],
            "step": self.step,
            "seconds": self.seconds,
            "parameters": self.parameters,
            "buffers": self.buffers,
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
            "points": self.points,
            "sums": self.sums,
            "count": self.count,
            "finite": self.finite,
            "history": self.history,
            "valid": self.valid,
        }
        checkpoint.write(path, state)

    def load(self, path: Path) -> None:
        with checkpoint.reading(path) as state, torch.no_grad():
            for mine, kept in ((self.parameters, state["parameters"]), (self.buffers, state["buffers"])):
                for name, tensor in mine.items():
                    tensor.copy_(kept[name])
            for optimiser, kept in zip(self.optimisers, state["optimisers"], strict=True):
                load_optimiser(optimiser, kept)
            self.points, self.sums = state["points"], state["sums"].to(self.device)
            self.step, self.seconds, self.count = state["step"], state["seconds"], state["count"]
            self.finite, self.history, self.valid = state["finite"], state["history"], state["valid"]

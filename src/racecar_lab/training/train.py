"""The training loop, whatever is trained and however a step is done: epochs, looks, points, checkpoints, progress."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from racecar.support.processes import is_rank_zero
from racecar.support.progress import TELL, Regularly
from racecar_lab.experiment import accuracy
from racecar_lab.training import checkpoint
from racecar_lab.training.curves import Curves
from racecar_lab.training.nets import Nets
from racecar_lab.training.spec import TrainingOptions


@dataclass
class StageOutcome:
    """What the training of a net leaves behind beside the weights."""

    curves: dict[str, list[float]]
    steps: int
    step_s: float
    """Seconds for a step; of many nets at once, this one's share."""
    peak_memory: int | None
    history: dict[str, Tensor] = field(default_factory=dict)
    """What looks kept, stacked."""
    note: str = ""
    """Why it diverged, if it did."""


class Trainer:
    """Trains to the end; the whole state can be put into a file and taken up again.

    A *cycle* is all that is done with one batch: a step for each of the turns. Checkpoints may lie between two turns.
    """

    def __init__(self, nets: Nets, options: TrainingOptions | None = None) -> None:
        self.nets, self.options = nets, options or TrainingOptions()
        first = nets.trainings[0]
        self.recipe, self.epochs = first.recipe, first.epochs
        self.per_epoch = nets.per_epoch * len(nets.turns)
        self.total, self.step = self.per_epoch * first.epochs, 0
        cycles = nets.per_epoch * first.epochs
        self.look_every = max(1, cycles // self.recipe.looks) if self.recipe.looks else 0
        self.curves = Curves(first.epochs, len(nets.trainings))
        self.history: list[list[dict[str, Tensor]]] = []
        """Of every look, what it kept of each net."""

    def run(self, path: Path | None = None) -> list[StageOutcome]:
        """From the checkpoint, if it is there, to the end or until no net has a finite loss."""
        if path is not None and path.exists():
            self.load(path)
        self.nets.start()
        saved, prepared, due = time.monotonic(), -1, Regularly(TELL)
        self.curves.go()
        while self.step < self.total and not all(self.curves.notes):
            cycle, turn = divmod(self.step, len(self.nets.turns))
            epoch, within = divmod(cycle, self.nets.per_epoch)
            if epoch != prepared:
                drawn, prepared = self.nets.draw(epoch), epoch
            if self.look_every and turn == 0 and cycle % self.look_every == 0:
                self._look()
            one = [None if some is None else some[within] for some in drawn[turn]]
            self.curves.add(self.nets.take(turn, cycle, one), self.nets.turns[turn])
            self.step += 1
            if self.step % self.per_epoch == 0 and self.curves.due(epoch):
                self._point(epoch)
            over = self.nets.safe if self.step == self.total else time.monotonic() - saved >= self.options.interval
            if path is not None and over:
                self.curves.pause()
                self.save(path)
                self.curves.go()
                saved = time.monotonic()
            if self.options.report is not None and due():  # an epoch may be long
                self.options.report(self.step, self.total, "")
        for i, finite in enumerate(self.nets.finite()):
            if not finite:
                self.curves.diverged(i, "the weights were not finite any more at the end")
        if self.look_every and not all(self.curves.notes):
            self._look()
        memory = self.nets.end()
        return [self._outcome(i, memory) for i in range(len(self.nets.trainings))]

    def _outcome(self, i: int, memory: int | None) -> StageOutcome:
        looks = [seen[i] for seen in self.history]
        history = {name: torch.stack([look[name] for look in looks]) for name in (looks or [{}])[0]}
        points, note = self.curves.points[i], self.curves.notes[i]
        return StageOutcome(points, self.total, self.curves.step_s / len(self.nets.trainings), memory, history, note)

    def _point(self, epoch: int) -> None:
        """On the curves, with the accuracy on what is held out, and for who watches."""
        self.curves.point(epoch)
        if not all(self.curves.notes):
            for i, task in enumerate(self.nets.tasks):
                if task.valid is not None and task.valid.classes and not self.recipe.turns:
                    self.curves.note(i, "valid_accuracy", accuracy(self.nets.measured(i).eval(), task.valid))
            self.nets.train()
            if self.options.report is not None:
                self.options.report(self.step, self.total, self.curves.said())
            if self.options.scalars is not None:
                for name, values in self.curves.points[0].items():
                    if name != "epoch":
                        self.options.scalars.add_scalar(name, values[-1], epoch + 1)
                for name, term in self.nets.terms().items():
                    self.options.scalars.add_scalar(f"terms/{name}", float(term), epoch + 1)
        self.curves.go()

    def _look(self) -> None:
        self.curves.pause()
        seen = []
        with torch.no_grad():
            for i, task in enumerate(self.nets.tasks):
                assert self.recipe.look is not None
                found = self.recipe.look(self.nets.measured(i).eval(), task)
                seen.append({name: tensor.detach().cpu().clone() for name, tensor in found.items()})
        self.history.append(seen)
        self.nets.train()
        self.curves.go()

    def save(self, path: Path) -> None:
        """The whole state, into a file that is there whole or not at all."""
        if is_rank_zero():
            mine = {"step": self.step, "curves": self.curves.state(), "history": self.history}
            ids = [one.id for one in self.nets.trainings]
            checkpoint.write(path, {"ids": ids, **mine, "nets": self.nets.state()})

    def load(self, path: Path) -> None:
        """Go on from a file that ``save`` wrote."""
        with checkpoint.reading(path) as state:
            self.nets.load(state["nets"])
            self.step, self.history = state["step"], state["history"]
            self.curves.load(state["curves"], torch.device(self.options.device))

"""The training loop, for any networks and any kind of step: epochs, snapshots, curves, checkpoints, progress."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from racecar.support.processes import is_rank_zero
from racecar.support.progress import TELL, Regularly
from racecar_lab.measures.accuracy import accuracy
from racecar_lab.training import checkpoint
from racecar_lab.training.curves import Curves
from racecar_lab.training.nets import Nets


@dataclass
class StageOutcome:
    """The results of training a net, besides its weights."""

    curves: dict[str, list[float]]
    steps: int
    step_s: float
    """Number of seconds that a step took; if several nets were trained at once, this net's share."""
    peak_memory: int | None
    history: dict[str, Tensor] = field(default_factory=dict)
    """Tensors of the snapshots by name, each stacked over the snapshots, in the order in which they were taken."""
    note: str = ""
    """The reason why the net diverged; empty if it did not."""


class Trainer:
    """Trains nets to the end. Its whole state can be saved to a file and loaded again.

    With each batch, a step is done for every turn of the recipe. A checkpoint may lie between two turns.
    """

    def __init__(self, nets: Nets) -> None:
        self.nets, self.options, self.training = nets, nets.options, nets.trainings[0]
        self.recipe, self.turns = self.training.recipe, len(nets.turns)
        self.per_epoch = self.training.steps_per_epoch
        self.total, self.step = self.training.steps * self.turns, 0
        self.look_every = max(1, self.training.steps // self.recipe.looks) if self.recipe.looks else 0
        self.curves = Curves(self.training.epochs, len(nets.trainings))
        self.history: list[list[dict[str, Tensor]]] = []
        """The snapshots of every net, in the order in which they were taken."""

    def run(self, path: Path | None = None) -> list[StageOutcome]:
        """Train until the last step, or until every net has diverged.

        Args:
            path: where checkpoints are written; if there is one, training continues from it. None: no checkpoints.
        """
        if path is not None and path.exists():
            self.load(path)
        self.nets.train()
        saved, drawn_epoch, report_due = time.monotonic(), -1, Regularly(TELL)
        self.curves.start_clock()
        while self.step < self.total and not all(self.curves.notes):
            batch_index, turn = divmod(self.step, self.turns)
            epoch, within = divmod(batch_index, self.per_epoch)
            if epoch != drawn_epoch:
                draws, drawn_epoch = self.nets.batches.draw(epoch), epoch
            if self.look_every and turn == 0 and batch_index % self.look_every == 0:
                self._look()
            losses = self.nets.train_step(turn, batch_index, draws[turn].at(within))
            self.curves.add(losses, self.nets.turns[turn].network)
            self.step += 1
            if self.step % (self.per_epoch * self.turns) == 0 and self.curves.due(epoch):
                self._point(epoch)
            at_end = self.step == self.total
            due = self.nets.save_at_end if at_end else time.monotonic() - saved >= self.options.interval
            if path is not None and due:
                self.curves.stop_clock()
                self.save(path)
                self.curves.start_clock()
                saved = time.monotonic()
            if self.options.report is not None and report_due():  # not only at points: an epoch may be long
                self.options.report(self.step, self.total, "")
        for i, finite in enumerate(self.nets.finite()):
            if not finite:
                self.curves.diverged(i, "the weights were not finite any more at the end")
        if self.look_every and not all(self.curves.notes):
            self._look()
        memory = self.nets.end()
        return [self._outcome(i, memory) for i in range(len(self.nets.trainings))]

    def _outcome(self, i: int, memory: int | None) -> StageOutcome:
        snapshots = [snapshot[i] for snapshot in self.history]
        names = snapshots[0] if snapshots else ()
        return StageOutcome(
            curves=self.curves.points[i],
            steps=self.total,
            step_s=self.curves.step_s / len(self.nets.trainings),
            peak_memory=memory,
            history={name: torch.stack([snapshot[name] for snapshot in snapshots]) for name in names},
            note=self.curves.notes[i],
        )

    def _point(self, epoch: int) -> None:
        """Add a point to the curves, with the accuracy on validation data; report it, and send it to TensorBoard."""
        self.curves.point(epoch)
        if not all(self.curves.notes):
            for i, task in enumerate(self.nets.batches.tasks):
                if task.valid is not None and task.valid.classes and not self.recipe.turns:
                    self.curves.add_number(i, "valid_accuracy", accuracy(self.nets.model_of(i).eval(), task.valid))
            self.nets.train()
            if self.options.report is not None:
                self.options.report(self.step, self.total, self.curves.summary())
            if self.options.scalars is not None:
                for name, values in self.curves.points[0].items():
                    if name != "epoch":
                        self.options.scalars.add_scalar(name, values[-1], epoch + 1)
                for name, term in self.nets.terms().items():
                    self.options.scalars.add_scalar(f"terms/{name}", float(term), epoch + 1)
        self.curves.start_clock()

    def _look(self) -> None:
        """Take a snapshot of every net by the recipe's ``look``, and keep it in the history."""
        assert self.recipe.look is not None
        self.curves.stop_clock()
        snapshots = []
        with torch.no_grad():
            for i, task in enumerate(self.nets.batches.tasks):
                tensors = self.recipe.look(self.nets.model_of(i).eval(), task)
                snapshots.append({name: tensor.detach().cpu().clone() for name, tensor in tensors.items()})
        self.history.append(snapshots)
        self.nets.train()
        self.curves.start_clock()

    def save(self, path: Path) -> None:
        """Write the whole state of the training to a checkpoint file, atomically."""
        if is_rank_zero():
            state = {"step": self.step, "curves": self.curves.state(), "history": self.history}
            ids = [training.id for training in self.nets.trainings]
            checkpoint.write(path, {**state, "ids": ids, "nets": self.nets.state()})

    def load(self, path: Path) -> None:
        """Continue the training from a checkpoint file that ``save`` wrote."""
        with checkpoint.reading(path) as state:
            self.nets.load(state["nets"])
            self.step, self.history = state["step"], state["history"]
            self.curves.load(state["curves"], self.nets.device)

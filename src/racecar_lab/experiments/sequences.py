"""Sequences: does the reverse pass help a recurrent network to remember? (Ours; the paper leaves it to future work.)

The claims were fixed before any net with a regulariser was trained: on each of three tasks RR and lRR beat Std and Ort,
by accuracy (rows, copy) or mean squared error (add), on five seeds or more. Length and epochs were chosen by looking at
Std alone. Learning rates and λs of the search were chosen by a smaller search, which saw only held-out
samples: its best rate was the largest, 1e-2, and λ from 1e-3 on did harm.

The cell's layers are the projections of its input and of its last state, with gates stacked. Every step joins the two,
and a reverse pass cannot cross a join. So RR starts anew from the output of each projection, as lRR does. They differ
only in the layer before the cell, where RR continues from the input that the cell's input projection rebuilt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar import Racecar
from racecar_lab.datasets import MNIST, Source, sequences
from racecar_lab.experiment import Claim, Experiment, Measured, Quick, Reporting, Split, Stage, Task, Trained
from racecar_lab.experiments.shared import mean_terms, weight_of
from racecar_lab.networks.recurrent import Recurrent
from racecar_lab.search_space import Search
from racecar_lab.training import rng
from racecar_lab.training.loss_config import LossConfig
from racecar_lab.training.recipe import Loss, Recipe

OURS = ("RR", "lRR")
"""Variants with a reverse pass that are compared. RR1 is not among them: it would have to cross joins to reach the
input."""
SEEDS = 5
"""Number of seeds that a claim needs at least to be judged."""
NEAR = 0.04
"""Largest absolute error of a predicted sum that counts as right."""
BATCH = 500
"""Number of samples in a batch of the evaluation."""
TASKS = {"rows": "permuted MNIST rows", "add": "two numbers to add", "copy": "symbols to remember"}
"""Name of a task → its description in the claims."""
SIZES = {"rows": (28, 10, 1), "add": (2, 1, 1), "copy": (sequences.SYMBOLS + 2, sequences.SYMBOLS, sequences.ITEMS)}
"""Name of a task → (features of a step, outputs of an answer, number of answers)."""


@dataclass(frozen=True, kw_only=True)
class SequencesConfig(LossConfig):
    task: Literal["rows", "add", "copy"] = "rows"
    """The task: "rows", to classify MNIST, with pixels in one fixed random order, read as 28 rows of 28; "add", to add
    two marked numbers of a sequence; "copy", to repeat five symbols of eight kinds after a gap."""
    length: int = 20
    """Number of steps: for "add" of the sequence, for "copy" of the gap; "rows" always has 28."""
    cell: Literal["lstm", "gru", "rnn"] = "lstm"
    hidden: int = 64
    layers: int = 1
    """Number of stacked layers of the cell."""
    samples: int = 4000
    """Number of training samples, drawn anew for every seed."""
    tests: int = 2000
    """Number of test samples; for "rows" the first ones of the test files."""
    epochs: int = 20
    lr: float = 3e-3
    batch: int = 64
    clip: float = 1.0
    fraction: float = 1 / 8

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("length", "hidden", "layers", "samples", "tests"):
            least = 2 if name == "length" else 1
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)!r}")


def claims() -> tuple[Claim, ...]:
    """Claims that RR and lRR beat Std and Ort on each task. Only those about the task that was run are judged, and
    corrected for each other."""
    return tuple(
        Claim(f"{ours} beats {than}: {description}", "test_mse" if task == "add" else "test_accuracy", "A", ours, than,
              higher=task != "add", minimum_seeds=SEEDS, design={"task": task})
        for task, description in TASKS.items()
        for ours in OURS
        for than in ("Std", "Ort")
    )  # fmt: skip


class Sequences(Experiment[SequencesConfig]):
    name = "sequences"
    Config = SequencesConfig
    quick = Quick({"task": "add", "samples": 500, "tests": 200, "epochs": 4, "hidden": 16})
    variants = ("Std", "Ort", "RR", "lRR")
    seeds = 10
    search = Search(
        lrs={"adam": (1e-3, 3e-3, 1e-2, 3e-2)},
        weights=dict.fromkeys(("Ort", *OURS), (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)),
        sum_weights=dict.fromkeys(OURS, (0.0, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5)),
        valid=0.2,
        seeds=2,
    )
    joins = True
    claims = claims()
    source: ClassVar[Source] = MNIST
    reporting = Reporting(
        title="Sequences: recurrent networks that remember",
        section="ours",
        summary=(
            "A small LSTM, GRU or RNN reads MNIST row by row with its pixels mixed up, adds two marked numbers of a "
            "sequence, or says symbols again after a gap. The reverse pass compares the layer before the cell and the "
            "cell's projections of its input and of its state; RR and lRR differ in that first layer alone."
        ),
    )

    def search_for(self, config: SequencesConfig) -> Search | None:
        """The search for learning rate and λ; for the task "add" it minimises the mean squared error, as in the
        claims."""
        search = super().search_for(config)
        return replace(search, metric="valid_mse", higher=False) if search and config.task == "add" else search

    def sources(self, config: SequencesConfig) -> tuple[Source, ...]:
        return (self.source,) if config.task == "rows" else ()

    def data(self, config: SequencesConfig, seed: int, folder: Path | None) -> Mapping[str, Task]:
        """One task, "A". In a search, a share ``valid`` of the training samples replaces the test samples."""
        held_out = round(config.valid * config.samples)
        if config.valid and not 0 < held_out < config.samples:
            text = f"of {config.samples} samples, {held_out} are held out"
            raise ValueError(f"{text}: set more samples, or another valid")
        train, test = self._splits(config, rng.generator(self.name, seed), folder, test=not held_out)
        valid = Split(train.x[:held_out], train.y[:held_out]) if held_out else None
        return {"A": Task(Split(train.x[held_out:], train.y[held_out:]), valid or test, valid)}

    def _splits(
        self, config: SequencesConfig, generator: torch.Generator, folder: Path | None, test: bool
    ) -> tuple[Split, Split]:
        """Training and test set, which share no sample; with ``test`` false, no test file is opened."""
        if config.task == "rows":
            pictures, labels = self.source.load(folder, "train")
            if config.samples > len(labels):
                raise ValueError(f"samples={config.samples}: there are {len(labels)} to train on")
            indices = torch.randperm(len(labels), generator=generator)[: config.samples]
            x, y = self.source.load(folder, "test") if test else (pictures[:0], labels[:0])
            train = Split(sequences.rows(pictures[indices]), labels[indices])
            return train, Split(sequences.rows(x[: config.tests]), y[: config.tests])
        make = sequences.adding if config.task == "add" else sequences.copying
        x, y = make(config.samples + config.tests, config.length, generator)
        return Split(x[: config.samples], y[: config.samples]), Split(x[config.samples :], y[config.samples :])

    def network(self, config: SequencesConfig, dropout: float = 0.0) -> nn.Module:
        features, outputs, answers = SIZES[config.task]
        sizes: dict[str, Any] = {"hidden": config.hidden, "layers": config.layers, "answers": answers}
        return Recurrent(features, outputs, cell=config.cell, dropout=dropout, **sizes)

    def weight(self, config: SequencesConfig, variant: str) -> float:
        return weight_of(variant, config.weight, Pre=4.0)

    def reverse(self, config: SequencesConfig) -> dict[str, Any]:
        """Arguments of ``Racecar``: the reverse loss compares the layer before the cell and the cell's projections, not
        the output layer."""
        return {**config.loss, "weight": {"enter": 1.0, "cell": 1.0}}

    def orthogonality(self, config: SequencesConfig) -> dict[str, Any]:
        """Arguments of the variant Ort's penalty: it is on the layer before the cell and the cell's projections, which
        have the reverse loss in other variants."""
        return {"layers": ("enter", "cell")}

    def recipe(self, config: SequencesConfig, stage: Stage) -> Recipe:
        losses: dict[str, Loss] = {"rows": F.cross_entropy, "add": squared_error, "copy": answer_cross_entropy}
        return Recipe(loss=losses[config.task])

    def measure(self, config: SequencesConfig, trained: Trained) -> Measured:
        task, model = trained.task, trained.model
        kind, split = task.evaluated
        with torch.no_grad():
            outputs = torch.cat([model(x) for x in split.x.split(BATCH)])
        if config.task == "add":
            errors = outputs.squeeze(1) - split.y
            metrics = {"mse": errors.square().mean(), "within": (errors.abs() < NEAR).double().mean()}
        else:
            metrics = {"accuracy": (outputs.argmax(-1) == split.y).double().mean()}
        measured = {f"{kind}_{name}": float(value) for name, value in metrics.items()}
        if task.valid is None:
            options = {**self.reverse(config), "scale": "relative"}
            rr = Racecar(model, split.x[:BATCH], mode="layerwise", **options)
            measured["reverse_loss"] = mean_terms(rr, split.x, BATCH)
        return Measured(measured)


def squared_error(output: Tensor, y: Tensor) -> Tensor:
    """Mean squared error of predicted sums (N, 1) and true sums (N,)."""
    return F.mse_loss(output.squeeze(1), y)


def answer_cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    """Mean cross-entropy of logits (N, answers, kinds) and true kinds (N, answers)."""
    return F.cross_entropy(output.flatten(0, 1), y.flatten())

"""What is claimed of the streams, and the rule that draws the answers from it. Both were written before any run.

A claim is one method against another on one stream and net: paired differences over at least 20 seeds on which nothing
was chosen, each method with the setting that its own search chose, by the test accuracy of the second half of the tasks
where tasks have test pictures and are judged by them (pairs), else by the accuracy while learning. Holm's correction is
over all claims, those that were not run among them. Claims are of Adam; SGD's runs are shown and not claimed.

The rule: a question is answered "yes" on a stream and net if all of its claims there are supported, "no" if one is
contradicted or, where it says that two are the same, their difference lies beyond the margin, and is open else. It is
answered as a whole if it is the same wherever it was run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from racecar_lab.claim import Claim
from racecar_lab.experiments.streams.config import PROTOCOLS

SEEDS = 20
MARGIN = 0.02


class StreamCell(NamedTuple):
    """A stream with a net."""

    stream: str
    net: str
    norm: str

    def __str__(self) -> str:
        return f"{self.stream}, {self.net}" + ("" if self.norm == "none" else f", {self.norm} norm")


CELLS = tuple(
    StreamCell(*one)
    for one in (
        ("permuted", "mlp3", "none"),
        ("permuted", "mlp6", "none"),
        ("labels", "mlp3", "none"),
        ("labels", "mlp6", "none"),
        ("cifar-labels", "kumar", "none"),
        ("cifar-labels", "kumar", "batch"),
        ("pairs", "kumar", "none"),
        ("pairs", "kumar", "batch"),
    )
)
"""On which claims are made; norms of MLPs are methods (LayerNorm, linear + LayerNorm)."""
REGULARISERS = ("L2", "L2 Init", "Shrink & Perturb", "Orthogonality", "Parseval", "Spectral", "Spectral without head")
OTHERS = ("LayerNorm", "BatchNorm", "CReLU", "ReDo", "Continual backprop")
WITH_NORM = ("L2", "L2 Init", "Orthogonality", "Spectral", "Spectral without head")
"""Rivals on nets that have batch norm anyway."""


@dataclass(frozen=True)
class StreamQuestion:
    """What is asked, and the pairs of methods whose claims answer it."""

    text: str
    better: str
    than: tuple[str, ...]
    than_with_norm: tuple[str, ...] = ()
    """On nets that have a norm anyway."""
    same: bool = False
    """Whether both should be the same, within ``MARGIN``."""

    def rivals(self, cell: StreamCell) -> tuple[str, ...]:
        return self.than if cell.norm == "none" else self.than_with_norm


QUESTIONS = (
    StreamQuestion("Does linear keep nets learning?", "linear", ("Std",), ("Std",)),
    StreamQuestion("Is linear ahead of every regulariser?", "linear", REGULARISERS, WITH_NORM),
    StreamQuestion("Is it ahead of norms, CReLU and what starts units anew?", "linear", OTHERS),
    StreamQuestion("Is it ahead of the paper's own loss?", "linear", ("RR", "lRR")),
    StreamQuestion("Is it the data?", "linear", ("linear on random h",), ("linear on random h",)),
    StreamQuestion("Does CReLU gain by it, and more than by orthogonality?", "linear + CReLU",
                   ("CReLU", "CReLU + Orthogonality")),
    StreamQuestion("Does LayerNorm gain by it, and more than by L2 or orthogonality?", "linear + LayerNorm",
                   ("LayerNorm", "LayerNorm + L2", "LayerNorm + Orthogonality")),
    StreamQuestion("Will a quarter of the batch do?", "linear 1/4", ("linear",), ("linear",), same=True),
    StreamQuestion("Will an eighth of the batch do?", "linear 1/8", ("linear",), ("linear",), same=True),
)  # fmt: skip


def claim(question: StreamQuestion, cell: StreamCell, than: str) -> Claim:
    """One of a question's."""
    text = f"{question.better} within {100 * MARGIN:g} points of" if question.same else f"{question.better} beats"
    where = {**cell._asdict(), "optimiser": "adam"}
    margin = MARGIN if question.same else None
    metric = PROTOCOLS[cell.stream].metric
    return Claim(f"{cell}: {text} {than}", metric, "A", question.better, than, where=where, minimum_seeds=SEEDS,
                 margin=margin)  # fmt: skip


CLAIMS: dict[tuple[StreamQuestion, StreamCell], Sequence[Claim]] = {
    (question, cell): [claim(question, cell, than) for than in question.rivals(cell)]
    for question in QUESTIONS
    for cell in CELLS
    if question.rivals(cell)
}


def claims() -> tuple[Claim, ...]:
    return tuple(one for some in CLAIMS.values() for one in some)

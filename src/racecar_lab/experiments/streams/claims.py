"""The claims about the streams, and the rule that answers questions from them. Both were written before any run.

A claim compares two methods on one stream and net by paired differences over at least 20 seeds on which nothing was
chosen. Each method has the setting that a search chose for it. The metric is the mean over the second half of the
tasks, of the test accuracy on the stream "pairs", of the accuracy while learning on all others. Holm's correction is
over all claims, those that were not run among them. All claims are about training with Adam; runs with SGD are shown,
but nothing is claimed about them.

The rule: the answer to a question on a stream and net is "yes" if all of its claims are supported, "no" if a claim is
contradicted (if it claims equality: if the difference lies beyond the margin), and "open" otherwise. The answer as a
whole is that of the streams and nets on which it was run, if they agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from racecar_lab.claim import Claim
from racecar_lab.experiments.streams.config import PROTOCOLS

SEEDS = 20
"""Smallest number of seeds with which a claim is judged."""
MARGIN = 0.02
"""Largest difference in accuracy between two methods that are claimed to be the same."""


class StreamCell(NamedTuple):
    """A stream, a net and its norm, with which methods are compared."""

    stream: str
    net: str
    norm: str

    def __str__(self) -> str:
        return f"{self.stream}, {self.net}" + ("" if self.norm == "none" else f", {self.norm} norm")


CELLS = tuple(
    StreamCell(*names)
    for names in (
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
"""All streams and nets for which there are claims. MLPs have norm "none": on them a norm is a method (LayerNorm, linear
+ LayerNorm)."""
REGULARISERS = ("L2", "L2 Init", "Shrink & Perturb", "Orthogonality", "Parseval", "Spectral", "Spectral without head")
"""Names of methods that regularise, by a penalty or by Shrink & Perturb; "linear" is compared with each."""
OTHERS = ("LayerNorm", "BatchNorm", "CReLU", "ReDo", "Continual backprop")
"""Names of methods that "linear" is compared with and that are no regularisers: norms, CReLU, and methods that
reinitialise units."""
WITH_NORM = ("L2", "L2 Init", "Orthogonality", "Spectral", "Spectral without head")
"""Names of the regularisers that "linear" is compared with on nets with batch norm."""


@dataclass(frozen=True)
class StreamQuestion:
    """A question about a method, and the methods that it is compared with to answer it."""

    text: str
    better: str
    """Name of the method that is claimed to be better, or, if ``same``, as good."""
    than: tuple[str, ...]
    """Names of the methods that ``better`` is compared with on nets without norm, one claim for each."""
    than_with_norm: tuple[str, ...] = ()
    """Names of the methods that ``better`` is compared with on nets with batch norm, one claim for each; empty: no
    claims there."""
    same: bool = False
    """True: the claims are that both methods are the same, within ``MARGIN``; False: that ``better`` is better."""

    def rivals(self, cell: StreamCell) -> tuple[str, ...]:
        """Names of the methods that ``better`` is compared with on this stream and net."""
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
    """Make the claim that compares ``question.better`` with the method ``than`` on a stream and net."""
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
"""All claims: (question, stream and net) → the claims that answer the question there."""


def all_claims() -> tuple[Claim, ...]:
    """All claims of the experiment streams in one tuple."""
    return tuple(claim for claims in CLAIMS.values() for claim in claims)

"""What docs/when.md says of long-training: how little is left to gain by a reverse pass."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.sentences import count, listed, points, span, sure
from racecar_lab.experiments import experiment
from racecar_lab.report.findings import Finding
from racecar_lab.report.section import findings_of
from racecar_lab.report.verdicts import CONTRADICTED
from racecar_lab.running.results import Store

FOLDER = "long-training"
WORDS = {6: "six", 9: "nine"}
Found = dict[tuple[str, int, str], Finding]
"""By claim, convolutions and scale of the loss."""


def long_training(folder: Path) -> str:
    found = {
        (one.claim.text, one.better.config["depth"], one.better.config["scale"]): one
        for one in findings_of(experiment(FOLDER), list(Store(folder / FOLDER).runs()))
        if one.better is not None
    }
    full, layers, orthogonal, normed = (
        _of(found, f"{text}: accuracy")
        for text in (
            "Without norm RR beats Std",
            "Without norm lRR beats Std",
            "Without norm RR beats Ort",
            "RR without norm beats Std with batch norm",
        )
    )
    sure(not count(full), "in long training RR is ahead of Std in no setting")
    sure(0 < count(layers) < len(layers), "lRR is ahead of Std in some settings")
    sure(not count(layers, CONTRADICTED), "and behind in none")
    sure(all(count(some, CONTRADICTED) == len(some) for some in (orthogonal, normed)), "RR is behind Ort, batch norm")
    depths = sorted({depth for _, depth, _ in found})
    return (
        f"**Trained long and well** ([CIFAR-10]({{results}}/{FOLDER}/report.md), "
        f"{listed([WORDS[one] for one in depths])} convolutions without norm, He's first weights, flips, shifts, one "
        f"cycle of AdamW; the default loss and the paper's) a net gains little by it: lRR − Std "
        f"is {_span(layers)} points, ahead in {count(layers)} of {len(layers)} settings and behind in none; RR − Std "
        f"{_span(full)}, ahead in none{_off(found)}. {_likelihood(found)} Orthogonality does more: RR − Ort is "
        f"{_span(orthogonal)} points, and RR is {_span(normed, -1)} points behind batch norm."
    )


def _likelihood(found: Found) -> str:
    """Of deeper nets, whose confidence gains."""
    deep = max(depth for _, depth, _ in found)
    some = [_of(found, f"Without norm {name} beats Std: likelihood", deep) for name in ("RR", "lRR")]
    sure(all(count(one) == len(one) for one in some), "the likelihood of the deeper net gains by both")
    gains = [one.gain.mean for both in some for one in both if one.gain is not None]
    return (
        f"With {WORDS[deep]} convolutions labels become likelier by either and by either loss: the negative "
        f"log-likelihood falls by {min(gains):.2f} to {max(gains):.2f}."
    )


def _off(found: Found) -> str:
    """Where a search chose to train RR without its loss."""
    off = {depth for (_, depth, _), one in found.items() if one.better.variant == "RR" and not one.better.coefficient}
    if not off:
        return ""
    return f" (with {listed([WORDS[one] for one in sorted(off)])} convolutions its search chose λ = 0, which is Std)"


def _of(found: Found, text: str, depth: int | None = None) -> list[Finding]:
    return [one for (claim, deep, _), one in found.items() if claim == text and depth in (None, deep)]


def _span(findings: Sequence[Finding], sign: int = 1) -> str:
    return span([sign * points(one) for one in findings])

"""What README.md and docs/when.md say of long-training: nothing is left to gain by a reverse pass."""

from __future__ import annotations

from pathlib import Path

from benchmarks.sentences import in_points, sure
from racecar.lab.experiments import experiment
from racecar.lab.report.section import findings_of
from racecar.lab.report.verdicts import CONTRADICTED, UNDECIDED
from racecar.lab.running.results import Store


def long_training(folder: Path) -> str:
    runs = list(Store(folder / "long-training").runs())
    found = {one.claim.text: one for one in findings_of(experiment("long-training"), runs)}
    full, layers, orthogonal, normed = (
        found[f"{text}: accuracy"]
        for text in (
            "Without norm RR beats Std",
            "Without norm lRR beats Std",
            "Without norm RR beats Ort",
            "RR without norm beats Std with batch norm",
        )
    )
    sure({run.coefficient for run in runs if run.variant == "RR"} == {0.0}, "λ = 0 is best for RR in long training")
    sure(full.verdict == UNDECIDED, "RR and Std do not differ in long training")
    sure(
        {one.verdict for one in (layers, orthogonal, normed)} == {CONTRADICTED},
        "long training: lRR is behind Std, and RR behind Ort and batch norm",
    )
    return (
        "**Trained long and well** ([CIFAR-10]({results}/long-training/report.md), six convolutions without norm, He's "
        "first weights, flips, shifts, one cycle of AdamW; settings searched in a third of the epochs) a net gains "
        f"nothing by it: for RR λ = 0 is best, lRR − Std is {in_points(layers)} points, RR − Ort "
        f"{in_points(orthogonal)}, and RR is {in_points(normed)} points from batch norm."
    )

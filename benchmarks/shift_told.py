"""What docs/when.md says of shift: what a sample's reverse error tells, and what it does not."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

from benchmarks.sentences import listed, sure
from racecar_lab.experiments import experiment
from racecar_lab.experiments.shift_scores import SHIFTS
from racecar_lab.report.section import findings_of
from racecar_lab.report.verdicts import CONTRADICTED, SUPPORTED
from racecar_lab.running.results import Store
from racecar_lab.training.loss_config import LossConfig

SETTINGS = (("digits", "none"), ("digits", "batch"), ("cifar", "none"))
"""Task and norm."""


def shift(folder: Path) -> str:
    runs = list(Store(folder / "shift").runs())

    def verdicts(kind: str) -> set[str]:
        text = f"{SHIFTS[kind].capitalize()}: lRR's reverse error tells better than Std's energy"
        return {one.verdict for one in findings_of(experiment("shift"), runs) if one.claim.text.lower() == text.lower()}

    sure(verdicts("noise") == {SUPPORTED}, "the reverse error tells noise better than energy in every setting")
    sure(SUPPORTED not in verdicts("blur") | verdicts("contrast"), "it does not with blur and contrast")
    sure(verdicts("unseen") == {CONTRADICTED}, "it is worse with classes that the net never saw")

    def aurocs(kind: str, variant: str, score: str) -> str:
        told = []
        for task, norm in SETTINGS:
            some = [
                run.metrics[f"auroc_{kind}_{score}"]
                for run in runs
                if (run.variant, run.stage, run.config["task"], run.config["norm"]) == (variant, "A", task, norm)
                and (variant == "Std" or run.config["scale"] == LossConfig.scale)
            ]
            told.append(f"{mean(some):.2f}")
        return listed(told)

    return (
        "**Shift**: a picture's own reverse error, layer by layer, tells [noise]({results}/shift/report.md) better "
        f"than the energy of Std does (AUROC {aurocs('noise', 'lRR', 'layerwise')} against "
        f"{aurocs('noise', 'Std', 'energy')}: digits without and with batch norm, CIFAR-10 without). It is no better "
        "with blur and less contrast, and worse with classes that the net never saw "
        f"({aurocs('unseen', 'lRR', 'layerwise')} against {aurocs('unseen', 'Std', 'energy')}): no detector of its own."
    )

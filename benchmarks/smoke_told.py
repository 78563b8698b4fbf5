"""What docs/when.md says of smoke: a generator that runs backwards."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from benchmarks.sentences import count, listed, span, sure
from racecar_lab.experiments import experiment
from racecar_lab.report.findings import Finding
from racecar_lab.report.groups import collect
from racecar_lab.report.section import findings_of
from racecar_lab.report.verdicts import CONTRADICTED
from racecar_lab.running.results import Store
from racecar_lab.running.run import Run
from racecar_lab.training.loss_config import PAPER

FOLDER = "smoke"


def smoke(folder: Path) -> str:
    """What comes back, and what it costs."""
    runs = [run for run in Store(folder / FOLDER).runs() if run.stage == "A"]
    found = findings_of(experiment(FOLDER), runs)
    for than in ("Std", "Ort"):
        some = _of(found, f"RR's reverse pass recovers the low resolution better than {than}'s: PSNR")
        sure(count(some) == len(some) == 2, f"RR recovers more than {than}, by either loss")
    sure(not any(run.dead or not run.finished for run in runs), "no generator of smoke died or diverged")
    (seeds,) = {len({run.seed for run in some}) for some in _nets(runs).values()}
    return (
        f"**A generator that runs backwards** ([smoke]({{results}}/{FOLDER}/report.md), the paper's physics case: a "
        f"GAN whose six convolutions without norm enlarge smoke from 16² to 64²; in small, {_size(runs)}, {seeds} "
        f"seeds): RR's reverse pass leads back to what was put in, PSNR {_beside(runs, 'psnr', '{:.1f} dB')}; SSIM, "
        f"brightness and contrast fitted, {_beside(runs, 'ssim_scaled', '{:.2f}')}. {_enlarged(found)}"
    )


def _nets(runs: Sequence[Run]) -> dict[tuple[str, bool], list[Run]]:
    """By variant, and whether the loss is the paper's."""
    return collect(((run.variant, run.config["scale"] == PAPER["scale"]), run) for run in runs)


def _beside(runs: Sequence[Run], metric: str, form: str) -> str:
    """Means over the seeds: RR with either loss, Std and Ort."""
    found = {which: form.format(mean(run.metrics[metric] for run in some)) for which, some in _nets(runs).items()}
    return (
        f"{found['RR', False]} ({found['RR', True]} with the paper's loss) against {found['Std', False]} of Std and "
        f"{found['Ort', False]} of Ort"
    )


def _enlarged(found: Sequence[Finding]) -> str:
    """Super-resolution beside Std."""
    same = {what: _of(found, f"RR enlarges as well as Std: {what}") for what in ("L2", "SSIM", "energy spectrum")}
    sure(not any(count(some, CONTRADICTED) for some in same.values()), "it enlarges no worse for certain")
    more = [100 * one.gain.mean for one in same["L2"] if one.gain is not None]
    told = [f"{what} in {count(some)} of {len(some)}" for what, some in same.items()]
    return f"It enlarges with {span(more)} % more L2 than Std; as well for certain by {listed(told)} losses."


def _of(findings: Sequence[Finding], text: str) -> list[Finding]:
    return [one for one in findings if one.claim.text == text and one.gain is not None]


def _size(runs: Sequence[Run]) -> str:
    (widths,) = {tuple(run.config["widths"]) for run in runs}
    (epochs,) = {run.config["epochs"] for run in runs}
    return f"{min(widths)} to {max(widths)} channels, {epochs} epochs"

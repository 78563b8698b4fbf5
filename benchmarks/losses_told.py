"""What docs/when.md says of few labels by loss, depth and first weights: of both losses together."""

from __future__ import annotations

from pathlib import Path

from benchmarks.losses import DEFAULT, FOLDER, TASKS, TO_REACH, cells_of
from benchmarks.sentences import count, listed, points, span, sure
from racecar_lab.report.findings import Finding
from racecar_lab.report.verdicts import CONTRADICTED, SUPPORTED

Cells = dict[tuple[str, int, str, str, str], Finding]


def by_loss(folder: Path) -> list[str]:
    cells = cells_of(folder / FOLDER)
    return [_helps(cells), _full(cells), _source(cells), _batch_norm(cells)]


def _helps(cells: Cells) -> str:
    ours, he = (_of(cells, "lRR beats Std at 2 labels: probe", start) for start in ("", "he"))
    sure(not count(ours, CONTRADICTED), "lRR is behind Std at two labels in no setting")
    others = {
        than: _of(cells, f"lRR beats {than} at 2 labels: probe")
        for than in ("Ort", "Pre", "Std trained as many seconds")
    }
    ahead = [f"{than} in {count(found)}" for than, found in others.items()]
    behind = sum(count(found, CONTRADICTED) for found in others.values())
    sure(behind == 1, "it is behind one of the others in one setting")
    tasks, depths = (sorted({key[i] for key in cells}, key=str) for i in (0, 1))
    return (
        "**It helps** a small net without normalisation whose features are used as they are, if every layer is run "
        f"back by itself: lRR is ahead of Std at two labels per class in {_ahead(ours)}, of which {count(he)} are "
        f"among the {len(he)} with He's first weights, and behind in none; ahead of {listed(ahead)}, and behind one of "
        f"them once ([few labels]({{results}}/{FOLDER}/report.md): {listed([TASKS[str(one)] for one in tasks])}, "
        f"{listed([str(one) for one in depths])} convolutions, PyTorch's and He's first weights, the default loss and "
        "the paper's; ten seeds, every variant searched alike, λ from 0 up)."
    )


def _full(cells: Cells) -> str:
    probe, tuned, layerwise = (
        _of(cells, f"{name} beats Std at 2 labels: {way}")
        for name, way in (("RR", "probe"), ("RR", "fine-tuned"), ("lRR", "fine-tuned"))
    )
    sure(not count(probe, CONTRADICTED), "RR is behind Std at two labels in no setting")
    sure(not count(layerwise) and not count(tuned), "neither gains where the net is fine-tuned as a whole")
    zero = [one for one in probe if one.better is not None and not one.better.coefficient]
    return (
        f"The full reverse pass, RR, is ahead of Std in {_ahead(probe)}; λ = 0 was best for it in {len(zero)}. Where "
        f"the net is **fine-tuned** as a whole, neither is ahead anywhere at two labels: lRR is behind in "
        f"{count(layerwise, CONTRADICTED)}, RR in {count(tuned, CONTRADICTED)} of {len(tuned)}."
    )


def _source(cells: Cells) -> str:
    """What lRR costs or gains where it was trained."""
    found = {
        key: one for key, one in cells.items() if key[4] == "Without norm lRR beats Std on the source task: accuracy"
    }
    ahead, behind = ([key for key, one in found.items() if one.verdict == sign] for sign in (SUPPORTED, CONTRADICTED))
    [worst] = behind
    sure(worst[:4] == ("cifar", 6, "torch", DEFAULT), "the default costs accuracy on the source in one setting")
    sure("cifar" not in {key[0] for key in ahead}, "on CIFAR-10 lRR gains nothing on the source task")
    return (
        f"On the task that it was **trained** on lRR is ahead in {len(ahead)} of {len(found)} settings, none of them "
        f"CIFAR-10, and behind in one: there, with six convolutions and PyTorch's weights, the default costs "
        f"{abs(points(found[worst])):.1f} points."
    )


def _batch_norm(cells: Cells) -> str:
    """What it does alone, and what is left to do beside it."""
    behind = [found for key, found in cells.items() if key[4] == TO_REACH]
    beside = [found for key, found in cells.items() if "is as good as Std at 2 labels: probe" in key[4]]
    sure(not count(behind), "nowhere does lRR more than batch norm")
    sure(not count(beside, CONTRADICTED), "with batch norm neither is behind Std")
    return (
        f"**Batch norm alone does as much or more**: Std with it is {span([-points(one) for one in behind])} points "
        f"ahead of lRR without, for certain in {count(behind, CONTRADICTED)} of {len(behind)} settings. Beside it, RR "
        f"and lRR are as good as Std in {count(beside)} of {len(beside)} "
        f"({span([points(one) for one in beside])} points), and undecided in the others."
    )


def _of(cells: Cells, claim: str, start: str = "") -> list[Finding]:
    return [one for key, one in cells.items() if key[4] == f"Without norm {claim}" and start in ("", key[2])]


def _ahead(findings: list[Finding]) -> str:
    return f"{count(findings)} of {len(findings)} settings ({span([points(one) for one in findings])} points)"

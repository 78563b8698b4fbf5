"""Tables of the pages of mnist and information, and what a step of small nets costs."""

from __future__ import annotations

from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.tables.common import finished_runs, markdown, mean_and_sd
from benchmarks.tables.few_labels import CHANCE, ROWS, by_seed
from racecar_lab.experiments.information import FAILED
from racecar_lab.report import words
from racecar_lab.report.settings import has
from racecar_lab.report.statistics import exact_share
from racecar_lab.running.run import Run
from racecar_lab.training.loss_config import DEFAULT, PAPER
from racecar_lab.training.variants import VARIANTS

ALL_ROWS = ROWS | {name: (name, {"fraction": 0.125, "longer": False}) for name in ("lRR", "RR1", "WD")}
STAGES = {"A": "with regulariser", "AA": "MNIST, without", "AB": "blurred MNIST, without"}
LIKENESS = {
    ("A", "ssim"): "SSIM of d1'",
    ("A", "ssim_scaled"): "brightness apart",
    ("AA", "ssim_scaled"): "the same, fine-tuned on MNIST",
}
"""Stage and metric of what the reverse pass makes of the picture → heading."""
NORMS: dict[bool | str, str] = {
    False: "without norm", "none": "without norm", True: "batch norm", "batch": "batch norm",
}  # fmt: skip
"""Field of the configuration, of mnist and of few-labels → heading."""
LOSSES = {"our default": DEFAULT, "the paper's": PAPER}


def mnist(results: Path, folder: str, norm: str) -> str:
    """Test accuracy of every stage in percent, the likeness of d1', and how many nets died."""
    runs = [run for run in finished_runs(results / folder) if run.config["norm"] == (norm == "batch")]
    rows = []
    for row, (variant, where) in ALL_ROWS.items():
        same = [run for run in runs if run.variant == variant and has(run.config, where)]
        by_stage = {stage: [run.metrics for run in same if run.stage == stage] for stage in (*STAGES, "B")}
        accuracies = {stage: [100 * metrics["test_accuracy"] for metrics in nets] for stage, nets in by_stage.items()}
        likeness = [[net[metric] for net in by_stage[stage] if metric in net] for stage, metric in LIKENESS]
        if count := len(by_stage["A"]):
            dead = sum(metrics["test_accuracy"] < CHANCE for metrics in by_stage["A"])
            cells = [mean_and_sd(values, 2) for values in (*(accuracies[stage] for stage in STAGES), *likeness)]
            rows.append([row, *cells, str(count), f"{dead} of {count}" if dead else ""])
        if scratch := accuracies["B"]:
            cells = ["–", "–", mean_and_sd(scratch, 2), "–", "–", "–", str(len(scratch)), ""]
            rows.append([f"{row}, blurred MNIST from scratch", *cells])
    return markdown(["", *STAGES.values(), *LIKENESS.values(), "seeds", "collapsed"], rows)


def costs(results: Path, folder: str) -> str:
    """Cost of the first stage of each variant, alone on its device: milliseconds of a step and most memory, each also
    as a multiple of Std's with the same seed (medians)."""
    runs = [run for run in finished_runs(results / folder) if run.stage == "A"]
    norms = [norm for norm in NORMS if any(run.config["norm"] == norm for run in runs)]
    rows = []
    for row in ALL_ROWS:
        cells = []
        for norm in norms:
            ours, std = (_costs(runs, name, norm) for name in (row, "Std"))
            for field, unit, digits in (("step_s", 1e-3, 2), ("peak_memory", 2**20, 0)):
                known = {seed: cost[field] for seed, cost in ours.items() if cost[field] is not None}
                ratios = [value / std[seed][field] for seed, value in known.items() if seed in std]
                cells.append(f"{median(known.values()) / unit:.{digits}f}" if known else "–")
                cells.append(f"{median(ratios):.2f}" if ratios else "–")
        if any(cell != "–" for cell in cells):
            rows.append([row, *cells])
    return markdown(["", *(cell for norm in norms for cell in (f"{NORMS[norm]}: ms", "× Std", "MiB", "× Std"))], rows)


def _costs(runs: list[Run], row: str, norm: bool | str) -> dict[int, dict[str, Any]]:
    """Seed → the cost that is in the record, for the runs of a row."""
    variant, where = ALL_ROWS[row]
    return {seed: run.record["cost"] for seed, run in by_seed(runs, variant, {"norm": norm, **where}).items()}


def swapped(results: Path) -> str:
    """For every loss and variant: the settings that a search chose, accuracy after each stage in percent, and the share
    of nets that do not learn the swapped labels, with its exact interval."""
    runs, rows = finished_runs(results / "information-100"), []
    for loss, fields in LOSSES.items():
        with_loss = [run for run in runs if has(run.config, fields)]
        for name, variant in VARIANTS.items():
            same = [run for run in with_loss if run.variant == name and run.stage != "B"]
            reverse = variant.kind == "reverse"
            if same and (reverse or loss == "our default"):  # the others do not know the loss
                rows.append([loss if reverse else "", name, *_cells(same)])
        if loss == "our default" and (scratch := [run for run in with_loss if run.stage == "B"]):
            rows.append(["", "Std from scratch", *_cells(scratch)])
    head = ["loss", "", "λ or β", "learning rate", "first task", "fine-tuned on it", "swapped", "nets that fail"]
    return markdown(head, rows)


def _cells(runs: list[Run]) -> list[str]:
    first = runs[0]
    accuracies = {
        stage: [run.metrics["test_accuracy"] for run in runs if run.stage in (stage, "B" if stage == "AB" else "")]
        for stage in ("A", "AA", "AB")
    }
    means = [f"{100 * mean(values):.1f}" if values else "–" for values in accuracies.values()]
    swapped = accuracies["AB"]
    count = sum(accuracy < FAILED for accuracy in swapped)
    low, high = (round(100 * end) for end in exact_share(count, len(swapped)))
    return [
        "–" if first.weight is None else f"{first.weight:g}",
        f"{first.record['tuned'].get('lr', first.config['lr']):.2g}",
        *means,
        f"{count} of {words.count(len(swapped), 'net')} ({low} to {high} %)",
    ]

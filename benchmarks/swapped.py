"""The table of docs/when.md about swapped labels: how many nets of the 12-bit task fail, by loss and variant."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

from racecar_lab.experiments.information import FAILED
from racecar_lab.report import words
from racecar_lab.report.statistics import exact_share
from racecar_lab.running.results import Store
from racecar_lab.running.run import Run
from racecar_lab.training.loss_config import PAPER
from racecar_lab.training.variants import VARIANTS

LOSSES = {
    "our default": {"scale": "relative", "gradient": "reverse", "reduction": "mean"},
    "the paper's": PAPER,
}


def swapped_table(folder: Path) -> str:
    """For every loss and variant: the settings that a search chose, accuracy after each stage in percent, and the share
    of nets that do not learn the swapped labels, with its exact interval."""
    head = ["loss", "", "λ or β", "learning rate", "first task", "fine-tuned on it", "swapped", "nets that fail"]
    lines = [head, ["---", "---", *["---:"] * (len(head) - 2)]]
    runs = [run for run in Store(folder).runs() if run.finished]
    for loss, fields in LOSSES.items():
        some = [run for run in runs if all(run.config[name] == value for name, value in fields.items())]
        for name in VARIANTS:
            own = [run for run in some if run.variant == name]
            if own and (VARIANTS[name].kind == "reverse" or loss == next(iter(LOSSES))):
                lines.append(["" if VARIANTS[name].kind != "reverse" else loss, name, *_row(own)])
        scratch = [run for run in some if run.stage == "B"]
        if scratch and loss == next(iter(LOSSES)):
            lines.append(["", "Std from scratch", "–", _rate(scratch[0]), "–", "–", *_failed(scratch)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _row(runs: list[Run]) -> list[str]:
    first = runs[0]
    weight = "–" if first.coefficient is None else f"{first.coefficient:g}"
    stages = {stage: [run for run in runs if run.stage == stage] for stage in ("A", "AA", "AB")}
    means = [_mean(stages[stage]) for stage in ("A", "AA")]
    return [weight, _rate(first), *means, *_failed(stages["AB"])]


def _rate(run: Run) -> str:
    return f"{run.record['tuned'].get('lr', run.config['lr']):.2g}"


def _mean(runs: list[Run]) -> str:
    return f"{100 * mean(run.metrics['test_accuracy'] for run in runs):.1f}" if runs else "–"


def _failed(runs: list[Run]) -> list[str]:
    """Mean accuracy, and how many are below the bound."""
    if not runs:
        return ["–", "–"]
    count = sum(run.metrics["test_accuracy"] < FAILED for run in runs)
    low, high = (round(100 * end) for end in exact_share(count, len(runs)))
    return [_mean(runs), f"{count} of {words.count(len(runs), 'net')} ({low} to {high} %)"]

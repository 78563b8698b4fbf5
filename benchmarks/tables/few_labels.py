"""Tables of docs/experiments/few-labels.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.tables.common import claims, finished_runs, gain, markdown, mean_and_sd, with_interval
from racecar_lab.experiments.few_labels.claims import USUAL
from racecar_lab.report.settings import has
from racecar_lab.report.statistics import estimate, gains
from racecar_lab.report.verdicts import SIGNS
from racecar_lab.running.run import Run
from racecar_lab.training.loss_config import loss_name

LABELS = (2, 10, 50, 250)
FIRST_DESIGN = {**USUAL, "scale": "relative", "gradient": "both", "reduction": "mean"}
"""The usual setting with the loss that was the default at that time."""
OURS = "RR, an eighth of the batch"
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "Std": ("Std", {"fraction": 0.125, "longer": False}),
    "Std, trained as long as RR takes": ("Std", {"fraction": 0.125, "longer": True}),
    "Ort": ("Ort", {"fraction": 0.125, "longer": False}),
    "Pre": ("Pre", {"fraction": 0.125, "longer": False}),
    OURS: ("RR", {"fraction": 0.125, "longer": False}),
    "RR, exact": ("RR", {"fraction": 1.0, "longer": False}),
}
"""Row → variant, and the fields of its configuration."""
CHANCE = 0.25
"""A net whose accuracy is below has collapsed: there are five or ten classes."""
MAP: dict[str, tuple[float, dict[str, Any]]] = {
    "as it is": (0.1, {}),
    "λ 0.01": (0.01, {}),
    "λ 0.03": (0.03, {}),
    "λ 0.3": (0.3, {}),
    "λ 1": (1.0, {}),
    "λ falls to 0": (0.1, {"decay": True}),
    "only the first convolution": (0.1, {"layers": "early"}),
    "only the last": (0.1, {"layers": "late"}),
    "1000 pictures": (0.1, {"images": 1000}),
    "20000 pictures": (0.1, {"images": 20000}),
    "shifted pictures": (0.1, {"augment": True}),
    "six convolutions": (0.1, {"depth": 6}),
    "batch norm": (0.1, {"norm": "batch"}),
    "group norm": (0.1, {"norm": "group"}),
}
"""Row of the map → λ of RR, and what differs from the usual setting."""
OF_RR = ("decay", "layers", "scale")
"""Fields that change nothing for Std, which has their usual values."""

TASKS = {"digits": "digits", "blur": "blurred", "cifar": "CIFAR-10"}
STARTS = {"torch": "PyTorch's", "he": "He's"}
DEFAULT, PAPERS = "the default", "the paper's"
BOTH = [(loss, name) for loss in (DEFAULT, PAPERS) for name in ("RR", "lRR")]
RIVALS = {"Ort": "Ort", "OrtB": "OrtB", "Pre": "Pre", "Std, as long": "Std trained as many seconds"}
PROBE = "at 2 labels: probe"
CLAIMS: dict[str, dict[str, tuple[str, str]]] = {
    "std": {f"{name} − Std, {loss}": (loss, f"Without norm {name} beats Std {PROBE}") for loss, name in BOTH},
    "rivals": {
        **{f"lRR − {short}": (DEFAULT, f"Without norm lRR beats {than} {PROBE}") for short, than in RIVALS.items()},
        "lRR − Std, fine-tuned": (DEFAULT, "Without norm lRR beats Std at 2 labels: fine-tuned"),
    },
    "source": {
        f"{what}: lRR − Std, {loss}": (loss, f"Without norm lRR beats Std on the source task: {what}")
        for what in ("accuracy", "likelihood")
        for loss in (DEFAULT, PAPERS)
    },
    "batch": {
        **{
            f"lRR without − Std with it, {loss}": (loss, f"Without norm lRR beats Std with batch norm {PROBE}")
            for loss in (DEFAULT, PAPERS)
        },
        **{
            f"{name} − Std, both with it, {loss}": (loss, f"With batch norm {name} is as good as Std {PROBE}")
            for loss, name in BOTH
        },
    },
}
"""Table → column → loss and claim."""


def by_loss(results: Path, kind: str) -> str:
    """A row for each task, depth and start: sign of the verdict, mean gain and corrected interval of each claim."""
    cells = {}
    for finding in claims(results / "few-labels-losses"):
        if finding.sides is None or not finding.judged:
            continue
        config = finding.sides[0].config
        row = list(TASKS).index(config["task"]), config["depth"], list(STARTS).index(config["start"])
        cells[row, loss_name(config), finding.claim.text] = f"{SIGNS[finding.verdict]} {gain(finding)}"
    columns = CLAIMS[kind]
    rows = sorted({row for row, *claim in cells if tuple(claim) in columns.values()})
    places = {row: [list(TASKS.values())[row[0]], str(row[1]), list(STARTS.values())[row[2]]] for row in rows}
    return markdown(
        ["task", "convolutions", "first weights", *columns],
        [[*places[row], *(cells.get((row, *claim), "–") for claim in columns.values())] for row in rows],
    )


def first_search(results: Path, way: str, norm: str, task: str) -> str:
    """Mean ± sd of every row, and RR minus it at two labels with its 95 % interval and p, not corrected."""
    usual = {name: value for name, value in FIRST_DESIGN.items() if name not in ("fraction", "longer")}
    usual |= {"norm": norm, "task": task}
    runs = [run for run in finished_runs(results / "few-labels") if run.record["tuned"] and has(run.config, usual)]
    runs_of_row = {row: by_seed(runs, variant, where) for row, (variant, where) in ROWS.items()}
    ours, rows = runs_of_row[OURS], []
    for row, seeds in runs_of_row.items():
        if seeds:
            means = [mean_and_sd([100 * run.metrics[f"{way}_{n}"] for run in seeds.values()], 1) for n in LABELS]
            last = "–" if row == OURS else with_interval(estimate(points(ours, seeds, f"{way}_2")))
            rows.append([row, *means, str(len(seeds)), last])
    return markdown(["", *(f"{n} labels" for n in LABELS), "seeds", "RR minus it, at 2 labels"], rows)


def map_of_settings(results: Path, lr: str, scale: str) -> str:
    """RR minus Std in points, in every setting of the map that was run with this learning rate and scale."""
    runs, rows = finished_runs(results / "few-labels-map"), []
    for row, (lam, change) in MAP.items():
        where = {**FIRST_DESIGN, "lr": float(lr), "scale": scale, **change}
        ours = by_seed([run for run in runs if run.record["weight"] == lam], "RR", where)
        std = by_seed(runs, "Std", {**where, **{name: FIRST_DESIGN[name] for name in OF_RR}})
        if ours:
            cells = [mean_and_sd(points(ours, std, f"probe_{n}"), 1, "+") for n in LABELS]
            dead = sum(run.metrics["source_accuracy"] < CHANCE for run in ours.values())
            rows.append([row, *cells, str(len(ours)), f"{dead} of {len(ours)}" if dead else ""])
    return markdown(["", *(f"{n} labels" for n in LABELS), "seeds", "collapsed"], rows)


def fresh(results: Path) -> str:
    """The best settings of the map on fresh seeds: both variants, and the paired difference with its 95 % interval."""
    runs, rows = finished_runs(results / "few-labels-fresh"), []
    for images in sorted({run.config["images"] for run in runs}, reverse=True):
        std, ours = (by_seed(runs, name, {"images": images}) for name in ("Std", "RR"))
        means = [mean_and_sd([100 * run.metrics["probe_2"] for run in side.values()], 1) for side in (std, ours)]
        apart = [with_interval(estimate(points(ours, std, f"probe_{n}"))) for n in (2, 250)]
        untrained = mean_and_sd([100 * run.metrics["untrained_2"] for run in std.values()], 1)
        rows.append([str(images), *means, *apart, untrained, str(len(ours))])
    head = ["pictures", "Std, 2 labels", "RR", "RR − Std", "RR − Std, 250 labels", "untrained", "seeds"]
    return markdown(head, rows)


def by_seed(runs: Sequence[Run], variant: str, where: Mapping[str, Any]) -> dict[int, Run]:
    """The runs of a variant whose configuration has these values."""
    return {run.seed: run for run in runs if run.variant == variant and has(run.config, where)}


def points(ours: Mapping[int, Run], other: Mapping[int, Run], metric: str) -> list[float]:
    """Differences of a metric in points, for the seeds that both have."""
    a, b = ({seed: 100 * run.metrics[metric] for seed, run in side.items()} for side in (ours, other))
    return gains(a, b, higher=True)

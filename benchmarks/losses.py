"""Few labels by loss, depth and first weights, where all variants were searched alike: tables of docs/when.md."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from benchmarks.sentences import in_points
from racecar_lab.experiments import experiment
from racecar_lab.report.findings import Finding
from racecar_lab.report.section import findings_of
from racecar_lab.report.told import judged
from racecar_lab.report.verdicts import SIGNS
from racecar_lab.running.results import Store
from racecar_lab.training.loss_config import loss_name

FOLDER = "few-labels-losses"
TASKS = {"digits": "digits", "blur": "blurred", "cifar": "CIFAR-10"}
STARTS = {"torch": "PyTorch's", "he": "He's"}
DEFAULT, PAPERS = "the default", "the paper's"
TO_REACH = "Without norm lRR beats Std with batch norm at 2 labels: probe"
KINDS: dict[str, dict[str, tuple[str, str]]] = {
    "std": {
        f"{name} − Std, {loss}": (loss, f"Without norm {name} beats Std at 2 labels: probe")
        for loss in (DEFAULT, PAPERS)
        for name in ("RR", "lRR")
    },
    "rivals": {
        f"lRR − {short}": (DEFAULT, f"Without norm lRR beats {than} at 2 labels: {how}")
        for short, than, how in (
            ("Ort", "Ort", "probe"),
            ("OrtB", "OrtB", "probe"),
            ("Pre", "Pre", "probe"),
            ("Std, as long", "Std trained as many seconds", "probe"),
            ("Std, fine-tuned", "Std", "fine-tuned"),
        )
    },
    "source": {
        f"{what}: {name} − Std, {loss}": (loss, f"Without norm {name} beats Std on the source task: {what}")
        for what in ("accuracy", "likelihood")
        for name, loss in (("lRR", DEFAULT), ("lRR", PAPERS))
    },
    "batch": {
        **{f"lRR without − Std with it, {loss}": (loss, TO_REACH) for loss in (DEFAULT, PAPERS)},
        **{
            f"{name} − Std, both with it, {loss}": (
                loss,
                f"With batch norm {name} is as good as Std at 2 labels: probe",
            )
            for loss in (DEFAULT, PAPERS)
            for name in ("RR", "lRR")
        },
    },
}
"""Table → column → loss and claim."""


def losses_table(folder: Path, kind: str) -> str:
    """A row for each task, depth and start: mean gain and corrected 95 % interval, with the sign of the verdict."""
    columns, cells = KINDS[kind], cells_of(folder)
    told = {key[:3] for key in cells if key[3:] in columns.values()}
    rows = sorted(told, key=lambda key: (list(TASKS).index(key[0]), key[1], key[2] != "torch"))
    head = ["task", "convolutions", "first weights", *columns]
    lines = [head, ["---", "---:", "---", *["---:"] * len(columns)]]
    for task, depth, start in rows:
        found = [cells.get((task, depth, start, *what)) for what in columns.values()]
        lines.append(
            [
                TASKS[task],
                str(depth),
                STARTS[start],
                *("–" if one is None else f"{SIGNS[one.verdict]} {in_points(one)}" for one in found),
            ]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@cache
def cells_of(folder: Path) -> dict[tuple[str, int, str, str, str], Finding]:
    """Task, depth, start, loss and claim → what became of it."""
    found = {}
    for one in judged(findings_of(experiment("few-labels"), list(Store(folder).runs()))):
        assert one.better is not None
        config = one.better.config
        key = config["task"], config["depth"], config["start"], loss_name(config) or "", one.claim.text
        found[key] = one
    return found

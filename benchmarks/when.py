"""The tables of docs/when.md, from the records of few-labels and mnist; ``benchmarks.told`` has its lines, and
``benchmarks.when_figure`` its figure.

    python -m benchmarks.when [--results results] [--page docs/when.md]

Between its marks the page holds what this prints: nothing there is typed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.losses import FOLDER, losses_table
from benchmarks.pages import write_page
from benchmarks.swapped import swapped_table
from racecar_lab.config import younger
from racecar_lab.experiments import few_labels
from racecar_lab.report import words
from racecar_lab.report.groups import has
from racecar_lab.report.statistics import Estimate, estimate, gains
from racecar_lab.running.results import Store
from racecar_lab.running.run import Run

LOSS = {name: younger(few_labels.FewLabelsConfig)[name] for name in ("scale", "gradient", "reduction")}
"""Of the records that the page is made from."""
USUAL: dict[str, Any] = {**few_labels.USUAL, **LOSS}
LABELS = (2, 10, 50, 250)
TASKS = {"digits": "MNIST digits 0–4 → 5–9", "blur": "MNIST → blurred MNIST", "cifar": "CIFAR-10, five classes → five"}
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "Std": ("Std", {"fraction": 0.125, "longer": False}),
    "Std, trained as long as RR takes": ("Std", {"fraction": 0.125, "longer": True}),
    "Ort": ("Ort", {"fraction": 0.125, "longer": False}),
    "Pre": ("Pre", {"fraction": 0.125, "longer": False}),
    "RR, an eighth of the batch": ("RR", {"fraction": 0.125, "longer": False}),
    "RR, exact": ("RR", {"fraction": 1.0, "longer": False}),
}
OURS = "RR, an eighth of the batch"
COEFFICIENT, USUAL_COEFFICIENT = "coefficient", 0.1
"""λ of the map; no field of a configuration."""
MAP: dict[str, dict[str, Any]] = {
    "as it is": {},
    "λ 0.01": {COEFFICIENT: 0.01},
    "λ 0.03": {COEFFICIENT: 0.03},
    "λ 0.3": {COEFFICIENT: 0.3},
    "λ 1": {COEFFICIENT: 1.0},
    "λ falls to 0": {"decay": True},
    "only the first convolution": {"layers": "early"},
    "only the last": {"layers": "late"},
    "1000 pictures": {"images": 1000},
    "20000 pictures": {"images": 20000},
    "shifted pictures": {"augment": True},
    "six convolutions": {"depth": 6},
    "batch norm": {"norm": "batch"},
    "group norm": {"norm": "group"},
}
"""What differs from the usual setting at one learning rate."""
REVERSE = ("decay", "layers", "scale")
"""Fields that Std does not know."""
CHANCE = 0.25
"""A net whose accuracy is below has collapsed: there are five or ten classes."""
MNIST_ROWS = ROWS | {name: (name, {"fraction": 0.125, "longer": False}) for name in ("lRR", "RR1", "WD")}
STAGES = {"A": "with regulariser", "AA": "MNIST, without", "AB": "blurred MNIST, without"}
"""Of mnist, and what each is called."""
LIKENESS = {
    ("A", "ssim"): "SSIM of d1'",
    ("A", "ssim_scaled"): "brightness apart",
    ("AA", "ssim_scaled"): "the same, fine-tuned on MNIST",
}
"""Stage and metric of what the reverse pass makes of the picture."""
MARK = re.compile(
    r"(?P<mark><!-- (?:map (?P<lr>\S+) (?P<scale>\w+)|mnist (?P<how>\w+) (?P<batch>\w+)"
    r"|costs (?P<costs>[\w-]+)|(?P<fresh>fresh)|(?P<swapped>swapped)|losses (?P<losses>\w+)"
    r"|table (?P<way>\w+) (?P<norm>\w+) (?P<task>\w+)) -->\n)"
    r".*?(?P<end><!-- end -->)",
    re.DOTALL,
)

Found = Mapping[str, Mapping[int, Mapping[str, float]]]
"""Row → seed → metrics."""


def read(folder: Path, norm: str, task: str = "digits") -> Found:
    """The tuned runs of the usual setting."""
    usual = {name: value for name, value in USUAL.items() if name not in ("fraction", "longer")}
    usual |= {"norm": norm, "task": task}
    runs = [run for run in Store(folder).runs() if run.finished and run.record["tuned"] and _has(run, usual)]
    rows = {
        row: {run.seed: run.metrics for run in runs if run.variant == variant and _has(run, where)}
        for row, (variant, where) in ROWS.items()
    }
    return {row: some for row, some in rows.items() if some}


def _has(run: Run, fields: Mapping[str, Any]) -> bool:
    return has({**run.config, COEFFICIENT: run.record["coefficient"]}, fields)


def gain(found: Found, metric: str, than: str = "Std") -> Estimate | None:
    """RR minus another row, in points, over the seeds of both."""
    ours, other = ({seed: 100 * one[metric] for seed, one in found[row].items()} for row in (OURS, than))
    return estimate(gains(ours, other, higher=True))


def dead(runs: Mapping[int, Mapping[str, float]]) -> list[int]:
    """Seeds of nets that tell nothing from anything."""
    return [seed for seed, one in runs.items() if one["source_accuracy"] < CHANCE]


def table(found: Found, way: str) -> str:
    """Mean ± sd of every row, and RR minus it at two labels with its 95 % interval and p, not corrected."""
    head = ["", *(f"{n} labels" for n in LABELS), "seeds", "RR minus it, at 2 labels"]
    lines = [head, ["---", *["---:"] * (len(head) - 2), "---"]]
    for row, runs in found.items():
        cells = [_mean([100 * one[f"{way}_{n}"] for one in runs.values()], 1) for n in LABELS]
        lines.append([row, *cells, str(len(runs)), "–" if row == OURS else _difference(gain(found, f"{way}_2", row))])
    return _text(lines)


def _difference(found: Estimate | None) -> str:
    if found is None or (ends := found.interval()) is None:
        return "–"
    low, high = (f"{end:+.1f}".replace("-", "−") for end in ends)
    return f"{found.mean:+.1f}".replace("-", "−") + f" ({low} to {high}), p {words.p_value(found.p)}"


def map_table(folder: Path, lr: float, scale: str) -> str:
    """RR minus Std in points, in every cell of the map that has this learning rate and scale."""
    runs = [run for run in Store(folder).runs() if run.finished]
    lines = [["", *(f"{n} labels" for n in LABELS), "seeds", "collapsed"], ["---", *["---:"] * 6]]
    for label, change in MAP.items():
        where = {**USUAL, "lr": lr, "scale": scale, COEFFICIENT: USUAL_COEFFICIENT, **change}
        theirs = {**where, COEFFICIENT: None, **{name: USUAL[name] for name in REVERSE}}
        ours, std = (
            {run.seed: run.metrics for run in runs if run.variant == name and _has(run, fields)}
            for name, fields in (("RR", where), ("Std", theirs))
        )
        if not ours:
            continue
        found = [estimate([100 * (ours[i][f"probe_{n}"] - std[i][f"probe_{n}"]) for i in sorted(ours)]) for n in LABELS]
        cells = ["–" if one is None else f"{one.mean:+.1f} ± {one.sd or 0:.1f}".replace("-", "−") for one in found]
        lost = len(dead(ours))
        lines.append([label, *cells, str(len(ours)), f"{lost} of {len(ours)}" if lost else ""])
    return _text(lines)


def mnist_table(folder: Path, norm: bool) -> str:
    """Test accuracy of every stage in percent, the likeness of d1', and how many nets died."""
    runs = [run for run in Store(folder).runs() if run.finished and run.config["norm"] == norm]
    lines = [["", *STAGES.values(), *LIKENESS.values(), "seeds", "collapsed"], ["---", *["---:"] * (len(STAGES) + 5)]]
    for row, (variant, where) in MNIST_ROWS.items():
        mine = [run for run in runs if run.variant == variant and _has(run, where)]
        by = {stage: [run.metrics for run in mine if run.stage == stage] for stage in (*STAGES, "B")}
        if not (first := by["A"]):
            continue
        cells = [_mean([100 * one["test_accuracy"] for one in by[stage]], 2) for stage in STAGES]
        lost = sum(one["test_accuracy"] < CHANCE for one in first)
        likeness = [
            _mean([one[metric] for one in by[stage] if metric in one], 2) if by[stage] else "–"
            for stage, metric in LIKENESS
        ]
        lines.append([row, *cells, *likeness, str(len(first)), f"{lost} of {len(first)}" if lost else ""])
        if scratch := [100 * one["test_accuracy"] for one in by["B"]]:
            lines.append(
                [
                    f"{row}, blurred MNIST from scratch",
                    "–",
                    "–",
                    _mean(scratch, 2),
                    *["–"] * len(LIKENESS),
                    str(len(scratch)),
                    "",
                ]
            )
    return _text(lines)


def cost_table(folder: Path) -> str:
    """What the first stage of each variant took, alone on its device: milliseconds of a step and most memory, each also
    as a multiple of Std's with the same seed (medians)."""
    runs = [run for run in Store(folder).runs() if run.finished and run.stage == "A"]
    columns = {False: "without norm", "none": "without norm", True: "batch norm", "batch": "batch norm"}
    norms = [norm for norm in columns if any(run.config["norm"] == norm for run in runs)]
    head = [cell for norm in norms for cell in (f"{columns[norm]}: ms", "× Std", "MiB", "× Std")]
    lines = [["", *head], ["---", *["---:"] * len(head)]]
    for row, (variant, where) in MNIST_ROWS.items():
        cells = []
        for norm in norms:
            own, std = (
                {run.seed: run.record["cost"] for run in runs if run.variant == name and _has(run, {"norm": norm} | at)}
                for name, at in ((variant, where), MNIST_ROWS["Std"])
            )
            for field, scale, digits in (("step_s", 1e3, 2), ("peak_memory", 2**-20, 0)):
                known = {seed: one[field] for seed, one in own.items() if one[field] is not None}
                times = [value / std[seed][field] for seed, value in known.items() if seed in std]
                cells.append(f"{scale * median(known.values()):.{digits}f}" if known else "–")
                cells.append(f"{median(times):.2f}" if times else "–")
        if any(cell != "–" for cell in cells):
            lines.append([row, *cells])
    return _text(lines)


def _mean(values: list[float], digits: int) -> str:
    found = estimate(values)
    return "–" if found is None else f"{found.mean:.{digits}f} ± {found.sd or 0:.{digits}f}"


def _text(lines: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(text: str, folder: Path) -> str:
    """The page with its tables filled in."""

    def fill(mark: re.Match[str]) -> str:
        if mark["lr"]:
            made = map_table(folder / "few-labels-map", float(mark["lr"]), mark["scale"])
        elif mark["fresh"]:
            made = fresh_table(folder / "few-labels-fresh")
        elif mark["losses"]:
            made = losses_table(folder / FOLDER, mark["losses"])
        elif mark["swapped"]:
            made = swapped_table(folder / "information-100")
        elif mark["costs"]:
            made = cost_table(folder / mark["costs"])
        elif mark["how"]:
            made = mnist_table(
                folder / {"tuned": "mnist", "fixed": "mnist-fixed"}[mark["how"]], mark["batch"] == "batch"
            )
        else:
            made = table(read(folder / "few-labels", mark["norm"], mark["task"]), mark["way"])
        return f"{mark['mark']}\n{made}\n\n{mark['end']}"

    return MARK.sub(fill, text)


def fresh_table(folder: Path) -> str:
    """The best cells of the map on fresh seeds: both variants, and the paired difference with its 95 % interval."""
    runs = [run for run in Store(folder).runs() if run.finished]
    few, most = min(LABELS), max(LABELS)
    lines = [["pictures", f"Std, {few} labels", "RR", "RR − Std", f"RR − Std, {most} labels", "untrained", "seeds"]]
    lines.append(["---:"] * len(lines[0]))
    for images in sorted({run.config["images"] for run in runs}, reverse=True):
        std, ours = (
            {run.seed: run.metrics for run in runs if run.variant == name and run.config["images"] == images}
            for name in ("Std", "RR")
        )
        means = [_mean([100 * one[f"probe_{few}"] for one in some.values()], 1) for some in (std, ours)]
        apart = [estimate([100 * (ours[i][f"probe_{n}"] - std[i][f"probe_{n}"]) for i in ours]) for n in (few, most)]
        start = _mean([100 * one[f"untrained_{few}"] for one in std.values()], 1)
        lines.append([str(images), *means, *map(_difference, apart), start, str(len(ours))])
    return _text(lines)


def main() -> None:
    write_page(__doc__, Path("docs/when.md"), page)


if __name__ == "__main__":
    main()

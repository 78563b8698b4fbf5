"""Few labels by loss, depth and first weights, where all variants were searched alike: tables of docs/when.md, and what
is said of them."""

from __future__ import annotations

from pathlib import Path

from benchmarks.sentences import listed, signed, span, sure
from racecar.lab.experiments import experiment
from racecar.lab.report.findings import Finding
from racecar.lab.report.forest import gain_told, judged
from racecar.lab.report.section import findings_of
from racecar.lab.report.verdicts import CONTRADICTED, SIGNS, SUPPORTED, UNDECIDED
from racecar.lab.running.results import Store
from racecar.lab.training.loss_config import loss_name

FOLDER = "few-labels-losses"
TASKS = {"digits": "digits", "blur": "blurred", "cifar": "CIFAR-10"}
STARTS = {"torch": "PyTorch's", "he": "He's"}
DEFAULT, PAPERS = "the default", "the paper's"
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
}
"""Table → column → loss and claim."""


def losses_table(folder: Path, kind: str) -> str:
    """A row for each task, depth and start: mean gain and corrected 95 % interval, with the sign of the verdict."""
    columns, cells = KINDS[kind], cells_of(folder)
    rows = sorted({key[:3] for key in cells}, key=lambda key: (list(TASKS).index(key[0]), key[1], key[2] != "torch"))
    head = ["task", "convolutions", "first weights", *columns]
    lines = [head, ["---", "---:", "---", *["---:"] * len(columns)]]
    for task, depth, start in rows:
        found = [cells.get((task, depth, start, *what)) for what in columns.values()]
        lines.append([TASKS[task], str(depth), STARTS[start], *("–" if one is None else _cell(one) for one in found)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cells_of(folder: Path) -> dict[tuple[str, int, str, str, str], Finding]:
    """Task, depth, start, loss and claim → what became of it."""
    found = {}
    for one in judged(findings_of(experiment("few-labels"), list(Store(folder).runs()))):
        assert one.better is not None
        config = one.better.config
        key = config["task"], config["depth"], config["start"], loss_name(config) or "", one.claim.text
        found[key] = one
    return found


def by_loss(folder: Path) -> str:
    """What README and docs/when.md say, of both losses together."""
    cells = cells_of(folder / FOLDER)

    def of(name: str, start: str = "") -> list[Finding]:
        text = f"Without norm {name} beats Std at 2 labels: probe"
        return [found for key, found in cells.items() if key[4] == text and start in ("", key[2])]

    layerwise, full = of("lRR"), of("RR")
    none = "neither is behind Std at two labels in any setting, and with He's weights nothing is decided"
    sure(all(one.verdict != CONTRADICTED for one in (*layerwise, *full)), none)
    sure(all(one.verdict == UNDECIDED for name in ("RR", "lRR") for one in of(name, "he")), none)
    first = cells["digits", 3, "torch", DEFAULT, "Without norm RR beats Std at 2 labels: probe"]
    sure(first.verdict == UNDECIDED, "RR's gain on digits with three convolutions is undecided")
    zero = [one for one in full if one.better is not None and not one.better.coefficient]
    tasks, depths = (sorted({key[i] for key in cells}, key=str) for i in (0, 1))
    return (
        f"Searched more finely, from λ = 0 up, and with both losses "
        f"([by loss]({{results}}/{FOLDER}/report.md): {listed([TASKS[str(one)] for one in tasks])}, "
        f"{listed([str(one) for one in depths])} convolutions, PyTorch's and He's first weights), lRR, layer by layer, "
        f"is ahead of Std at two labels in {_ahead(layerwise)}, RR in {_ahead(full)}; λ = 0 was best for RR in "
        f"{len(zero)}. Behind is neither, and with He's weights nothing is decided. RR's gain on digits, the first of "
        f"those above, is {signed(_points(first))} points now, and undecided."
    )


def _ahead(findings: list[Finding]) -> str:
    count = sum(one.verdict == SUPPORTED for one in findings)
    return f"{count} of {len(findings)} settings ({span([_points(one) for one in findings])} points)"


def _points(found: Finding) -> float:
    assert found.gain is not None
    return 100 * found.gain.mean


def _cell(found: Finding) -> str:
    mean, _, interval = gain_told(found).partition(", ")
    return f"{SIGNS[found.verdict]} {mean.partition(' ')[0]} ({interval})"

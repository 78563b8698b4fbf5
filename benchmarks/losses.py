"""Few labels by loss, depth and first weights, where all variants were searched alike: tables of docs/when.md, and what
is said of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from benchmarks.sentences import listed, signed, span, sure
from racecar.lab.experiments import experiment
from racecar.lab.report.findings import Finding
from racecar.lab.report.section import findings_of
from racecar.lab.report.told import gain_told, judged
from racecar.lab.report.verdicts import CONTRADICTED, SIGNS, SUPPORTED, UNDECIDED
from racecar.lab.running.results import Store
from racecar.lab.training.loss_config import loss_name

FOLDER = "few-labels-losses"
TASKS = {"digits": "digits", "blur": "blurred", "cifar": "CIFAR-10"}
STARTS = {"torch": "PyTorch's", "he": "He's"}
DEFAULT, PAPERS = "the default", "the paper's"
BESIDE = "is as good as Std at 2 labels"
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
        lines.append([TASKS[task], str(depth), STARTS[start], *("–" if one is None else _cell(one) for one in found)])
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


def by_loss(folder: Path) -> str:
    """What README and docs/when.md say, of both losses together."""
    cells = cells_of(folder / FOLDER)

    def of(name: str, start: str = "") -> list[Finding]:
        text = f"Without norm {name} beats Std at 2 labels: probe"
        return [found for key, found in cells.items() if key[4] == text and start in ("", key[2])]

    layerwise, full = of("lRR"), of("RR")
    none = [one for one in (*layerwise, *full) if one.verdict == CONTRADICTED]
    sure(not none, "neither is behind Std at two labels in any setting")
    first = cells["digits", 3, "torch", DEFAULT, "Without norm RR beats Std at 2 labels: probe"]
    sure(first.verdict == UNDECIDED, "RR's gain on digits with three convolutions is undecided")
    zero = [one for one in full if one.better is not None and not one.better.coefficient]
    tasks, depths = (sorted({key[i] for key in cells}, key=str) for i in (0, 1))
    return (
        f"Searched more finely, from λ = 0 up, and with both losses "
        f"([by loss]({{results}}/{FOLDER}/report.md): {listed([TASKS[str(one)] for one in tasks])}, "
        f"{listed([str(one) for one in depths])} convolutions, PyTorch's and He's first weights), lRR, layer by layer, "
        f"is ahead of Std at two labels in {_ahead(layerwise)}, of which {_count(of('lRR', 'he'))} with He's weights; "
        f"RR in {_ahead(full)}, and λ = 0 was best for it in {len(zero)}. Behind is neither. {_source(cells)} "
        f"{_to_reach(cells)} RR's gain on digits, the first of those above, is {signed(_points(first))} points now, "
        f"and undecided."
    )


def _to_reach(cells: dict[tuple[str, int, str, str, str], Finding]) -> str:
    """What batch norm does alone, and what is left to do beside it."""
    behind = [found for key, found in cells.items() if key[4] == TO_REACH]
    beside = [found for key, found in cells.items() if BESIDE in key[4]]
    sure(not _count(behind), "nowhere does lRR more than batch norm")
    sure(not _count(beside, CONTRADICTED), "with batch norm neither is behind Std")
    return (
        f"Batch norm alone does as much or more: Std with it is {span([-_points(one) for one in behind])} points ahead "
        f"of lRR without, for certain in {_count(behind, CONTRADICTED)} of {len(behind)} settings; with it, RR and lRR "
        f"are as good as Std in {_count(beside)} of {len(beside)} ({span([_points(one) for one in beside])} points), "
        f"and undecided in the others."
    )


def _source(cells: dict[tuple[str, int, str, str, str], Finding]) -> str:
    """What lRR costs or gains where it was trained."""
    text = "Without norm lRR beats Std on the source task: accuracy"
    found = {key: one for key, one in cells.items() if key[4] == text}
    ahead, behind = ([key for key, one in found.items() if one.verdict == sign] for sign in (SUPPORTED, CONTRADICTED))
    [worst] = behind
    sure(worst[:4] == ("cifar", 6, "torch", DEFAULT), "the default costs accuracy on the source in one setting")
    sure("cifar" not in {key[0] for key in ahead}, "on CIFAR-10 lRR gains nothing on the source task")
    return (
        f"On the source task itself lRR is ahead in {len(ahead)} of {len(found)}, none of them CIFAR-10; there, with "
        f"six convolutions and PyTorch's weights, the default costs {abs(_points(found[worst])):.1f} points."
    )


def _count(findings: list[Finding], verdict: str = SUPPORTED) -> int:
    return sum(one.verdict == verdict for one in findings)


def _ahead(findings: list[Finding]) -> str:
    return f"{_count(findings)} of {len(findings)} settings ({span([_points(one) for one in findings])} points)"


def _points(found: Finding) -> float:
    assert found.gain is not None
    return 100 * found.gain.mean


def _cell(found: Finding) -> str:
    mean, _, interval = gain_told(found).partition(", ")
    return f"{SIGNS[found.verdict]} {mean.partition(' ')[0]} ({interval})"

"""docs/when.md says what the records say."""

import re
from pathlib import Path

from benchmarks.swapped import LOSSES, swapped_table
from benchmarks.when import MAP, cost_table, fresh_table, mnist_table, page
from benchmarks.when_figure import SERIES, figure
from racecar_lab.running.results import Store
from tests.figures import legible
from tests.lab.report.records import record, write

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"


def test_the_page_has_all_of_the_map():
    """That it is up to date is seen in test_told."""
    text = (ROOT / "docs" / "when.md").read_text()
    assert all(f"| {label} |" in text for label in MAP)


def test_the_page_opens_with_its_lines_and_folds_the_rest():
    """Every table is in a fold, with blank lines around its Markdown: else GitHub shows the source."""
    text = (ROOT / "docs" / "when.md").read_text()
    picture, lines, contents, table = (
        text.index(one) for one in ("images/when.svg", "- **It helps**", "## Contents", "|  |")
    )
    assert picture < lines < contents < table
    outside = re.sub(r"(?s)<details>.*?</details>", "", text)
    assert "| --- |" not in outside
    assert (
        text.count("<details>")
        == text.count("</details>")
        == len(re.findall(r"</summary>\n\n.*?\n\n</details>", text, re.DOTALL))
    )
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    linked = re.findall(r"^- \[(.*?)\]\(#", text, re.MULTILINE)
    assert linked == [one for one in headings if one != "Contents"]


def test_what_is_not_between_marks_stays():
    text = "before\n<!-- table probe batch digits -->\nold\n<!-- end -->\nafter\n"
    filled = page(text, RESULTS)
    assert filled.startswith("before\n<!-- table probe batch digits -->\n")
    assert filled.endswith("<!-- end -->\nafter\n")
    assert "old" not in filled


def test_the_figure_shows_the_gain():
    """One point by hand, without nets that died: lRR of the paper's loss, six convolutions on blurred digits."""
    runs = [run for run in Store(RESULTS / "few-labels-losses").runs() if not run.config["longer"]]
    place = {"task": "blur", "depth": 6, "start": "torch", "norm": "none"}
    some = [run for run in runs if all(run.config[name] == value for name, value in place.items())]
    ours = {run.seed: run for run in some if (run.variant, run.config["scale"]) == ("lRR", "sum")}
    std = {run.seed: run for run in some if run.variant == "Std"}
    pairs = [(ours[seed], std[seed]) for seed in range(10) if not ours[seed].dead and not std[seed].dead]
    assert len(pairs) == 9
    by_hand = 100 * sum(one.metrics["probe_2"] - other.metrics["probe_2"] for one, other in pairs) / 9

    drawn = figure(RESULTS / "few-labels-losses")
    legible(drawn)
    assert [axis.get_title() for axis in drawn.axes] == ["linear probe", "fine-tuned"]
    axis = drawn.axes[0]
    rows = [label.get_text() for label in axis.get_yticklabels()]
    assert rows == ["3, PyTorch's", "3, He's", "6, PyTorch's", "6, He's"] * 3
    digits, blurred = axis.containers[:3], axis.containers[3:6]
    assert [one.get_label() for one in digits] == list(SERIES)
    assert abs(blurred[1].lines[0].get_xdata()[2] - by_hand) < 1e-9


def test_the_table_of_mnist():
    """By hand from the records: the mean accuracy of the last stage, and how many nets died."""
    lines = mnist_table(RESULTS / "mnist", norm=False).splitlines()
    (line,) = [line for line in lines if line.startswith("| RR, an eighth of the batch |")]
    runs = [
        run
        for run in Store(RESULTS / "mnist").runs()
        if run.variant == "RR" and not run.config["norm"] and run.config["fraction"] < 1 and run.stage == "AB"
    ]
    mean = sum(100 * run.metrics["test_accuracy"] for run in runs) / len(runs)
    assert f"{mean:.2f} ± " in line
    assert line.endswith("| 5 | 1 of 5 |")


def test_what_it_costs(tmp_path):
    """Medians over seeds; ratios are those of one seed, of its Std; what was not measured is a dash."""

    def cost(variant, seed, ms, mib, fraction=0.125, norm=False):
        config = {"norm": norm, "fraction": fraction, "longer": False}
        spent = {"wall_s": 1.0, "step_s": ms / 1000, "steps": 10, "peak_memory": mib and mib * 2**20}
        return record(variant, seed, {}, config=config, cost=spent)

    one = [cost("Std", 0, 1.0, 10), cost("Std", 1, 2.0, 10), cost("Std", 0, 3.0, None, norm=True)]
    one += [cost("RR", 0, 1.2, 12), cost("RR", 1, 2.6, 11), cost("RR", 0, 2.5, 20, fraction=1.0)]
    lines = cost_table(write(tmp_path, one)).splitlines()
    assert lines[0].startswith("|  | without norm: ms | × Std | MiB | × Std | batch norm: ms |")
    assert lines[2:] == [
        "| Std | 1.50 | 1.00 | 10 | 1.00 | 3.00 | 1.00 | – | – |",
        "| RR, an eighth of the batch | 1.90 | 1.25 | 12 | 1.15 | – | – | – | – |",
        "| RR, exact | 2.50 | 2.50 | 20 | 2.00 | – | – | – | – |",
    ]


def test_the_best_cells_on_fresh_seeds(tmp_path):
    """Two pairs by hand; the difference is of the pairs."""

    def one(variant, seed, few, most):
        metrics = {"probe_2": few, "probe_250": most, "untrained_2": 0.5}
        return record(variant, seed, metrics, config={"images": 1000})

    pairs = [one("Std", 0, 0.5, 0.9), one("Std", 1, 0.7, 0.9), one("RR", 0, 0.6, 0.9), one("RR", 1, 0.9, 0.9)]
    (line,) = fresh_table(write(tmp_path, pairs)).splitlines()[2:]
    assert line.startswith("| 1000 | 60.0 ± 14.1 | 75.0 ± 21.2 | +15.0 (")
    assert line.endswith("| 50.0 ± 0.0 | 2 |")


def test_nets_that_fail(tmp_path):
    """Two of three of Std's below 0.75; with the paper's loss RR alone is told again, with the λ and rate it had."""
    made = []
    for loss in LOSSES.values():
        for name, weight, values in (("Std", None, (0.5, 0.5, 1.0)), ("RR", 0.25, (1.0, 1.0, 0.9))):
            for seed, value in enumerate(values):
                for stage, accuracy in (("A", 1.0), ("AA", 0.9), ("AB", value)):
                    made.append(
                        record(
                            name,
                            seed,
                            {"test_accuracy": accuracy},
                            stage=stage,
                            coefficient=weight,
                            config={"lr": 1.0, **loss},
                            tuned={"lr": 0.125},
                            id=f"{len(made):016}",
                        )
                    )
    lines = swapped_table(write(tmp_path, made)).splitlines()[2:]
    assert lines == [
        "|  | Std | – | 0.12 | 100.0 | 90.0 | 66.7 | 2 of 3 nets (9 to 99 %) |",
        "| our default | RR | 0.25 | 0.12 | 100.0 | 90.0 | 96.7 | 0 of 3 nets (0 to 71 %) |",
        "| the paper's | RR | 0.25 | 0.12 | 100.0 | 90.0 | 96.7 | 0 of 3 nets (0 to 71 %) |",
    ]

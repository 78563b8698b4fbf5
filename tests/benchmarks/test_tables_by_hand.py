"""Cells of the tables computed another way: from the raw records, or from a few that are made up."""

import json
import re
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

import pytest

from benchmarks.tables import cost, few_labels, loss, slices, small_nets, verdicts
from racecar_lab.running.results import Store
from tests.lab.report.records import record, write

RESULTS = Path(__file__).parents[2] / "results"
T4 = 2.776
"""Student's t for five pairs."""


def records(name):
    return [run.record for run in Store(RESULTS / name).runs()]


def cells(table, row):
    """The cells of the row that begins so."""
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {row} |")]
    return line.strip("| ").split(" | ")[row.count("|") + 1 :]


def number(text):
    return float(re.search(r"[+−]?\d+(\.\d+)?", text)[0].replace("−", "-"))


# --- few-labels ---------------------------------------------------------------------------------------------------


def test_few_labels_by_loss():
    """Mean gains at two labels over Std, and over Std with batch norm, of nets that live."""
    values = defaultdict(dict)
    for record_ in records("few-labels-losses"):
        config = record_["config"]
        if record_["variant"] in ("Std", "lRR") and not config["longer"] and not record_["note"]:
            which = record_["variant"], "" if record_["variant"] == "Std" else config["scale"], config["norm"]
            values[*which, config["task"], config["depth"], config["start"]][record_["seed"]] = record_["metrics"][
                "probe_2"
            ]
    tables = few_labels.by_loss(RESULTS, "std"), few_labels.by_loss(RESULTS, "batch")
    for task, name in few_labels.TASKS.items():
        for depth in (3, 6):
            for start, weights in few_labels.STARTS.items():
                rows = [cells(table, f"{name} | {depth} | {weights}") for table in tables]
                shown = [rows[0][1], rows[0][3], rows[1][0], rows[1][1]]
                for cell, norm, scale in zip(
                    shown, ("none", "none", "batch", "batch"), ("relative", "sum") * 2, strict=True
                ):
                    ours = values["lRR", scale, "none", task, depth, start]
                    std = values["Std", "", norm, task, depth, start]
                    gain = 100 * mean(ours[seed] - std[seed] for seed in ours if seed in std)
                    assert number(cell) == pytest.approx(gain, abs=0.051)


def test_the_best_settings_on_fresh_seeds(tmp_path):
    """Two pairs by hand; the difference is of the pairs."""

    def run(variant, seed, few, most):
        metrics = {"probe_2": few, "probe_250": most, "untrained_2": 0.5}
        return record(variant, seed, metrics, config={"images": 1000})

    pairs = [run("Std", 0, 0.5, 0.9), run("Std", 1, 0.7, 0.9), run("RR", 0, 0.6, 0.9), run("RR", 1, 0.9, 0.9)]
    write(tmp_path / "few-labels-fresh", pairs)
    (line,) = few_labels.fresh(tmp_path).splitlines()[2:]
    assert line.startswith("| 1000 | 60.0 ± 14.1 | 75.0 ± 21.2 | +15.0 (")
    assert line.endswith("| 50.0 ± 0.0 | 2 |")


# --- small nets ---------------------------------------------------------------------------------------------------


def test_mnist():
    """The mean accuracy of the last stage, and how many nets died."""
    runs = [
        run
        for run in Store(RESULTS / "mnist").runs()
        if run.variant == "RR" and not run.config["norm"] and run.config["fraction"] < 1 and run.stage == "AB"
    ]
    row = cells(small_nets.mnist(RESULTS, "mnist", "none"), "RR, an eighth of the batch")
    assert row[2].startswith(f"{mean(100 * run.metrics['test_accuracy'] for run in runs):.2f} ± ")
    assert row[-2:] == ["5", "1 of 5"]


def test_what_it_costs(tmp_path):
    """Medians over seeds; ratios are those of one seed, of its Std; what was not measured is a dash."""

    def run(variant, seed, ms, mib, fraction=0.125, norm=False):
        config = {"norm": norm, "fraction": fraction, "longer": False}
        spent = {"wall_s": 1.0, "step_s": ms / 1000, "steps": 10, "peak_memory": mib and mib * 2**20}
        return record(variant, seed, {}, config=config, cost=spent)

    runs = [run("Std", 0, 1.0, 10), run("Std", 1, 2.0, 10), run("Std", 0, 3.0, None, norm=True)]
    runs += [run("RR", 0, 1.2, 12), run("RR", 1, 2.6, 11), run("RR", 0, 2.5, 20, fraction=1.0)]
    write(tmp_path / "cost", runs)
    lines = small_nets.costs(tmp_path, "cost").splitlines()
    assert lines[0].startswith("|  | without norm: ms | × Std | MiB | × Std | batch norm: ms |")
    assert lines[2:] == [
        "| Std | 1.50 | 1.00 | 10 | 1.00 | 3.00 | 1.00 | – | – |",
        "| RR, an eighth of the batch | 1.90 | 1.25 | 12 | 1.15 | – | – | – | – |",
        "| RR, exact | 2.50 | 2.50 | 20 | 2.00 | – | – | – | – |",
    ]


def test_nets_that_fail(tmp_path):
    """Two of three of Std's below 0.75; with the paper's loss RR alone is shown again, with the λ and rate it had."""
    runs = []
    for chosen_loss in small_nets.LOSSES.values():
        for name, weight, values in (("Std", None, (0.5, 0.5, 1.0)), ("RR", 0.25, (1.0, 1.0, 0.9))):
            for seed, value in enumerate(values):
                for stage, accuracy in (("A", 1.0), ("AA", 0.9), ("AB", value)):
                    config, id = {"lr": 1.0, **chosen_loss}, f"{len(runs):016}"
                    metrics, tuned = {"test_accuracy": accuracy}, {"lr": 0.125}
                    runs.append(
                        record(name, seed, metrics, stage=stage, weight=weight, config=config, tuned=tuned, id=id)
                    )
    write(tmp_path / "information-100", runs)
    assert small_nets.swapped(tmp_path).splitlines()[2:] == [
        "|  | Std | – | 0.12 | 100.0 | 90.0 | 66.7 | 2 of 3 nets (9 to 99 %) |",
        "| our default | RR | 0.25 | 0.12 | 100.0 | 90.0 | 96.7 | 0 of 3 nets (0 to 71 %) |",
        "| the paper's | RR | 0.25 | 0.12 | 100.0 | 90.0 | 96.7 | 0 of 3 nets (0 to 71 %) |",
    ]


# --- what became of claims ----------------------------------------------------------------------------------------


def test_texture_against_shape():
    """Folds are the mean over their seeds; a seed of which either net is dead is in no difference."""
    accuracies = {}
    for record_ in records("texture-shape"):
        config = record_["config"]
        if not config["longer"] and not config["reduced"] and record_["stage"] == "AA":
            variant_loss = config["scale"] if "RR" in record_["variant"] else ""
            setting = config["split"], config["norm"], config["start"]
            accuracy = record_["metrics"]["test_accuracy"]
            accuracies[setting, record_["variant"], variant_loss, config["fold"], record_["seed"]] = accuracy

    settings = [("shape", "none", "torch"), ("shape", "none", "he"), ("shape", "batch", "he")]
    folds = []
    for fold in range(5):
        pairs = [
            (accuracies[setting, "RR", scale, fold, seed], accuracies[setting, "Std", "", fold, seed])
            for setting in settings
            for scale in ("relative", "sum")
            for seed in (10, 11, 12)
        ]
        folds.append(100 * mean(ours - std for ours, std in pairs if min(ours, std) > 0.07))
    half = T4 * stdev(folds) * (1 / 5 + 1 / 4) ** 0.5
    (cell,) = cells(verdicts.texture_together(RESULTS), "RR − Std, all settings together")
    shown = f"{mean(folds):+.1f} ({mean(folds) - half:+.1f} to {mean(folds) + half:+.1f})"
    assert cell.startswith(shown.replace("-", "−"))


def test_smoke():
    """Means over the seeds, of both losses, over Std and Ort."""
    psnr = defaultdict(dict)
    for record_ in records("smoke"):
        name = record_["variant"] if record_["variant"] != "RR" else f"RR {record_['config']['scale']}"
        psnr[name][record_["seed"]] = record_["metrics"]["psnr"]
    table = verdicts.outcomes(RESULTS, "smoke")
    for than in ("Std", "Ort"):
        gains = [
            mean(psnr[f"RR {scale}"][seed] - psnr[than][seed] for seed in psnr[than]) for scale in ("relative", "sum")
        ]
        row = cells(table, f"RR's reverse pass recovers the low resolution better than {than}'s: PSNR")
        assert row == ["2", "", "", f"+{min(gains):.1f} to +{max(gains):.1f} dB"]


def test_thirteen_convolutions():
    for optimiser in ("adam", "sgd"):
        accuracy = {
            (record_["variant"], record_["seed"]): 100 * record_["metrics"]["test_accuracy"]
            for record_ in records("slices-cifar")
            if (record_["config"]["optimiser"], record_["config"]["fraction"], record_["config"]["every"])
            == (optimiser, 1, 1)
        }
        gains = [accuracy["RR", seed] - accuracy["Std", seed] for seed in range(5)]
        half = T4 * stdev(gains) / 5**0.5
        cell = cells(verdicts.thirteen_convolutions(RESULTS), optimiser)[2].partition(",")[0]
        shown = f"{mean(gains):+.1f} ({mean(gains) - half:+.1f} to {mean(gains) + half:+.1f})"
        assert cell == shown.replace("-", "−")


# --- docs/bench.md ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("net, row", [("slices", 2), ("slices-mnist", 6), ("slices-cifar", 10)])
def test_slices(net, row):
    """Reverse losses over the exact one's of the same seed, and how many nets were lost."""
    lines = [line.split(" | ") for line in slices.slices(RESULTS).splitlines()]
    reverse_losses = {}
    for record_ in records(net):
        config = record_["config"]
        if record_["variant"] == "RR":
            key = config["optimiser"], config["fraction"], config["every"]
            reverse_losses.setdefault(key, {})[record_["seed"]] = record_["metrics"].get("reverse_loss")
    for i, optimiser in enumerate(("adam", "sgd")):
        exact = reverse_losses[optimiser, 1, 1]
        for cell, part in zip(lines[row + 2 * i][3:], slices.SLICES[1:], strict=True):
            here = {seed: loss for seed, loss in reverse_losses[optimiser, *part].items() if loss is not None}
            missing = len(exact) - len(here)
            assert (f"**{missing} of {len(exact)} lost**" in cell) == (missing > 0)
            if len(here) > 2:
                shown, digits = re.match(r"([+−]?\d+(?:\.(\d+))?) [✓○✗]", cell).groups()
                apart = mean(loss / exact[seed] - 1 for seed, loss in here.items())
                assert float(shown.replace("−", "-")) == pytest.approx(100 * apart, abs=0.51 * 10 ** -len(digits or ""))


def bench(folder, name, steps, **settings):
    """Write a record of `racecar bench` of one net, with the steps of a ViT."""
    content = {"settings": {"compile": True, **settings}}
    content["models"] = [{"model": "vit", "steps": steps}, {"model": "resnet50", "error": "x"}]
    (folder / "bench").mkdir(exist_ok=True)
    (folder / "bench" / f"{name}.json").write_text(json.dumps(content))


def test_a_row_from_several_records(tmp_path):
    """Eager records, and those of other options of the compiler, are left out, and so is what failed; a later record
    stands for what it measured."""
    plain = {"step": "plain", "ratio": 1.0, "median_ms": 20.0, "error": ""}
    first = [plain, {"step": "racecar 1/8", "ratio": 1.3, "memory_ratio": 1.125, "over_by_hand": 0.96, "error": ""}]
    second = [
        plain,
        {"step": "racecar 1/8", "ratio": 1.25, "over_by_hand": None, "error": ""},
        {"step": "racecar 1", "ratio": 2.5, "over_by_hand": 1.02, "error": ""},
        {"step": "srip", "error": "x"},
    ]
    other = [{**plain, "median_ms": 9.0}]
    bench(tmp_path, "h200-a", first)
    bench(tmp_path, "h200-b", second)
    bench(tmp_path, "h200-c", other, compile=False)
    bench(tmp_path, "h200-d", other, combine=True)
    assert cost.cost(tmp_path, "h200-*").splitlines() == [
        "|  | plain, ms | exact | 1/8 | memory at 1/8, 1/16 | ÷ by hand, at most |",
        "|---|---:|---:|---:|---:|---:|",
        "| ViT-B/16 | 20.0 | 2.50 | 1.25 | 1.12, – | 1.02 of 2 |",
    ]


def test_each_reach_of_the_gradient(tmp_path):
    """A row for each, under the label that its steps have; what was not measured is no number."""
    plain = {"step": "plain", "ratio": 1.0, "median_ms": 10.0}
    both = {"step": "racecar both 1/8", "ratio": 1.5, "memory_ratio": 1.25}
    bench(tmp_path, "gradients-h200-a", [plain, {"step": "racecar 1", "ratio": 1.75}, both])
    assert cost.gradients(tmp_path).splitlines()[2:] == [
        "| ViT-B/16 | both | – | 1.50 | – | – | 1.25 | – |",
        "| ViT-B/16 | reverse | 1.75 | – | – | – | – | – |",
        "| ViT-B/16 | weights | – | – | – | – | – | – |",
    ]


def test_parts_of_a_cost(tmp_path):
    """10 ms are 6 of products and 4 of others; a slice adds 1 and 0.5, in 30 kernels. Without a profile: no row."""
    plain = {"step": "plain", "ratio": 1.0, "median_ms": 10.0, "kernels": 50, "kernel_ms": 10.0, "product_ms": 6.0}
    slice_ = {"step": "racecar 1/8", "ratio": 1.16, "floor": 1.06, "kernels": 80, "kernel_ms": 11.5, "product_ms": 7.0}
    bench(tmp_path, "h200-a", [plain, slice_, {"step": "racecar 1/16", "ratio": 1.1, "floor": 1.03}])
    assert cost.parts(tmp_path).splitlines()[2:] == ["| ViT-B/16 | 1/8 | 1.16 | 1.06 | 1.10 | 30 | 0.5 |"]


def test_the_laboratory_beside_plain_trainings(tmp_path):
    """Medians of the seconds, and the record's own ratios."""
    content = {"cores": 2, "device": "CPU x86_64", "torch": "2.13.0", "ratio": {"plain": 4.5, "plain, 2 at once": 2.25}}
    content["seconds"] = {"plain": [91.0, 89.0, 80.0], "plain, 2 at once": [45.0], "ours": [20.0]}
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "first-two-a.json").write_text(json.dumps(content))
    assert cost.laboratory(tmp_path).splitlines()[2:] == [
        "| 2 cores, x86_64, torch 2.13.0 | 89 | 45 | 20 | 4.50 | 2.25 |"
    ]


# --- docs/loss.md -------------------------------------------------------------------------------------------------


def test_balance(tmp_path):
    """Gains are paired with plain training; λ and ratio are medians of the second half."""

    def net(seed, probe, lam, target=None, dead=False):
        return {
            "norm": "none", "start": "he", "depth": 3, "seed": seed, "lam": lam, "target": target, "probe": probe,
            "dead": dead, "ratios": [9, 9, 1, 3], "lams": [9, 9, 0.1, 0.3],
        }  # fmt: skip

    nets = [net(0, 0.5, 0.0), net(1, 0.6, 0.0), net(0, 0.52, 0.1), net(1, 0.6, 0.1)]
    nets += [net(0, 0.4, None, 1.0, dead=True), net(1, 0.6, None, 1.0)]
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "balance.json").write_text(json.dumps({"nets": nets}))
    assert loss.balance(tmp_path).splitlines()[2:] == [
        "| 3 convolutions, norm none, start he | 0.1 | +1.0 | 0.2 | 2 |",
        "| 3 convolutions, norm none, start he | automatic, ratio 1 | −5.0 (1 of 2 dead) | 0.2 | 2 |",
    ]


def test_small_nets(tmp_path):
    """Differences are paired; the record with more seeds stands for the other."""
    few, more = ([0.9, 0.1], [0.9, 0.9]), ([0.8, 0.9, 1.0], [0.9, 0.9, 0.9])
    (tmp_path / "bench").mkdir()
    for name, (plain, ours) in {"small-nets": more, "small-nets-before": few}.items():
        content = {"seeds": len(plain), "nets": [{"net": "mlp", "lr": 0.1, "plain": plain, "racecar": ours}]}
        (tmp_path / "bench" / f"{name}.json").write_text(json.dumps(content))
    (line,) = loss.small_nets(tmp_path).splitlines()[2:]
    assert line == "| mlp | 0.1 | 3 | 90.0 | 90.0 | +0.0 ± 10.0 | 0 | 0 |"

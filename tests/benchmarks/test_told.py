"""What README.md and docs/ say of the results is what the records say, and nothing of it is typed."""

import json
import re
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

import pytest

from benchmarks import cost_told, keep_learning_page, slices_told, told, when
from racecar_lab.running.results import Store
from tests.pages import emptied

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
MEASURED = re.compile(
    r"\d[\d.,]*\s(?:points?|times|nets|%|ms|µs|seconds|minutes|GiB|MiB|kernels)|[+−±]\s?\d[\d.]*|\b\d+\.\d+"
)
LEVEL = ("95 %", "level of intervals")
SETTINGS = {
    "README.md": [("3.11", "Python"), ("2.0", "a licence"), ("3.0", "a licence")],
    "docs/api.md": [],
    "docs/bench.md": [("3 %", "a margin"), ("− 1", "a formula")],
    "docs/choosing.md": [],
    "docs/comparison.md": [*[("2.0", "a licence")] * 3, ("3.0", "a licence")],
    "docs/experiments.md": [],
    "docs/how-it-works.md": [("0.5", "a weight")],
    "docs/inspect.md": [],
    "docs/integrations.md": [],
    "docs/keep-learning.md": [
        ("0.03", "in code"), ("20 nets", "a design"), LEVEL, LEVEL, ("3 points", "a margin"), ("2 points", "a margin"),
    ],
    "docs/laboratory.md": [
        ("60 seconds", "between checkpoints"), LEVEL, ("3 %", "a margin"), ("0.01", "a margin"), ("0.02", "a margin"),
        ("44.2 %", "the paper's"), ("47.0 %", "the paper's"), ("54.7 %", "the paper's"), ("68 %", "a setting"),
        ("+ 1", "a formula"), *((one, "a margin") for one in ("5 %", "10 %", "0.01", "5 %")),
        ("0.5", "an AUROC that sees nothing"), ("12,285 nets", "a design"),
        ("10,000 times", "a scale"), ("+ 10", "a rule"), ("−1", "a rule"),
    ],
    "docs/loss.md": [],
    "docs/plan.md": [],
    "docs/privacy.md": [],
    "docs/rules.md": [*[("−1", "a formula")] * 2, ("+1", "a formula"), *[("−1", "a formula")] * 4],
    "docs/start.md": [],
    "docs/troubleshooting.md": [],
    "docs/when.md": [
        LEVEL, LEVEL, LEVEL, ("126 nets", "a design"), ("0.2 points", "the paper's"), ("0.2", "the paper's"),
        ("10 nets", "of CIFAR-10"), ("18 nets", "a design"),
    ],
}  # fmt: skip
"""Page → numbers that nobody measured, with what they are: settings, margins, versions, formulas, the paper's."""
T4 = 2.776
"""Student's t for five pairs."""


@pytest.fixture(scope="module")
def lines():
    return told.lines(RESULTS)


@pytest.mark.parametrize("name", told.PAGES, ids=str)
def test_the_pages_are_up_to_date(lines, name):
    """Else: python -m benchmarks.told, benchmarks.when and benchmarks.keep_learning_page"""
    text = (ROOT / name).read_text()
    assert "<!-- told -->" in text
    filled = told.page(emptied(text), lines, *told.PAGES[name])
    assert (when.page if name.name == "when.md" else keep_learning_page.page)(filled, RESULTS) == text


def prose(text):
    """What somebody typed: neither filled in nor code, and without λ, learning rates and addresses."""
    text = re.sub(r"(?ms)<!-- (?!end).*?<!-- end -->|^```.*?^```", "", text)
    text = re.sub(r"`[^`\n]+`|\]\([^)]*\)", "", text)
    return re.sub(r"(?:λ|learning rate|weight)(?: =|, then|,)?(?:(?: from| to| and|,)? \d[\d.]*)+", "", text)


@pytest.mark.parametrize("name", SETTINGS, ids=str)
def test_prose_leaves_results_to_what_is_filled_in(name):
    """A number with a unit of results, a sign or decimals is measured, unless it is named above as something else."""
    found = [" ".join(one.split()) for one in MEASURED.findall(prose((ROOT / name).read_text()))]
    assert found == [number for number, _ in SETTINGS[name]]


def test_all_pages_are_held_to_it():
    assert {ROOT / name for name in SETTINGS} == {ROOT / "README.md", *(ROOT / "docs").glob("*.md")}


def records(name):
    return [run.record for run in Store(RESULTS / name).runs()]


def test_likeness_by_hand(lines):
    found = defaultdict(list)
    for one in records("mnist-losses"):
        if not one["config"]["longer"]:
            for metric in ("ssim", "ssim_scaled"):
                found[metric, one["stage"], one["variant"], one["config"]["scale"]].append(one["metrics"][metric])
    (line,) = [one for one in lines if "look into it" in one]
    told = re.findall(r"(0\.\d\d) \((0\.\d\d) with the paper's loss\) against (0\.\d\d)", line)
    nets = [("RR", "relative"), ("RR", "sum"), ("Std", "relative")]
    for one, kind in zip(told, [("ssim", "A"), ("ssim_scaled", "A"), ("ssim_scaled", "AA")], strict=True):
        assert all(len(found[*kind, *net]) == 10 for net in nets)
        assert one == tuple(f"{mean(found[*kind, *net]):.2f}" for net in nets)


def test_shift_by_hand(lines):
    """AUROCs of the reverse error and of energy, with noise and with classes that were not seen."""
    found = defaultdict(list)
    for one in records("shift"):
        config = one["config"]
        if one["stage"] == "A" and (one["variant"], config["scale"]) in (("lRR", "relative"), ("Std", "relative")):
            for metric, value in one["metrics"].items():
                found[one["variant"], config["task"], config["norm"], metric].append(value)
    (line,) = [one for one in lines if "**Shift**" in one]
    places = [("digits", "none"), ("digits", "batch"), ("cifar", "none")]
    for kind in ("noise", "unseen"):
        ours, std = (
            "{}, {} and {}".format(*(f"{mean(found[name, *one, f'auroc_{kind}_{score}']):.2f}" for one in places))
            for name, score in (("lRR", "layerwise"), ("Std", "energy"))
        )
        assert f"{ours} against {std}" in line


def test_long_training_by_hand(lines):
    """Mean differences of the ten seeds, in points, at both depths and with both losses; and of the likelihood."""
    found = {}
    for one in records("long-training"):
        config = one["config"]
        if not config["longer"]:
            loss = config["scale"] if "RR" in one["variant"] else ""
            found[one["variant"], loss, config["norm"], config["depth"], one["seed"]] = one["metrics"]

    def gains(ours, other, norm="none", metric="test_accuracy", depths=(6, 9)):
        return [
            100 * mean(found[ours, loss, "none", depth, seed][metric] - found[other, "", norm, depth, seed][metric]
                       for seed in range(10))
            for depth in depths for loss in ("relative", "sum")
        ]  # fmt: skip

    def span(values):
        return f"{min(values):z.1f} to {max(values):z.1f}".replace("-", "−")

    (line,) = [one for one in lines if "long and well" in one]
    assert f"lRR − Std is {span(gains('lRR', 'Std'))} points" in line
    assert f"RR − Std {span(gains('RR', 'Std'))}, ahead" in line
    assert f"RR − Ort is {span(gains('RR', 'Ort'))} points" in line
    assert f"RR is {span([-one for one in gains('RR', 'Std', 'batch')])} points behind batch norm" in line
    falls = [-one / 100 for name in ("RR", "lRR") for one in gains(name, "Std", metric="test_nll", depths=[9])]
    assert f"falls by {min(falls):.2f} to {max(falls):.2f}." in line


def test_texture_against_shape_by_hand(lines):
    """Folds are the mean over their seeds; a seed of which either net is dead is in no difference."""
    found, dead = {}, {}
    for one in records("texture-shape"):
        config = one["config"]
        if config["longer"] or config["reduced"]:
            continue
        if one["stage"] == "AA":
            loss = config["scale"] if "RR" in one["variant"] else ""
            setting = config["split"], config["norm"], config["start"]
            found[setting, one["variant"], loss, config["fold"], one["seed"]] = one["metrics"]
        elif (config["start"], config["split"]) == ("torch", "shape"):
            dead.setdefault(one["variant"], []).append(bool(one["dead"]))

    def lives(metrics):
        return metrics["test_accuracy"] > 0.07

    def folds(*which):
        """The mean gain of each, of some settings and losses."""
        for fold in range(5):
            pairs = [
                (found[setting, "RR", loss, fold, seed], found[setting, "Std", "", fold, seed])
                for setting, loss in which
                for seed in (10, 11, 12)
            ]
            yield 100 * mean(
                ours["test_accuracy"] - std["test_accuracy"] for ours, std in pairs if lives(ours) and lives(std)
            )

    settings = [("shape", "none", "torch"), ("shape", "none", "he"), ("shape", "batch", "he")]
    which = [(setting, loss) for setting in settings for loss in ("relative", "sum")]
    gains, all_six = [mean(folds(one)) for one in which], list(folds(*which))
    half = T4 * stdev(all_six) * (1 / 5 + 1 / 4) ** 0.5
    (line,) = [one for one in lines if "largest gain" in one]
    assert f"RR − Std is {min(gains):.1f} to {max(gains):.1f} points".replace("-", "−") in line
    together = f"{mean(all_six):.1f} ({mean(all_six) - half:.1f} to {mean(all_six) + half:.1f})".replace("-", "−")
    assert f"have {together}" in line
    known = [one["test_accuracy"] for (setting, *_), one in found.items() if setting[0] == "random" and lives(one)]
    assert mean(known) == pytest.approx(0.975, abs=0.01)
    assert "all nets have 97 to 98 %" in line
    assert f"{sum(dead['Std'])} of {len(dead['Std'])} nets of Std died" in line
    assert not any(dead["RR"] + dead["lRR"])
    assert f"none of {len(dead['RR'] + dead['lRR'])} of RR and lRR" in line


def test_smoke_by_hand(lines):
    """Means over the seeds; of L2, of each seed's share."""
    found = defaultdict(dict)
    for one in records("smoke"):
        name = one["variant"] if one["variant"] != "RR" else f"RR {one['config']['scale']}"
        found[name][one["seed"]] = one["metrics"]
    (line,) = [one for one in lines if "runs backwards" in one]
    order = ("RR relative", "RR sum", "Std", "Ort")
    for metric, form in (("psnr", "{:.1f} dB"), ("ssim_scaled", "{:.2f}")):
        ours, papers, std, ort = (form.format(mean(m[metric] for m in found[name].values())) for name in order)
        assert f"{ours} ({papers} with the paper's loss) against {std} of Std and {ort} of Ort" in line
    more = [
        100 * mean(found[name][seed]["test_l2"] / found["Std"][seed]["test_l2"] - 1 for seed in found["Std"])
        for name in order[:2]
    ]
    assert f"{min(more):.1f} to {max(more):.1f} % more L2".replace("-", "−") in line
    assert f"{len(found['Std'])} seeds" in line


def test_smokes_autoencoders_by_hand(lines):
    """Means over the seeds whose nets both live, of each seed's share."""
    l2, dead = defaultdict(dict), defaultdict(list)
    for one in records("smoke-autoencoder"):
        assert one["status"] == "finished"
        dead[one["variant"]].append(bool(one["note"]))
        if not one["note"]:
            l2[one["variant"], one["stage"]][one["seed"]] = one["metrics"]["test_l2"]
    (line,) = [one for one in lines if "Its halves in an autoencoder" in one]
    pairs = [(("RR", "AB1-both"), ("Std", than)) for than in ("AB1-decoder", "AB1-both", "B1")]
    decoders = [("RR", f"A{task}-decoder") for task in ("B2", "B3")]
    pairs += [(one, ("Std", one[1])) for one in decoders]
    pairs += [(one, ("Std", one[1][1:3])) for one in decoders]
    pairs += [(one, ("RR", one[1].replace("decoder", "both"))) for one in decoders]
    told = []
    for one, than in pairs:
        both = l2[one].keys() & l2[than].keys()
        gain = 100 * mean(1 - l2[one][seed] / l2[than][seed] for seed in both)
        told.append(f"{gain:z.0f}".replace("-", "−"))
    assert re.findall(r"(\S+) % \(", line) == told
    std, ours = (f"{sum(dead[name])} of {len(dead[name])}" for name in ("Std", "RR"))
    assert f"{std} nets of Std died and {ours} of RR" in line


def test_what_it_costs_in_accuracy_by_hand(lines):
    (line,) = [one for one in lines if "thirteen" in one and "It hurts" in one]
    for optimiser in ("adam", "sgd"):
        accuracy = {
            (one["variant"], one["seed"]): 100 * one["metrics"]["test_accuracy"]
            for one in records("slices-cifar")
            if (one["config"]["optimiser"], one["config"]["fraction"], one["config"]["every"]) == (optimiser, 1, 1)
        }
        lost = [accuracy["Std", seed] - accuracy["RR", seed] for seed in range(5)]
        half = T4 * stdev(lost) / 5**0.5
        assert f"{mean(lost):.1f} points with {optimiser} ({mean(lost) - half:.1f} to {mean(lost) + half:.1f})" in line


def steps(record, net):
    """Of a benchmark's record, by name."""
    lines = map(json.loads, (RESULTS / "bench" / "benchmarks.jsonl").read_text().splitlines())
    (models,) = [one["models"] for one in lines if one["name"] == record]
    (model,) = [one for one in models if one["model"] == net]
    return {one["step"]: one for one in model["steps"]}


def over(one, other, what="median_ms"):
    return f"{one[what] / other[what]:.2f}"


def test_few_labels_by_loss_by_hand(lines):
    """Mean gains at two labels over Std, and over Std with batch norm, from the records of nets that live; what the
    source task loses at most; λ that searches chose."""
    values, source, chosen = defaultdict(dict), defaultdict(dict), {}
    for one in records("few-labels-losses"):
        config = one["config"]
        place = config["norm"], config["task"], config["depth"], config["start"]
        if one["variant"] in ("Std", "RR", "lRR") and not config["longer"] and not one["note"]:
            kind = (one["variant"], config["scale"] if one["variant"] != "Std" else "", *place)
            values[kind][one["seed"]] = one["metrics"]["probe_2"]
            source[kind][one["seed"]] = one["metrics"]["source_accuracy"]
            chosen[kind] = one["coefficient"]
    line = " ".join(lines[:4])

    def gains(name, norm, other, what=values):
        return [
            100 * mean(some[seed] - std[seed] for seed in some if seed in std)
            for kind, some in what.items()
            if (kind[0], kind[2]) == (name, norm) and (std := what.get(("Std", "", other, *kind[3:])))
        ]

    def ends(some):
        return " to ".join(f"{end:.1f}".replace("-", "−") for end in (min(some), max(some)))

    for name in ("RR", "lRR"):
        found = gains(name, "none", "none")
        assert f"of {len(found)} settings ({ends(found)} points)" in line
    behind = [-one for one in gains("lRR", "none", "batch")]
    assert f"Std with it is {ends(behind)} points ahead of lRR without" in line
    beside = gains("RR", "batch", "batch") + gains("lRR", "batch", "batch")
    assert f"of {len(beside)} ({ends(beside)} points)" in line
    assert f"the default costs {-min(gains('lRR', 'none', 'none', source)):.1f} points" in line
    zero = sum((kind[0], kind[2], value) == ("RR", "none", 0) for kind, value in chosen.items())
    assert f"λ = 0 was best for it in {zero}." in line


def test_costs_by_hand():
    """From what was timed, not from ratios that a record has."""
    line = " ".join(cost_told.by_hand(RESULTS / "bench").split())
    old, new, eager = (steps(f"h200-resnet50{one}", "resnet50") for one in ("-by-hand", "", "-eager"))
    kept = [over(old[f"by hand {one}"], old["plain"], "memory") for one in ("1/8", "1/16")]
    ours = [over(new[f"racecar {one}"], new["plain"], "memory") for one in ("1/8", "1/16")]
    assert f"need {' and '.join(kept)} times the memory, ours {' and '.join(ours)}." in line
    assert f"{over(eager['racecar 1'], eager['plain'])} times in ResNet50" in line
    assert f"at most {over(old['racecar 1/8'], old['by hand 1/8'])} times" in line
    line = " ".join(cost_told.on_cpus(RESULTS / "bench").split())
    mlps = [steps(one, "mlp") for one in ("step-aarch64", "mlp-aarch64", "step-cpu")]
    slower = sorted(over(one["racecar 1/8"], one["by hand 1/8"]) for one in mlps)
    assert f"slower at 1/8, {slower[0]} to {slower[-1]} times in all 3 records" in line


@pytest.mark.parametrize("net, row", [("slices", 2), ("slices-mnist", 6), ("slices-cifar", 10)])
def test_slices_by_hand(net, row):
    """Reverse losses over the exact one's of the same seed, and how many nets were lost."""
    lines = [line.split(" | ") for line in slices_told.table(RESULTS).splitlines()]
    found = {}
    for one in records(net):
        config = one["config"]
        if one["variant"] == "RR":
            key = config["optimiser"], config["fraction"], config["every"]
            found.setdefault(key, {})[one["seed"]] = one["metrics"].get("reverse_loss")
    for i, optimiser in enumerate(("adam", "sgd")):
        exact = found[optimiser, 1, 1]
        for cell, part in zip(lines[row + 2 * i][3:], slices_told.PART, strict=True):
            here = {seed: one for seed, one in found[optimiser, *part].items() if one is not None}
            lost = len(exact) - len(here)
            assert (f"**{lost} of {len(exact)} lost**" in cell) == (lost > 0)
            if len(here) > 2:
                told_, digits = re.match(r"([+−]?\d+(?:\.(\d+))?) [✓○✗]", cell).groups()
                apart = mean(one / exact[seed] - 1 for seed, one in here.items())
                assert float(told_.replace("−", "-")) == pytest.approx(100 * apart, abs=0.51 * 10 ** -len(digits or ""))


def test_a_sentence_that_the_records_do_not_bear_out_is_refused(monkeypatch):
    """As if RR and Std, two slices, or two optimisers had changed places."""
    monkeypatch.setattr(told, "gains", lambda one, other, higher: when.gains(other, one, higher))
    with pytest.raises(ValueError, match="write another sentence"):
        told.cifar(RESULTS)
    true = cost_told.read
    swapped = {"racecar 1/16": "racecar 1/8 every 4", "racecar 1/8 every 4": "racecar 1/16"}
    monkeypatch.setattr(
        cost_told,
        "read",
        lambda *some: {net: {swapped.get(k, k): v for k, v in one.items()} for net, one in true(*some).items()},
    )
    with pytest.raises(ValueError, match="write another sentence"):
        cost_told.parts(RESULTS / "bench")
    other = {"adam": "sgd", "sgd": "adam"}
    found = {name: slices_told.read(RESULTS, name) for name in slices_told.NETS}
    monkeypatch.setattr(
        slices_told, "read", lambda _, name: {(other[key[0]], *key[1:]): one for key, one in found[name].items()}
    )
    for sentence in (slices_told.remarks, slices_told.advice):
        with pytest.raises(ValueError, match="write another sentence"):
            sentence(RESULTS)

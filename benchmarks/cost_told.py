"""What docs/bench.md says of its tables: every number from a record, every comparison held against one.

`python -m benchmarks.told` fills it in.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import records
from benchmarks.cost import NETS, SLICES, STEPS, Steps, read
from benchmarks.sentences import between, listed, paragraph, percent, ratios, shares, sure
from racecar.reverse.terms import GRADIENTS

EIGHTH, SIXTEENTH = (STEPS[name] for name in SLICES)
Nets = Mapping[str, Steps]


def default(folder: Path) -> str:
    """Today's loss beside that of before."""
    new, old = read(folder, "default-h200-*"), read(folder)
    steps = [STEPS["exact"], EIGHTH, SIXTEENTH]
    more = max(new[net][step]["ratio"] - old[net][step]["ratio"] for net in new for step in steps)
    sure(more < 0.01, "no net is dearer with the default")
    for step in (EIGHTH, SIXTEENTH):
        times = {net: one[step]["ratio"] for net, one in new.items()}
        sure(max(times, key=times.__getitem__) == "resnet110", "a slice of ResNet110 has the highest ratio")
    return paragraph(
        f"Against the loss of before, below, no ratio is higher by more than {max(more, 0):.3f}. Of slices "
        "ResNet110, whose 109 narrow layers are bound by the number of kernels, has the highest ratios: layer by "
        "layer every one of them has a start of its own."
    )


def gradients(folder: Path) -> str:
    """What its reach costs."""
    for steps in read(folder, "gradients-h200-*").values():
        for step in (one for one in (STEPS["exact"], EIGHTH, SIXTEENTH) if one in steps):
            words = {name: f"racecar {name}".removesuffix(" reverse") for name in GRADIENTS}
            by = {name: steps[step.replace("racecar", word)] for name, word in words.items()}
            times, memory = ({name: one[what] for name, one in by.items()} for what in ("ratio", "memory_ratio"))
            sure(max(times, key=times.__getitem__) == "weights", "the gradient of the weights alone takes longest")
            sure(memory["both"] > memory["reverse"], "the gradient through d and d' keeps more")
    return paragraph(
        '"both" adds gradients of d on their way to what lies below, and keeps d − d\' for it. "weights" takes '
        "longest: with its input a constant, each layer's product is taken once more, and the weights' gradient of "
        "that product beside the task's."
    )


def by_hand(folder: Path) -> str:
    """Beside steps written by hand, eager, and on another day."""
    found = read(folder)
    worst = max(one["over_by_hand"] for steps in found.values() for one in steps.values() if one.get("over_by_hand"))
    before = max(one["over_by_hand"] for one in _all_steps(folder) if one.get("over_by_hand"))
    kept = [[found["resnet50"][f"{way} {name}"]["memory_ratio"] for name in SLICES] for way in ("by hand", "racecar")]
    sure(all(hand > ours for hand, ours in zip(*kept, strict=True)), "ours keeps less than the step by hand")
    failed = [one["error"] for one in _all_steps(folder) if one.get("error")]
    sure(all("OutOfMemory" in one for one in failed), "what failed, failed for memory")
    eager = [_eager(folder, net) for net in ("vgg19", "resnet50")]
    resnet50, resnet110 = (_slices(folder, name) for name in ("h200-resnet50-another", "h200-resnet110-by-hand"))
    return paragraph(
        f"On the H200 ours takes at most {worst:.2f} times as long as the step written by hand ({before:.2f} in an "
        f"older record, which a newer one replaces), and keeps less: by hand slices of ResNet50 need "
        f"{ratios(kept[0])} times the memory, ours {ratios(kept[1])}. What failed in a record failed for memory, "
        "which others held at that time. SRIP, and steps by hand but for ResNet110's, are from older records, made "
        f"before the changes below, which shortened ours alone. Eager, the exact step costs {eager[0]:.2f} times the "
        f"plain one in VGG19-BN and {eager[1]:.2f} times in ResNet50. From day to day the plain step itself, older "
        f"records apart, takes up to {percent([_apart(folder)])} more or less, and ours not by the same: on another "
        f"day ResNet50 had {ratios(resnet50)} at 1/8 and 1/16, ResNet110 {ratios(resnet110)}."
    )


def on_cpus(folder: Path) -> str:
    """Beside steps written by hand, two cores."""
    found = {
        (name, model["model"], step["step"]): step["over_by_hand"]
        for name, record in records.read(folder).items()
        if name in ("step-aarch64", "mlp-aarch64", "step-cpu")
        for model in record["models"]
        for step in model["steps"]
        if step.get("over_by_hand")
    }
    convolutions = [one for (name, net, _), one in found.items() if name == "step-aarch64" and net != "mlp"]
    eighth, rest = (
        [one for (_, net, step), one in found.items() if net == "mlp" and (step == EIGHTH) is is_eighth]
        for is_eighth in (True, False)
    )
    sure(min(eighth) > 1, "an eighth of the MLP takes longer than by hand in all records")
    return paragraph(
        f"In the narrow VGG, where what is no product counts most, ours at 1/8 is {_narrow(folder)}, eager, on x86. "
        f"On two ARM cores, eager, ours is {between(convolutions)} times the step by hand in both convolutional "
        f"nets. In the MLP it is slower at 1/8, {between(eighth)} times in all {len(eighth)} records, and "
        f"{between(rest)} times at 1/16 and with all of the batch. Both do the same large operations in the same "
        "order; watching is a small part of it, and the rest is not explained. Kinds of steps in processes of their "
        "own differ by as much either way, so where matrices lie in memory may be part of it."
    )


def _narrow(folder: Path) -> str:
    """An eighth of the narrow VGG, ours over by hand: of medians, and of the fastest steps."""
    told = []
    for record in records.read(folder, "narrow-cpu-*").values():
        (model,) = record["models"]
        by = {step["step"]: step for step in model["steps"]}
        ours, hand = by[EIGHTH], by[EIGHTH.replace("racecar", "by hand")]
        medians, fastest = ours["over_by_hand"], min(ours["seconds"]) / min(hand["seconds"])
        sure(medians <= 1.05, "at 1/8 the narrow VGG takes at most 1.05 times as long as by hand")
        threads = "one thread" if record["threads"] == 1 else f"{record['threads']} threads"
        told.append(f"{medians:.2f} times the step by hand with {threads} ({fastest:.2f} by the fastest steps)")
    return listed(told)


def parts(folder: Path) -> str:
    """Of what a slice's cost consists."""
    found = read(folder)
    samples = [found[net][step]["samples"] for net in found for step in (EIGHTH, SIXTEENTH)]
    small = found["resnet110"]
    plain, eighth, sixteenth = small["plain"], small[EIGHTH], small[SIXTEENTH]
    products = [one["product_ms"] - plain["product_ms"] for one in (sixteenth, eighth)]
    others = [one["kernel_ms"] - plain["kernel_ms"] - ms for one, ms in zip((sixteenth, eighth), products, strict=True)]
    sure(min(products) > 0.8 * max(products), "products of half the samples take nearly as long in ResNet110")
    sure(min(others) > 0.8 * max(others), "so does what is not a product")
    for steps in found.values():
        saved = steps[SIXTEENTH]["ratio"] - 1, steps[EIGHTH]["ratio"] - 1
        sure(saved[0] > 0.5 * saved[1], "1/16 is not half as dear as 1/8")
        sure(steps[STEPS["1/8, every 4th"]]["ratio"] < steps[SIXTEENTH]["ratio"], "fewer steps save more")
    return "\n\n".join([
        "\n".join(map(paragraph, (
            f"* A product of {min(samples)} to {max(samples)} samples does not fill the device. ResNet110 shows it "
            f"best: its slices add products of {products[0]:.1f} ms with a sixteenth of the batch and "
            f"{products[1]:.1f} with an eighth. Even if nothing else were to do, 1/16 could not be had below "
            f"{1 + products[0] / plain['median_ms']:.2f} there, with cuDNN's kernels.",
            "* Beside its three products every layer adds kernels: the slice, the reverse pass's norm and "
            "activation, sums of the difference and of d², their gradients. In ResNet110 they take nearly as long "
            "with 1/16 as with 1/8.",
            "* The gradient of a slice is added to that of the whole batch inside kernels that read and write whole "
            "activations; in ResNet50 inductor makes more of them than the plain step has.",
            f"* ResNet110's plain step is of this kind, too: its convolutions take {plain['product_ms']:.1f} of the "
            f"{plain['median_ms']:.1f} ms, with the fastest kernels that cuDNN finds.",
        ))),
        paragraph(
            "That is why 1/16 is not half as dear as 1/8, and why running the reverse pass in fewer steps saves more "
            f"than a thinner slice. {_combined(folder, found)}"
        ),
    ])  # fmt: skip


def _combined(folder: Path, found: Nets) -> str:
    """Short kernels in one."""
    (record,) = records.read(folder, "h200-combine").values()
    other = {model["model"]: {step["step"]: step for step in model["steps"]} for model in record["models"]}
    left, shorter, apart = [], [], []
    for net, steps in other.items():
        for step in (EIGHTH, SIXTEENTH):
            more = [one[step]["kernels"] - one["plain"]["kernels"] for one in (steps, found[net])]
            left.append(more[0] / more[1])
            apart.append(abs(steps[step]["ratio"] - found[net][step]["ratio"]))
    for step in ("plain", EIGHTH, SIXTEENTH):
        shorter.append(1 - other["resnet110"][step]["median_ms"] / found["resnet110"][step]["median_ms"])
        gain = 1 - other["vit"][step]["median_ms"] / found["vit"][step]["median_ms"]
        sure(gain < 0.01, "ViT-B/16 gains nothing by combined kernels")
    sure(max(apart) < 0.01, "combined kernels leave ratios where they are")
    memory = [one["resnet110"][EIGHTH]["memory_ratio"] for one in (other, found)]
    return (
        f"`--combine` (inductor's combo_kernels) leaves {shares(left)} of the additional kernels; it makes all "
        f"steps of ResNet110 {shares(shorter)} shorter, the plain one too "
        f"({other['resnet110']['plain']['median_ms']:.1f} ms), and leaves ratios where they are, within "
        f"{max(apart):.3f}; at 1/8 it then needs {memory[0]:.2f} times the plain step's memory instead of "
        f"{memory[1]:.2f}. ViT-B/16 gains nothing by it."
    )


def worth(folder: Path) -> dict[str, str]:
    """What the slices to take cost, as the table of them has it."""
    before, now = read(folder), read(folder, "default-h200-*")
    rare = {
        name: percent([steps[STEPS[name]]["ratio"] for steps in before.values()])
        for name in ("1/16, every 4th", "1/8, every 4th")
    }
    large = percent([steps[EIGHTH]["ratio"] for net, steps in now.items() if net != "resnet110"])
    small = percent([now["resnet110"][EIGHTH]["ratio"]])
    others = listed([NETS[net] for net in now if net != "resnet110"])
    return {**rare, "1/8": f"{large} in {others}, {small} in ResNet110"}


def _all_steps(folder: Path) -> list[Mapping[str, Any]]:
    """Of the H200, and nets that failed as a whole."""
    nets = [net for record in records.read(folder, "h200-*").values() for net in record["models"]]
    return [*nets, *(step for net in nets for step in net.get("steps", []))]


def _eager(folder: Path, net: str) -> float:
    """The exact step of a net over the plain one."""
    (record,) = records.read(folder, f"h200-{net}-eager").values()
    (model,) = record["models"]
    return next(step["ratio"] for step in model["steps"] if step["step"] == STEPS["exact"])


def _slices(folder: Path, name: str) -> list[float]:
    """Ratios of one record."""
    (record,) = records.read(folder, name).values()
    (model,) = record["models"]
    by = {step["step"]: step["ratio"] for step in model["steps"]}
    return [by[EIGHTH], by[SIXTEENTH]]


def _apart(folder: Path) -> float:
    """The slowest over the fastest plain step of a net; older records, which know no profiles, are left out."""
    times: dict[str, list[float]] = {}
    for record in records.read(folder, "*h200-*").values():
        settings = record["settings"]
        if settings["compile"] and "profile" in settings and not settings.get("combine"):
            for model in record["models"]:
                times.setdefault(model["model"], []).append(model["steps"][0]["median_ms"])
    return max(max(some) / min(some) for some in times.values())

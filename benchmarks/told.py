"""What docs/when.md and docs/bench.md say of the results: when it helps, when it hurts, what it costs.

    python -m benchmarks.told [--results results]

Every number is from a record. A sentence that the records do not bear out any more is refused, so that somebody writes
another one.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import cost, cost_told, slices_told
from benchmarks.halves_told import halves
from benchmarks.long_told import long_training
from benchmarks.losses_told import by_loss
from benchmarks.sentences import in_points, lower_end, paragraph, percent, sure
from benchmarks.shift_told import shift
from benchmarks.smoke_told import smoke
from benchmarks.texture_told import texture_shape
from benchmarks.when import LOSS, OURS, USUAL, dead, read
from racecar.support.files import write_text
from racecar_lab.experiments import experiment
from racecar_lab.experiments.information import FAILED
from racecar_lab.report.groups import has
from racecar_lab.report.section import findings_of
from racecar_lab.report.statistics import estimate, gains
from racecar_lab.report.told import judged
from racecar_lab.report.verdicts import SUPPORTED, UNDECIDED
from racecar_lab.running.results import Store
from racecar_lab.running.run import Run
from racecar_lab.training.loss_config import PAPER, LossConfig

MARK = re.compile(r"(<!-- told -->\n).*?(<!-- end -->)", re.DOTALL)
PART = re.compile(r"(<!-- told ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
"""A part of docs/bench.md, by its name."""
PAGES = {Path("docs/when.md"): ("../results", ".")}
"""Page → where results and docs are from there."""
BENCH = Path("docs/bench.md")


def lines(folder: Path) -> list[str]:
    """As Markdown, with {results} and {docs} where links need them."""
    more = (smoke, halves, long_training, texture_shape, group_norm, mnist, cifar, died, picture, bits, shift, costs)
    return [*by_loss(folder), *(one(folder) for one in more)]


def group_norm(folder: Path) -> str:
    """Which was searched for the loss of before alone."""
    usual = {name: value for name, value in USUAL.items() if name not in ("fraction", "longer", "norm", "task")}
    runs = [run for run in Store(folder / "few-labels").runs() if has(run.config, usual)]
    text = "With group norm RR is as good as Std at 2 labels: probe"
    (found,) = [one for one in findings_of(experiment("few-labels"), runs) if one.claim.text == text]
    sure(found.verdict == UNDECIDED, "group norm is undecided")
    return f"**Nothing is decided** with group norm: RR − Std is {in_points(found)} points (the loss of before)."


def mnist(folder: Path) -> str:
    """Accuracies of nets that are fine-tuned."""
    runs = list(Store(folder / "mnist-losses").runs())
    found = {
        (one.claim.text, dict(one.setting).get("scale")): one for one in judged(findings_of(experiment("mnist"), runs))
    }
    accuracies = [one for (text, _), one in found.items() if "fine-tuned" in text]
    sure({one.verdict for one in accuracies} == {UNDECIDED}, "nothing is decided of accuracies on MNIST")
    ours, papers = (found["RR beats Std, fine-tuned on MNIST", scale] for scale in (LossConfig.scale, PAPER["scale"]))
    scratch = found["RR beats Std from scratch, on blurred MNIST", PAPER["scale"]]
    sure(scratch.verdict == SUPPORTED, "with the paper's loss RR beats Std from scratch on blurred MNIST")
    return (
        "On [MNIST]({results}/mnist-losses/report.md) accuracies of fine-tuned nets hardly differ: RR − Std is "
        f"{in_points(ours)} points with the default and {in_points(papers)} with the paper's loss, undecided; RR − Std "
        f"from scratch is {in_points(scratch)} on blurred MNIST with the paper's."
    )


def cifar(folder: Path) -> str:
    """Thirteen convolutions with batch norm."""
    runs = [run for run in Store(folder / "slices-cifar").runs() if run.finished and run.config["fraction"] == 1]
    told = []
    for optimiser in ("adam", "sgd"):
        some = [run for run in runs if run.config["optimiser"] == optimiser and run.config["every"] == 1]
        found = estimate(gains(_accuracies(some, "Std"), _accuracies(some, "RR"), higher=True))
        assert found is not None
        sure(lower_end(found) > 0, "thirteen convolutions with batch norm lose accuracy")
        low, high = found.interval() or (found.mean, found.mean)
        told.append(f"{found.mean:.1f} points with {optimiser} ({low:.1f} to {high:.1f})")
    seeds = len({run.seed for run in runs})
    return (
        f"**It hurts** thirteen convolutions with batch norm on [CIFAR-10]({{results}}/slices-cifar/report.md): "
        f"{', '.join(told)}; {seeds} seeds, He's first weights, the loss of before."
    )


def died(folder: Path) -> str:
    """Nets of settings that a search took."""
    blurred = read(folder / "few-labels", "none", "blur")[OURS]
    runs = [run for run in _of(folder, "mnist", norm=False, fraction=0.125) if run.stage == "A" and run.variant == "RR"]
    lost = sum(run.dead for run in runs)
    sure(lost > 0 and len(dead(blurred)) > 0, "nets died on MNIST and on blurred MNIST")
    return (
        f"**It can kill** a net without norm where λ and the learning rate are large: {len(dead(blurred))} of "
        f"{len(blurred)} on blurred MNIST and {lost} of {len(runs)} on MNIST died with settings that a search had "
        "taken and the paper's gradient, through d and d'. With d as a fixed target, the default since, "
        "[none did]({docs}/loss.md#the-defaults-and-why)."
    )


def picture(folder: Path) -> str:
    """What the reverse pass makes of a picture."""

    def ssim(name: str, stage: str = "A") -> str:
        runs = [run for run in Store(folder / "mnist-losses").runs() if run.stage == stage and not run.config["longer"]]
        ours, papers, std = (
            mean(run.metrics[name] for run in runs if (run.variant, run.config["scale"]) == one)
            for one in (("RR", LossConfig.scale), ("RR", PAPER["scale"]), ("Std", LossConfig.scale))
        )
        return f"{ours:.2f} ({papers:.2f} with the paper's loss) against {std:.2f}"

    return (
        "**You can look into it**: after training on MNIST without norm the reverse pass rebuilds the digit, SSIM "
        f"{ssim('ssim')} of Std. Much of that is brightness: with brightness and contrast fitted it is "
        f"{ssim('ssim_scaled')}, and {ssim('ssim_scaled', 'AA')} after fine-tuning without the loss."
    )


def bits(folder: Path) -> str:
    """The paper's toy task."""
    runs = list(Store(folder / "information-100").runs())
    verdicts = {
        (one.claim.text, dict(one.setting)["scale"]): one.verdict
        for one in findings_of(experiment("information"), runs)
    }
    beats, fails = "RR beats Std on swapped labels", "RR fails on swapped labels less often than Std"
    sure({verdicts[text, PAPER["scale"]] for text in (beats, fails)} == {SUPPORTED}, "the paper's loss beats Std")
    sure({verdicts[text, LossConfig.scale] for text in (beats, fails)} == {UNDECIDED}, "the default is undecided")
    others = [text for text, _ in verdicts if "swapped" in text and ("Ort" in text or "scratch" in text)]
    rest = [verdict for (text, _), verdict in verdicts.items() if text in others]
    sure(set(rest) == {UNDECIDED}, "nothing beats orthogonality or a start from scratch")

    def failed(variant: str, scale: str) -> str:
        some = [run for run in runs if (run.stage, run.variant, run.config["scale"]) == ("AB", variant, scale)]
        return f"{sum(run.metrics['test_accuracy'] < FAILED for run in some)} of {len(some)} nets"

    return (
        "On swapped labels of the [12-bit task]({results}/information-100/report.md) the paper is borne out: with its "
        f"own loss {failed('RR', PAPER['scale'])} of RR fail and {failed('Std', PAPER['scale'])} of Std. With our "
        f"default it is {failed('RR', LossConfig.scale)} and {failed('Std', LossConfig.scale)}, which decides "
        "nothing; nor does anything against orthogonality, or a start from scratch."
    )


def costs(folder: Path) -> str:
    """Of a compiled step."""
    default, usual = (cost.read(folder / "bench", pattern) for pattern in ("default-h200-*", "h200-*"))
    large = [steps[cost.STEPS["1/8"]]["ratio"] for name, steps in default.items() if name != "resnet110"]
    small = default["resnet110"][cost.STEPS["1/8"]]["ratio"]
    exact = [steps[cost.STEPS["exact"]]["ratio"] for steps in default.values()]
    rare = [steps[cost.STEPS["1/16, every 4th"]]["ratio"] for steps in usual.values()]
    return (
        f"**It costs** {percent(large)} of a compiled step on an H200 with an eighth of the batch "
        f"({percent([small])} in a ResNet110, whose kernels are tiny), {percent(rare)} with a sixteenth in every "
        f"fourth step, {percent(exact)} with all of it; which slice suits which net is "
        "[here]({docs}/bench.md#which-slice)."
    )


def _of(folder: Path, name: str, **fields: Any) -> list[Run]:
    return [run for run in Store(folder / name).runs() if run.finished and has(run.config, {**_loss(name), **fields})]


def _loss(name: str) -> Mapping[str, Any]:
    """That of the records that the lines are about; mnist has summed it."""
    return {**LOSS, "reduction": "sum"} if name.startswith("mnist") else LOSS


def _accuracies(runs: Iterable[Run], variant: str) -> dict[int, float]:
    return {run.seed: 100 * run.metrics["test_accuracy"] for run in runs if run.variant == variant}


def page(text: str, told: Sequence[str], results: str, docs: str) -> str:
    """The page with its lines filled in."""
    made = "\n".join(paragraph(f"- {one.format(results=results, docs=docs)}") for one in told)
    return MARK.sub(lambda mark: f"{mark[1]}\n{made}\n\n{mark[2]}", text)


def bench_page(text: str, folder: Path) -> str:
    """docs/bench.md with what is said of its tables."""
    bench = folder / "bench"
    made = {
        "default": cost_told.default(bench),
        "gradients": cost_told.gradients(bench),
        "by hand": cost_told.by_hand(bench),
        "on CPUs": cost_told.on_cpus(bench),
        "parts": cost_told.parts(bench),
        "slices": f"{slices_told.table(folder)}\n\n{slices_told.remarks(folder)}",
        "advice": slices_told.advice(folder),
    }
    return PART.sub(lambda mark: f"{mark[1]}\n{made[mark[2]]}\n\n{mark[3]}", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results"))
    results = parser.parse_args().results
    told = lines(results)
    for path, where in PAGES.items():
        write_text(path, page(path.read_text(), told, *where))
    write_text(BENCH, bench_page(BENCH.read_text(), results))


if __name__ == "__main__":
    main()

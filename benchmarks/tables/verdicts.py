"""Tables that say what became of claims: of README.md, docs/experiments.md and docs/when.md."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from textwrap import fill
from typing import Any

from benchmarks.tables.common import claims, finished_runs, gain, markdown, mean_and_sd, with_interval
from benchmarks.tables.few_labels import by_seed, points
from racecar_lab.experiments import EXPERIMENTS
from racecar_lab.experiments.texture_shape import rows as texture
from racecar_lab.experiments.texture_shape.claims import STAGE
from racecar_lab.experiments.texture_shape.splitting import CLUSTERS
from racecar_lab.report.claim_words import gain_text, mean_of
from racecar_lab.report.clustered import estimate_of
from racecar_lab.report.statistics import estimate
from racecar_lab.report.verdicts import CONTRADICTED, SUPPORTED, UNDECIDED
from racecar_lab.running.results import Store

RECORDS = {
    "few-labels-fresh": "the map's best cell, on fresh seeds",
    "few-labels-losses": "with both losses, two depths and two starts, every variant searched alike",
    "few-labels-map": "many settings, too few seeds for a verdict",
    "few-labels": "ten seeds, every variant tuned alike",
    "information-100": "a hundred seeds, the default loss and the paper's",
    "information-var_u": "on the published table var_u.mat",
    "information": "on data made from its rule",
    "mnist-fixed": "one λ for all stages",
    "mnist-lambda": "how that λ was fixed",
    "mnist-losses": "the default loss and the paper's, ten seeds",
    "mnist": "every variant tuned alike",
}
"""Records of experiments that have several, and what is special about each."""
PAPER = (
    ("digits", "Do a layer's singular vectors show the data? Two digits", "yes: LPIPS 0.28, plain 0.41"),
    ("peaks", "The same for peaks under scribbles", "yes: LPIPS 0.22, plain 0.50"),
    ("information-100", "Are swapped labels learned better?", "yes, with least spread"),
    ("", "InfoGAN: do single inputs get a meaning?", "yes"),
    ("mnist-losses", "Is MNIST learned better after fine-tuning?", "0.9859, plain 0.9842"),
    ("", "CIFAR-10, then CIFAR-100", "0.8711, plain 0.8377"),
    ("", "CIFAR-10, tested on CIFAR-10.1", "slope 1.55, plain 0.90"),
    ("", "ResNet110 on CIFAR-10", "+0.67 points, orthogonality +0.39"),
    ("texture-shape", "Are shapes seen instead of textures?", "54.7 %, plain 44.2 %"),
    ("smoke", "Can a GAN be run backwards?", "yes, plain gives black"),
    ("smoke-autoencoder", "Are its halves worth something in an autoencoder?", "L2 −68.9 %, real smoke −13.3 %"),
    ("", "VGG19: is style transferred better?", "yes, to look at"),
)
"""The paper's experiments, in its order: our record, empty where there is none yet, what is asked, and what it has."""
SENTENCE = re.compile(r".+: (?P<verdict>[^:(]+) \((?P<gain>[^)]+)\); .*")
SUMMARY: dict[str, tuple[str, ...]] = {
    "few-labels-losses": (
        "Without norm lRR beats Std at 2 labels: probe",
        "Without norm lRR beats Ort at 2 labels: probe",
        "Without norm lRR beats Pre at 2 labels: probe",
        "Without norm lRR beats Std trained as many seconds at 2 labels: probe",
        "Without norm RR beats Std at 2 labels: probe",
        "Without norm lRR beats Std at 2 labels: fine-tuned",
        "Without norm RR beats Std at 2 labels: fine-tuned",
        "Without norm lRR beats Std on the source task: accuracy",
        "Without norm lRR beats Std with batch norm at 2 labels: probe",
        "With batch norm lRR is as good as Std at 2 labels: probe",
        "With batch norm RR is as good as Std at 2 labels: probe",
    ),
    "few-labels": ("With group norm RR is as good as Std at 2 labels: probe",),
    "long-training": (
        "Without norm lRR beats Std: accuracy",
        "Without norm RR beats Std: accuracy",
        "Without norm lRR beats Std: likelihood",
        "Without norm RR beats Std: likelihood",
        "Without norm RR beats Ort: accuracy",
        "RR without norm beats Std with batch norm: accuracy",
    ),
    "mnist-losses": (
        "RR beats Std, fine-tuned on MNIST",
        "RR beats Std, fine-tuned on blurred MNIST",
        "RR beats Std from scratch, on blurred MNIST",
        "RR's reverse pass rebuilds the picture better than Std's",
        "RR's reverse pass rebuilds the picture better than Std's, brightness apart",
    ),
    "information-100": (
        "RR beats Std on swapped labels",
        "RR fails on swapped labels less often than Std",
        "RR fails on swapped labels less often than Ort",
        "RR fails on swapped labels less often than Std from scratch",
    ),
    "texture-shape": (
        "RR beats Std on stylised pictures of new shapes",
        "RR beats Std on edges of new shapes",
    ),
    "smoke": (
        "RR's reverse pass recovers the low resolution better than Std's: PSNR",
        "RR's reverse pass recovers the low resolution better than Ort's: PSNR",
        "RR enlarges as well as Std: L2",
        "RR enlarges as well as Std: energy spectrum",
    ),
    "smoke-autoencoder": (
        "Simulations: RR with both halves has less error than Std with its decoder",
        "Simulations: RR with both halves has less error than Std with both halves",
        "Simulations: RR with both halves has less error than Std from scratch",
        "RR's decoder has less error than Std's: the real plume",
        "RR's decoder has less error than Std's: photographs of smoke",
    ),
    "shift": (
        "Gaussian noise: lRR's reverse error tells better than Std's energy",
        "Gaussian blur: lRR's reverse error tells better than Std's energy",
        "Less contrast: lRR's reverse error tells better than Std's energy",
        "Classes that the net never saw: lRR's reverse error tells better than Std's energy",
    ),
}
"""The claims of docs/when.md by their folder of results."""


def opening_sentences(results: Path) -> dict[str, list[tuple[str, str]]]:
    """Experiment → its folders of results, each with the sentence that its page opens with."""
    sentences = defaultdict(list)
    for page in sorted(results.glob("*/report.md")):
        text = page.read_text()
        (name,) = set(re.findall(r'<a id="in-([\w-]+)">', text)) & set(EXPERIMENTS)
        sentence = re.search(r"^\*\*(.+)\*\*$", text, re.MULTILINE)
        assert sentence is not None, f"{page} opens with no sentence"
        sentences[name].append((page.parent.name, sentence[1]))
    return sentences


def experiments(results: Path) -> str:
    """A heading for each experiment, and below it a line for each of its folders of results."""
    sentences, parts = opening_sentences(results), []
    for name, experiment in EXPERIMENTS.items():
        parts += [f"### {experiment.title}", f"`racecar run {name}`, {experiment.reporting.section or 'ours'}."]
        lines = []
        for folder, sentence in sentences[name]:
            what = f", {RECORDS[folder]}" if len(sentences[name]) > 1 else ""
            line = f"- [{folder}](../results/{folder}/report.md){what}. {sentence}"
            lines.append(fill(line, 125, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))
        parts.append("\n".join(lines) or "No published record yet.")
    return "\n\n".join(parts)


def paper(results: Path) -> str:
    """The paper's experiments, each with the first claim of our record."""
    sentences = {folder: sentence for pairs in opening_sentences(results).values() for folder, sentence in pairs}
    rows = []
    for folder, question, theirs in PAPER:
        cells = ["–", "not run yet"]
        if folder:
            match = SENTENCE.fullmatch(sentences[folder])
            assert match is not None, f"the opening sentence of {folder} names no verdict and gain"
            cells = [match["gain"].replace("cosine_", "cosine "), f"[{match['verdict']}](results/{folder}/report.md)"]
        rows.append([question, theirs, *cells])
    return markdown(["question", "the paper", "ours, RR against plain", "verdict"], rows)


def outcomes(results: Path, folder: str) -> str:
    """The claims of ``SUMMARY``: in how many settings each was supported, left undecided and contradicted, and the
    lowest and highest mean gain; of a claim with one setting its gain and corrected interval."""
    rows = []
    for text in SUMMARY[folder]:
        settings = [finding for finding in claims(results / folder) if finding.judged and finding.claim.text == text]
        counts = [
            sum(finding.verdict == verdict for finding in settings) for verdict in (SUPPORTED, UNDECIDED, CONTRADICTED)
        ]
        low, high = (gain_text(end(settings, key=mean_of)).partition(", ")[0] for end in (min, max))
        number, _, unit = low.partition(" ")
        shown = f"{gain(settings[0])} {unit}" if len(settings) == 1 else f"{number} to {high}"
        rows.append([text, *(str(count) if count else "" for count in counts), shown.replace("test_nll", "nats")])
    return markdown(["claim", "✓", "○", "✗", "gain"], rows)


def thirteen_convolutions(results: Path) -> str:
    """RR and Std with batch norm and the whole reverse pass, from the records of slices-cifar: test accuracies, and
    their paired difference with its 95 % interval."""
    rows = []
    for optimiser in ("adam", "sgd"):
        where = {"fraction": 1.0, "every": 1, "optimiser": optimiser}
        runs = finished_runs(results / "slices-cifar")
        ours, std = (by_seed(runs, variant, where) for variant in ("RR", "Std"))
        means = [mean_and_sd([100 * run.metrics["test_accuracy"] for run in side.values()], 1) for side in (std, ours)]
        apart = with_interval(estimate(points(ours, std, "test_accuracy")))
        rows.append([optimiser, *means, apart, str(len(ours))])
    return markdown(["optimiser", "Std, %", "RR, %", "RR − Std, points", "seeds"], rows)


def texture_together(results: Path) -> str:
    """RR − Std on stylised pictures of new shapes over all settings and both losses of texture-shape, which nobody
    claimed before: a fold is the mean of all that it has."""
    gains: dict[Any, float] = {}
    for setting, runs in texture.settings(list(Store(results / "texture-shape").runs())).items():
        rows = texture.rows(runs, STAGE)
        std = texture.values(rows["Std"], "test_accuracy")
        for name in ("RR", "RR, the paper's loss"):
            ours = texture.values(rows[name], "test_accuracy")
            apart = {fold_seed: ours[fold_seed] - std[fold_seed] for fold_seed in ours.keys() & std.keys()}
            gains |= {(fold, (setting, name, seed)): 100 * gain for (fold, seed), gain in apart.items()}
    return markdown(["", "points"], [["RR − Std, all settings together", with_interval(estimate_of(gains, CLUSTERS))]])

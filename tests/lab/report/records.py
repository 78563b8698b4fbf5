"""Made-up records, as the laboratory writes them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from racecar.support.files import write_json
from racecar_lab.config import Config
from racecar_lab.experiment import Claim, Experiment, Paper, Reporting
from racecar_lab.running.job import Job
from racecar_lab.running.record import FORMAT, with_checksum
from racecar_lab.running.results import identity
from racecar_lab.running.run import Run


def record(
    variant: str = "Std",
    seed: int = 0,
    metrics: dict[str, Any] | None = None,
    *,
    experiment: str = "peaks",
    stage: str = "A",
    weight: float | None = None,
    config: dict[str, Any] | None = None,
    parent: str | None = None,
    status: str = "finished",
    **more: Any,
) -> dict[str, Any]:
    """One record; what is not said is as usual."""
    what = [experiment, variant, seed, stage, weight, config, parent]
    made = {
        "command": f"racecar run {experiment} --seeds 5", "racecar": "0.1.0", "commit": "abc1234", "torch": "2.13.0",
        "python": "3.11.7", "device": "CPU x86_64", "engine": "here", "finished": f"2026-11-15T07:00:{seed:02}Z",
    }  # fmt: skip
    made |= more.pop("made", {})
    return {
        "format": FORMAT, "id": identity({"what": what}), "experiment": experiment, "variant": variant,
        "weight": weight, "seed": seed, "stage": stage, "task": "A", "regularised": stage == "A",
        "parent": parent, "purpose": "", "config": {"epochs": 10, "lr": 1e-4} if config is None else config,
        "tuned": {}, "metrics": metrics or {}, "curves": {}, "tables": {},
        "cost": {"wall_s": 12.0, "step_s": 0.001, "steps": 100}, "status": status, "note": "", "dead": None,
        "other_data": [], "made": made, "sha256": {}, **more,
    }  # fmt: skip


def runs(records: list[dict[str, Any]]) -> list[Run]:
    return [Run(one) for one in records]


def untrained(jobs: Sequence[Job], names: Iterable[str]) -> list[Run]:
    """Jobs as if they had been run, with metrics that differ with the variant and the seed: what is claimed of them
    finds its two sides without a training."""
    found = []
    for job in jobs:
        value = 0.5 + 0.01 * job.seed + 0.1 * (job.variant == "RR")
        one = {"experiment": job.experiment.name, "weight": job.weight, "config": job.base.to_dict()}
        metrics = dict.fromkeys(names, value)
        found += [record(job.variant, job.seed, metrics, stage=s, id=id, tuned={}, **one) for s, id in job.ids.items()]
    return runs(found)


def write(folder: Path, records: list[dict[str, Any]]) -> Path:
    """A folder as ``racecar run`` leaves it."""
    for one in records:
        write_json(folder / "records" / f"{one['id']}.json", with_checksum(one))
    return folder


@dataclass(frozen=True, kw_only=True)
class PeaksConfig(Config):
    net: str = "linear"
    sizes: tuple[int, ...] = ()


def peaks_figures(runs: Any) -> dict[str, Any]:
    from racecar.inspect.style import new_figure

    figure, ((axis,),) = new_figure(1, 1, (4, 2.4))
    axis.imshow([[0.0, 1.0], [0.5, 0.2]])
    axis.set(xlabel="column", ylabel="row")
    return {"Singular vectors <of RR>": figure}


class Peaks(Experiment):
    """Two networks, three variants; RR is much better, Ort a little."""

    name = "peaks"
    Config: ClassVar = PeaksConfig
    claims = (
        Claim("RR finds the peaks", "cosine_1", "A", "RR", "Std", where={"net": "linear"}),
        Claim("Orthogonality finds them, too", "cosine_1", "A", "Ort", "Std", where={"net": "linear"}),
        Claim("Images are nearer to RR's vectors", "lpips", "A", "RR", "Std", higher=False),
        Claim("Transfer is better after RR", "test_accuracy", "AB", "RR", "Std"),
        Claim("Pretraining does as well", "test_accuracy", "AB", "Pre", "RR"),
    )
    reporting = Reporting(
        title="Peaks: what a layer looks for",
        section="Sec. 3.1",
        summary="Singular vectors of a network that was trained with the reverse pass carry the data, others do not.",
        paper=(
            Paper("lpips", "A", "RR", 0.217, 0.022),
            Paper("lpips", "A", "Std", 0.5, 0.002),
            Paper("lpips", "A", "Ort", 0.495, 0.006, note="over all vectors"),
        ),
        figures=peaks_figures,
    )

    def weight(self, config: Any, variant: str) -> float:
        return {"Ort": 0.1, "RR": 5e-7}.get(variant, 0.0)


def peaks_records(seeds: int = 5) -> list[dict[str, Any]]:
    """Records of Peaks: two networks, one of them with a sweep, curves and a training that diverged; two stages."""
    found = []
    for net, choices in (
        ("linear", (("Std", None), ("Ort", 0.1), ("RR", 5e-8), ("RR", 5e-7), ("RR", 5e-6))),
        ("two", (("Std", None), ("RR", 5e-7))),
    ):
        config = {"net": net, "epochs": 5000, "lr": 1e-4, "sizes": [784, 128, 2]}
        for variant, weight in choices:
            for seed in range(seeds):
                draw = random.Random(f"{net} {variant} {weight} {seed}")
                good = {"Std": 0.2, "Ort": 0.21, "RR": 0.96}[variant]
                metrics: dict[str, Any] = {
                    "cosine_1": good + draw.gauss(0, 0.02),
                    "lpips": 0.55 - good / 3 + draw.gauss(0, 0.01),
                    "test_accuracy": 0.9 + draw.gauss(0, 0.02),
                }
                more: dict[str, Any] = {}
                if weight == 5e-6 and seed == 3:
                    metrics = dict.fromkeys(metrics)
                    more = {"status": "diverged", "note": "the loss was not finite in epoch 12"}
                elif net == "linear":
                    epochs, scale = list(range(50, 5001, 50)), 1 + draw.random()
                    more["curves"] = {
                        "epoch": epochs,
                        "train_loss": [scale * 500 / one for one in epochs],
                        "regulariser": [scale / (1 + one / 900) for one in epochs],
                    }
                    more["tables"] = {
                        "plane": [
                            {"name": f"d{i}", "codes": draw.randrange(9, 99), "i_xd": 12 - i + draw.random()}
                            for i in (1, 2)
                        ]
                    }
                cost = {
                    "wall_s": 60.0, "step_s": (1.5e-3 if variant == "RR" else 1e-3) * (1 + draw.random() / 9),
                    "steps": 5000, "peak_memory": 3_000_000 if variant == "RR" else 2_000_000,
                }  # fmt: skip
                first = record(variant, seed, metrics, config=config, weight=weight, cost=cost, **more)
                found.append(first)
                what = {"stage": "AB", "config": config, "weight": weight, "parent": first["id"]}
                after = {"test_accuracy": (0.9 if variant == "RR" else 0.86) + draw.gauss(0, 0.03)}
                found.append(record(variant, seed, after, **what, status=first["status"], note="A diverged"))
    return found

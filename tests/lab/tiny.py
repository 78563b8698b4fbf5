"""A laboratory small enough for tests, with every trouble that a run can have; as a program, ``racecar`` with it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar_lab.config import Config
from racecar_lab.experiment import Experiment, Measured, Reporting, Split, Stage, Task, Trained, accuracy
from racecar_lab.networks.dense import dense
from racecar_lab.running import runner
from racecar_lab.running.engines.base import Failure, RunOptions
from racecar_lab.running.job import Job
from racecar_lab.running.jobs import make_jobs
from racecar_lab.running.record_writer import Maker
from racecar_lab.running.results import Store
from racecar_lab.training import rng
from racecar_lab.training.recipe import Recipe

ROOT = Path(__file__).parents[2]
TRAIN, TEST, WIDTHS = 26, 20, (6, 5, 4, 3)
STEPS, HOLD = "RACECAR_TEST_STEPS", "RACECAR_TEST_HOLD"
"""Variables of the environment that name files."""
ALL = ("Std", "Ort", "Pre", "RR", "lRR", "RR1", "WD", "Drop")


@dataclass(frozen=True, kw_only=True)
class TinyConfig(Config):
    epochs: int = 3
    finetune: int = 1
    """Epochs; 0: stage A alone."""
    lr: float = 1e-2
    batch: int = 8
    scales: tuple[str, ...] = ("relative",)
    """Of the reverse pass; one configuration for each."""
    norm: bool = False
    dropout: float = 0.0
    """Of the network itself, in every variant."""
    infinite: tuple[int, ...] = ()
    """Seeds with an infinite value in the last sample of the first epoch of stage A."""
    raises: tuple[int, ...] = ()
    """Seeds whose measurement raises."""
    kills: tuple[int, ...] = ()
    """Seeds whose process dies in the middle of its next message, after two other jobs are finished; the data folder
    is that of the results."""
    dies: tuple[int, ...] = ()
    """Seeds whose process dies once, when stage AA is measured; a file in the data folder remembers it."""


class Tiny(Experiment):
    name = "tiny"
    reporting = Reporting(title="A test")
    Config = TinyConfig
    variants = ("Std", "Ort", "RR")
    seeds = 2
    steady = False

    def configs(self, config: Any, folder: Path | None) -> Sequence[Any]:
        return [replace(config, scales=(scale,)) for scale in config.scales]

    def data(self, config: Any, seed: int, folder: Path | None) -> Mapping[str, Task]:
        x = torch.randn(TRAIN + TEST, WIDTHS[0], generator=rng.generator("tiny", seed))
        y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
        held = round(config.valid * TRAIN)
        if seed in config.infinite:
            x[held + rng.order(TRAIN - held, config.batch, seed, "A", 0)[-1, -1], 0] = torch.inf

        def task(labels: Tensor) -> Task:
            parts = [Split(x[a:b], labels[a:b]) for a, b in ((held, TRAIN), (TRAIN, None), (0, held))]
            return Task(parts[0], parts[1], parts[2] if held else None)

        return {"A": task(y), "B": task((y + 1) % 3)}

    def network(self, config: Any, dropout: float = 0.0) -> nn.Module:
        return dense(WIDTHS, nn.Tanh, norm=config.norm, dropout=dropout or config.dropout)

    def stages(self, config: Any) -> tuple[Stage, ...]:
        first, after = Stage("A"), {"after": "A", "regularised": False, "epochs": config.finetune}
        return (first, Stage("AA", **after), Stage("AB", task="B", **after)) if config.finetune else (first,)

    def weight(self, config: Any, variant: str) -> float:
        return {"Ort": 0.1, "Pre": 2.0, "WD": 0.1, "Drop": 0.5}.get(variant, 0.3)

    def reverse(self, config: Any) -> dict[str, Any]:
        return {"scale": config.scales[0], "fraction": config.fraction}

    def recipe(self, config: Any, stage: Stage) -> Recipe:
        return Recipe(look=look, looks=2, loss=lambda output, y: self.loss(output, y), steady=self.steady)

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(output, y)

    def measure(self, config: Any, trained: Trained) -> Measured:
        if trained.seed in config.kills:
            assert trained.folder is not None
            while len(list((trained.folder / "records").glob("*.json"))) < 6:
                time.sleep(0.05)
            Connection._send_bytes = die  # type: ignore[attr-defined]
        if trained.seed in config.dies and trained.stage.name == "AA":
            assert trained.folder is not None
            with suppress(FileExistsError):
                (trained.folder / "dead").touch(exist_ok=False)
                die()
        if trained.seed in config.raises:
            raise RuntimeError("this one cannot be measured\nand here is why")
        test = trained.task.test
        with torch.no_grad():
            loss = float(F.cross_entropy(trained.model(test.x), test.y))
        metrics = {"test_accuracy": accuracy(trained.model, test), "test_loss": loss}
        arrays = {"first": first_weight(trained.model), **trained.history}
        return Measured(metrics, {"norms": [float(p.detach().norm()) for p in trained.model.parameters()]}, arrays)


class Slow(Tiny):
    """The same with time in every step, so that it can be met at work; it leaves a byte in the file STEPS for each.
    Jobs that begin when there is a file HOLD stop, a minute, at the step that it names."""

    begun = 0

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        time.sleep(0.05)
        if log := os.environ.get(STEPS):
            with open(log, "ab") as file:
                file.write(b"s")
        if (hold := os.environ.get(HOLD)) and Path(hold).exists():
            self.begun += 1
            end = time.monotonic() + 60
            while self.begun == int(Path(hold).read_text()) and time.monotonic() < end:
                time.sleep(0.02)
        return super().loss(output, y)


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def look(model: nn.Module, task: Task) -> dict[str, Tensor]:
    return {"looks": first_weight(model).clone()}


def first_weight(model: nn.Module) -> Tensor:
    return next(p for name, p in model.named_parameters() if name.endswith("weight")).detach()


def make(
    variants: Iterable[str] = ("Std",),
    seeds: Iterable[int] = (0,),
    experiment: Experiment | None = None,
    folder: Path | None = None,
    weights: Mapping[str, Sequence[float]] | None = None,
    **config: Any,
) -> list[Job]:
    """Jobs of some variants and seeds."""
    one = experiment or Tiny()
    return make_jobs(one, one.Config(**config), tuple(variants), seeds, folder, weights=weights)


def run(jobs: Sequence[Job], folder: Path, engine: str = "here", **plan: Any) -> list[Failure]:
    """In this process, unless there are more workers."""
    given = {"workers": 1, **plan}
    return runner.run(jobs, RunOptions(folder=folder, maker=Maker("a test", engine), **given), engine, show=False)


def results(folder: Path) -> dict[str, dict[str, Any]]:
    """Id → all that must not depend on how it came about: the record but its cost and maker; weights and arrays
    themselves, not their checksums, which depend on rounding."""
    store, found = Store(folder), {}
    for one in store.runs():
        record = {name: value for name, value in one.record.items() if name not in ("cost", "made", "sha256")}
        record["steps"] = one.record["cost"].get("steps", 0)
        found[one.id] = {**record, "weights": store.weights(one.id) if one.finished else {}, "arrays": one.arrays}
    return found


def plain(result: Any) -> Any:
    """With lists instead of tensors: == then means bit for bit."""
    if isinstance(result, Tensor):
        return result.tolist()
    return {name: plain(value) for name, value in result.items()} if isinstance(result, dict) else result


def command(*arguments: str) -> None:
    """The command line with these experiments, in a session of its own as a terminal gives it."""
    from racecar.cli import main
    from racecar_lab.experiments import EXPERIMENTS

    if arguments:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # which tests in the background ignore
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # it may have been forked where workers are
        sys.argv[1:] = arguments
    EXPERIMENTS["tiny"], EXPERIMENTS["slow"] = Tiny(), Slow()
    torch.set_num_threads(1)
    main()


def heard(file: Path, *arguments: str) -> None:
    """The same, with what it and its workers say put into a file."""
    with open(file, "wb") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    command(*arguments)


OTHERS = ("torch", "numpy", "typer", "rich", "safetensors", "matplotlib", "scipy", "PIL", "jinja2", "tests")


def hostile_folder(parent: Path) -> Path:
    """A folder with a file for every module of Python's own, and some of others, that leaves a trace in the file "run"
    beside it when it is run."""
    folder = parent / "here"
    folder.mkdir()
    for name in (*sys.stdlib_module_names, *OTHERS):
        (folder / f"{name}.py").write_text(
            f"with open({str(parent / 'run')!r}, 'a') as file: print({name!r}, file=file)"
        )
    return folder


if __name__ == "__main__":
    from tests.lab.tiny import command  # by its importable name, for processes that it starts

    command()

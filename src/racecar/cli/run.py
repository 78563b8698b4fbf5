"""``racecar list``, ``run``, ``sweep`` and ``search``: the laboratory."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from racecar.cli.console import command

if TYPE_CHECKING:
    from racecar.lab.config import Config
    from racecar.lab.experiment import Experiment
    from racecar.lab.jobs import Job

Name = Annotated[str, typer.Argument(metavar="NAME", help="Experiment, as `racecar list` names it.")]
Variants = Annotated[
    str, typer.Option("--variants", metavar="A,B", help="Some of Std, Ort, Pre, RR, lRR, RR1, WD, Drop.")
]
Seeds = Annotated[int, typer.Option("--seeds", metavar="N", min=0, help="Seeds 0 … N − 1; 0: as the experiment says.")]
Engine = Annotated[str, typer.Option("--engine", metavar="WHICH", help="here, vmap or ray.")]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, …")]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", exists=True, help="Data folder. Without it: $RACECAR_DATA, or the user's cache."
    ),
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", file_okay=False, help="Results folder; out/NAME without it.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from checkpoints of unfinished stages.")]
Quick = Annotated[bool, typer.Option("--quick", help="A short form, to see that it works.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Change a setting; repeatable.")]
Coefficient = Annotated[
    list[str] | None,
    typer.Option("--coefficient", metavar="VARIANT=a,b", help="Coefficients of a variant's regulariser; repeatable."),
]
Tuned = Annotated[Path | None, typer.Option("--tuned", metavar="FILE", help="What `racecar search` chose.")]
Workers = Annotated[int, typer.Option("--workers", metavar="N", min=0, help="Processes at once; 0: as many as fit.")]
Compile = Annotated[bool, typer.Option("--compile", help="torch.compile the training step.")]
Every = Annotated[float, typer.Option("--checkpoint-every", metavar="SECONDS", min=0, help="Between checkpoints.")]
Address = Annotated[str | None, typer.Option("--address", help="Of a Ray cluster; without it one on this machine.")]
Tensorboard = Annotated[bool, typer.Option("--tensorboard", help="Write scalars to DIR/tensorboard.")]
Over = Annotated[str, typer.Option("--over", metavar="FIELD=a,b,c", help="A setting, or weight: the coefficient.")]


def list_experiments() -> None:
    """List the experiments."""
    from racecar.lab.experiments import EXPERIMENTS
    from racecar.table import table

    rows = [[one.name, one.title, one.section, ",".join(one.variants), str(one.seeds)] for one in EXPERIMENTS.values()]
    print(table(["name", "what", "paper", "variants", "seeds"], rows))


def run_experiment(
    name: Name,
    variants: Variants = "",
    seeds: Seeds = 0,
    engine: Engine = "here",
    device: Device = "cpu",
    data: Data = None,
    out: Out = None,
    resume: Resume = False,
    quick: Quick = False,
    settings: Set = None,
    coefficient: Coefficient = None,
    tuned: Tuned = None,
    workers: Workers = 0,
    compile_step: Compile = False,
    every: Every = 60.0,
    address: Address = None,
    tensorboard: Tensorboard = False,
) -> None:
    """Run an experiment: every variant, every seed, every stage. What is there already is skipped."""
    from racecar.lab.experiments import experiment
    from racecar.lab.jobs import make_jobs

    one = experiment(name)
    config, chosen = _config(one, quick, settings), _variants(one, variants)
    given, found = _coefficients(coefficient, chosen), _tuned(tuned, one, config, chosen, settings or [])
    jobs = make_jobs(one, config, chosen, range(seeds or one.seeds), data, given, found)
    _go(one, jobs, out, engine, device, resume, workers, compile_step, every, address, tensorboard)


def sweep(
    name: Name,
    over: Over,
    variants: Variants = "",
    seeds: Seeds = 0,
    engine: Engine = "here",
    device: Device = "cpu",
    data: Data = None,
    out: Out = None,
    resume: Resume = False,
    quick: Quick = False,
    settings: Set = None,
    tuned: Tuned = None,
    workers: Workers = 0,
    compile_step: Compile = False,
    every: Every = 60.0,
    address: Address = None,
) -> None:
    """Run an experiment once for each value of a setting; "weight" is the coefficient of every regulariser."""
    from racecar.lab.config import override, parse
    from racecar.lab.experiments import experiment
    from racecar.lab.jobs import make_jobs
    from racecar.lab.variants import variant

    one = experiment(name)
    config, chosen = _config(one, quick, settings), _variants(one, variants)
    field, equals, text = over.partition("=")
    values = [value.strip() for value in text.split(",") if value.strip()]
    if not equals or not values:
        raise ValueError(f"--over {over!r}: write FIELD=a,b,c, for example weight=1e-3,1e-2,1e-1")
    some, found = range(seeds or one.seeds), _tuned(tuned, one, config, chosen, [*(settings or []), over])
    if field in ("weight", "coefficient"):
        numbers = tuple(parse(value, float, field) for value in values)
        given = {which: numbers for which in chosen if variant(which).kind in ("reverse", "orthogonality", "decay")}
        if not given:
            raise ValueError(f"--over {over!r}: none of {', '.join(chosen)} has a weight")
        jobs = make_jobs(one, config, chosen, some, data, given, found)
    else:
        jobs = []
        for value in values:
            jobs += make_jobs(one, override(config, [f"{field}={value}"]), chosen, some, data, tuned=found)
    _go(one, jobs, out, engine, device, resume, workers, compile_step, every, address, False)


def search(
    name: Name,
    variants: Variants = "",
    engine: Engine = "here",
    device: Device = "cpu",
    data: Data = None,
    out: Out = None,
    quick: Quick = False,
    settings: Set = None,
    workers: Workers = 0,
    address: Address = None,
) -> None:
    """Choose learning rate and coefficient of every variant on held-out training data, with one budget for all."""
    from dataclasses import replace

    from racecar.files import write_json
    from racecar.lab.experiments import experiment
    from racecar.lab.results import Store
    from racecar.lab.search import best, trials

    one = experiment(name)
    if one.search is None:
        raise ValueError(f"experiment {name!r} has no search")
    if _sets(settings or [], "lr"):
        raise ValueError("--set lr: the search chooses the learning rate")
    config = _config(one, quick, settings)
    config = replace(config, valid=config.valid or one.search.valid)
    jobs = trials(one, one.search, config, _variants(one, variants), data)
    folder = out or Path("out") / f"{name}-search"
    _go(one, jobs, folder, engine, device, True, workers, False, 60.0, address, False, quiet=True)
    chosen = best(jobs, Store(folder), one.search)
    write_json(
        folder / "tuned.json",
        {
            "command": command(),
            "experiment": name,
            "config": jobs[0].base.to_dict(),
            "metric": one.search.metric,
            "stages": list(one.search.stages),
            "seeds": one.search.seeds,
            "variants": chosen,
        },
    )
    for which, found in chosen.items():
        coefficient = f", coefficient {found['coefficient']:g}" if "coefficient" in found else ""
        print(f"{which}: lr {found['lr']:.3g}{coefficient}, {one.search.metric} {found['score']:.4f}")
    print(folder / "tuned.json")


def _config(one: Experiment, quick: bool, settings: Sequence[str] | None) -> Config:
    from racecar.lab.config import override

    return override(one.Config(**(one.quick if quick else {})), settings or [])


def _variants(one: Experiment, text: str) -> list[str]:
    from racecar.lab.variants import variant

    names = [name.strip() for name in text.split(",") if name.strip()] or list(one.variants)
    return [variant(name).name for name in names]


def _sets(settings: Sequence[str], field: str) -> bool:
    """Whether the user gives a field."""
    return any(text.partition("=")[0].strip() == field for text in settings)


def _coefficients(texts: Sequence[str] | None, variants: Sequence[str]) -> dict[str, list[float]]:
    from racecar.lab.config import parse
    from racecar.lab.variants import variant

    found = {}
    for text in texts or []:
        name, equals, values = text.partition("=")
        if not equals:
            raise ValueError(f"--coefficient {text!r}: write VARIANT=a,b,c, for example RR=0.01,0.1")
        if not variant(name).meaning:
            raise ValueError(f"--coefficient {text!r}: {name} has no coefficient")
        if name not in variants:
            raise ValueError(f"--coefficient {text!r}: {name} is not run, but {', '.join(variants)}")
        found[name] = [parse(value.strip(), float, f"--coefficient {name}") for value in values.split(",")]
    return found


def _tuned(
    path: Path | None, one: Experiment, config: Config, variants: Sequence[str], settings: Sequence[str]
) -> Mapping[str, Mapping[str, Any]]:
    """Variant → settings, from the file that ``racecar search`` wrote for this experiment and optimiser."""
    import json

    if path is None:
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        made_for = content["experiment"], content["config"]["optimiser"]
        tuned = {
            name: {key: float(found[key]) for key in ("lr", "coefficient") if key in found}
            for name, found in content["variants"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no file of `racecar search` ({type(error).__name__}: {error})") from None
    if made_for != (one.name, config.optimiser):
        raise ValueError(f"{path} was made for experiment {made_for[0]} with optimiser {made_for[1]}")
    missing = [name for name in variants if name not in tuned]
    if missing:
        raise ValueError(f"{path} has nothing for {', '.join(missing)}: leave them out by --variants")
    if _sets(settings, "lr"):
        raise ValueError(f"lr is given, and by {path} too: leave one of them out")
    return tuned


def _go(
    one: Experiment,
    jobs: Sequence[Job],
    out: Path | None,
    engine: str,
    device: str,
    resume: bool,
    workers: int,
    compile_step: bool,
    every: float,
    address: str | None,
    tensorboard: bool,
    quiet: bool = False,
) -> None:
    """Do the jobs, and say what came of them."""
    import torch

    from racecar.lab import distributed, runner
    from racecar.lab.engines.base import Plan
    from racecar.lab.results import Store
    from racecar.lab.work import Maker

    try:
        torch.device(device)
    except RuntimeError:
        raise ValueError(f"--device {device!r} is none: use cpu, cuda, cuda:1, …") from None
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError("--device cuda: this torch sees no CUDA device; use --device cpu")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:  # torchrun: the processes share every training
        device, engine, workers = distributed.start(device), "here", 1
    folder = out or Path("out") / one.name
    maker = Maker(command(), engine, runner.commit())
    plan = Plan(folder, maker, device, compile_step, every, resume, workers, address, tensorboard)
    store = Store(folder)
    for job in jobs:
        if job.unfinished(store):  # data that are missing are missed once, not by every job
            job.experiment.data(job.config, job.seed, job.folder)
            break
    there = sum(len(job.stages) - len(job.unfinished(store)) for job in jobs)
    if there and distributed.first():
        print(f"{there} of {sum(len(job.stages) for job in jobs)} stages are there already", file=sys.stderr)
    failures = runner.run(jobs, plan, engine)
    if distributed.first():
        if not quiet:
            print(summary(jobs, store))
            print(f"results: {folder}   page: racecar report {folder}")
        for failure in failures:
            print(f"racecar: {failure.job} failed: {failure.message}", file=sys.stderr)
    distributed.stop()
    if failures:
        raise ValueError(f"{len(failures)} of {len(jobs)} jobs failed; what was finished is in {folder}")


def summary(jobs: Sequence[Job], store: Any) -> str:
    """Mean ± sd of every metric over the seeds."""
    from statistics import mean, stdev

    from racecar.lab.config import changed
    from racecar.table import table

    groups: dict[tuple[str, ...], list[Any]] = {}
    metrics: dict[str, None] = {}
    for job in jobs:
        for stage in job.stages:
            if store.has(job.ids[stage.name]):
                run = store.get(job.ids[stage.name])
                setting = ", ".join(f"{key}={value}" for key, value in changed(job.base).items())
                strength = "" if job.coefficient is None else f"{job.coefficient:g}"
                groups.setdefault((setting, stage.name, job.variant, strength), []).append(run)
                metrics.update(dict.fromkeys(run.metrics))
    rows = []
    for (setting, stage_name, which, strength), runs in groups.items():
        cells = []
        for metric in metrics:
            values = [run.metrics[metric] for run in runs if run.finished and metric in run.metrics]
            spread = f" ± {stdev(values):.3f}" if len(values) > 1 else ""
            cells.append(f"{mean(values):.3f}{spread}" if values else "-")
        lost = sum(not run.finished for run in runs)
        rows.append(
            [setting, stage_name, which, strength, f"{len(runs)}" + (f" ({lost} diverged)" if lost else ""), *cells]
        )
    return table(["settings", "stage", "variant", "coefficient", "runs", *metrics], rows)

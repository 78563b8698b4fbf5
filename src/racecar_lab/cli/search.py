"""``racecar search`` chooses learning rate, λ and more for every variant, with the same number of trials for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from racecar.support.console import command
from racecar.support.processes import is_rank_zero
from racecar_lab.cli.options import CommandOptions, Name, Out, Rates, Tuned, with_options
from racecar_lab.cli.perform import do
from racecar_lab.cli.request import folder_of, numbers, read
from racecar_lab.cli.tuned import is_set, read_tuned

if TYPE_CHECKING:
    from racecar_lab.cli.request import Request
    from racecar_lab.running.job import Job
    from racecar_lab.running.results import Store


@with_options
def search(name: Name, options: CommandOptions, out: Out = None, tuned: Tuned = None, lr: Rates = "") -> None:
    """Choose learning rate and λ of every variant on held-out training data, with one budget for all."""
    from dataclasses import replace

    from racecar.support.files import check_folder, write_json
    from racecar_lab.running.results import Store
    from racecar_lab.running.search import best, jobs_of, trained, trials

    request = read(name, options)
    experiment, config, variants = request.experiment, request.config, request.variants
    if experiment.search is None:
        raise ValueError(f"experiment {experiment.name!r} has no search")
    for field in experiment.search.chosen:
        if is_set(options.settings, field):
            raise ValueError(f"--set {field}: the search chooses it")
    bases = _earlier_choice(request, tuned, lr, options)
    if is_set(options.settings, "valid") and not config.valid:
        raise ValueError("--set valid=0: the search needs training data that it holds out")
    space = experiment.search_for(config) or experiment.search
    config = replace(config, valid=config.valid or space.valid)
    # every variant gets as many settings as the one with the most λs has, also if that one is not run; where
    # the user names λs, only variants that are run count
    weights = {
        variant: values for variant, values in space.weights.items() if not request.weights or variant in variants
    }
    space = replace(
        space,
        seeds=options.seeds or space.seeds,
        first_seed=space.first_seed if options.first is None else options.first,
        lrs={**space.lrs, **({config.optimiser: _rates(lr)} if lr else {})},
        weights={**weights, **request.weights},
    )
    jobs = trials(experiment, space, config, variants, options.data, bases)
    folder = folder_of(out, experiment.name, "search", "quick" if options.quick else "")
    if is_rank_zero():
        check_folder(folder, "--out")
    new, chosen = jobs, dict[str, dict[str, Any]]()
    while new:  # until no best setting lies at an edge that the search can extend
        do(list(dict.fromkeys(trained(new).values())), folder, replace(options, resume=True), quiet=True)
        if not is_rank_zero() or options.budget:
            return
        _refuse_unmeasured(jobs, Store(folder), space.metric)
        chosen = best(jobs, Store(folder), space)
        candidates = {variant: space.beyond(choice) for variant, choice in chosen.items()}
        new = jobs_of(experiment, space, config, candidates, options.data)
        jobs = [*jobs, *new]
    all_stages = list(dict.fromkeys(stage.name for job in jobs for stage in job.stages))
    write_json(
        folder / "tuned.json",
        {
            "command": command(),
            "experiment": experiment.name,
            "config": jobs[0].base.to_dict(),
            "metric": space.judged_by,
            "stages": all_stages if space.apart else list(space.stages),
            "seeds": space.seeds,
            "variants": chosen,
        },
    )
    for variant, by_cluster in chosen.items():
        for cluster, by_stage in by_cluster.get("each", {"": by_cluster}).items():
            for stage, choice in by_stage.get("stages", {"": by_stage}).items():
                values = [f"{field} {choice[field]:.3g}" for field in (*space.chosen, "weight") if field in choice]
                fold = [f"{experiment.clusters.field} {cluster}"] if cluster and experiment.clusters else []
                label = ", ".join([variant, *fold, *([stage] if stage else [])])
                print(f"{label}: {', '.join(values)}, {space.metric} {choice['score']:.4g}")
                if choice["edge"]:
                    print(f"  {' and '.join(choice['edge'])}: a better one may lie beyond")
    print(folder / "tuned.json")


def _refuse_unmeasured(jobs: Sequence[Job], store: Store, metric: str) -> None:
    """Raise a ValueError if none of the finished runs has the metric that the search chooses by, for example because
    the experiment always measures on its test set."""
    runs = [store.get(id) for job in jobs for id in job.ids.values() if store.has(id)]
    measured = [run.record["metrics"] for run in runs if run.finished]
    if measured and not any(metric in metrics for metrics in measured):
        kind = type(jobs[0].experiment).__name__
        raise ValueError(f"{kind}.measure gave no {metric}, by which its search chooses: measure it on task.valid")


def _rates(text: str) -> tuple[float, ...]:
    """The learning rates in the text of ``--lr``."""
    rates = numbers(text, "--lr")
    if not all(0 < rate < float("inf") for rate in rates):
        raise ValueError(f"--lr {text}: learning rates must be greater than 0")
    return rates


def _earlier_choice(
    request: Request, tuned: Path | None, lr: str, options: CommandOptions
) -> Mapping[str, Mapping[str, Any]] | None:
    """Variant → the settings that the search of the experiment that this one builds on chose; None if it builds on
    none."""
    from racecar_lab.experiments import experiment as named

    earlier = request.experiment.builds_on
    if not earlier:
        if tuned is not None:
            raise ValueError("--tuned: this search chooses all by itself; it is `racecar run` that takes the file")
        return None
    if tuned is None:
        raise ValueError(
            f"learning rates and weights are taken as the search of {earlier} chose them: run `racecar search "
            f"{earlier}`, and give its file by --tuned"
        )
    for option, text in (("--weight", options.weight), ("--lr", lr)):
        if text:
            raise ValueError(f"{option}: the search of {earlier} chose them")
    return read_tuned(tuned, named(earlier), request.config, request.variants, options.settings or [])

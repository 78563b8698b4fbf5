"""``racecar search``: learning rate, coefficient and more of every variant, with one budget for all."""

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
    from racecar_lab.running.jobs import Job
    from racecar_lab.running.results import Store


@with_options
def search(name: Name, options: CommandOptions, out: Out = None, tuned: Tuned = None, lr: Rates = "") -> None:
    """Choose learning rate and coefficient of every variant on held-out training data, with one budget for all."""
    from dataclasses import replace

    from racecar.support.files import check_folder, write_json
    from racecar_lab.running.results import Store
    from racecar_lab.running.search import best, jobs_of, trained, trials

    asked = read(name, options)
    one, config, variants = asked.experiment, asked.config, asked.variants
    if one.search is None:
        raise ValueError(f"experiment {one.name!r} has no search")
    for field in one.search.chosen:
        if is_set(options.settings, field):
            raise ValueError(f"--set {field}: the search chooses it")
    given = _given(asked, tuned, lr, options)
    if is_set(options.settings, "valid") and not config.valid:
        raise ValueError("--set valid=0: the search needs training data that it holds out")
    space = one.search_for(config) or one.search
    config = replace(config, valid=config.valid or space.valid)
    # those of variants that are not run say how many settings each has, unless the user says it
    others = {name: some for name, some in space.coefficients.items() if not asked.coefficients or name in variants}
    what = replace(
        space,
        seeds=options.seeds or space.seeds,
        first_seed=space.first_seed if options.first is None else options.first,
        lrs={**space.lrs, **({config.optimiser: _rates(lr)} if lr else {})},
        coefficients={**others, **asked.coefficients},
    )
    jobs = trials(one, what, config, variants, options.data, given)
    folder = folder_of(out, one.name, "search", "quick" if options.quick else "")
    if is_rank_zero():
        check_folder(folder, "--out")
    new, chosen = jobs, dict[str, dict[str, Any]]()
    while new:  # for as long as the best lies at an edge beyond which the search goes on
        do(list(dict.fromkeys(trained(new).values())), folder, replace(options, resume=True), quiet=True)
        if not is_rank_zero() or options.budget:
            return
        _refuse_unmeasured(jobs, Store(folder), what.metric)
        chosen = best(jobs, Store(folder), what)
        new = jobs_of(one, what, config, {which: what.beyond(found) for which, found in chosen.items()}, options.data)
        jobs = [*jobs, *new]
    write_json(
        folder / "tuned.json",
        {
            "command": command(),
            "experiment": one.name,
            "config": jobs[0].base.to_dict(),
            "metric": what.judged_by,
            "stages": list(dict.fromkeys(stage.name for job in jobs for stage in job.stages))
            if what.apart
            else list(what.stages),
            "seeds": what.seeds,
            "variants": chosen,
        },
    )
    for which, whole in chosen.items():
        for part, several in whole.get("each", {"": whole}).items():
            for stage, found in several.get("stages", {"": several}).items():
                said = [f"{field} {found[field]:.3g}" for field in (*what.chosen, "coefficient") if field in found]
                where = [f"{one.clusters.field} {part}"] if part and one.clusters else []
                own = ", ".join([which, *where, *([stage] if stage else [])])
                print(f"{own}: {', '.join(said)}, {what.metric} {found['score']:.4g}")
                if found["edge"]:
                    print(f"  {' and '.join(found['edge'])}: a better one may lie beyond")
    print(folder / "tuned.json")


def _refuse_unmeasured(jobs: Sequence[Job], store: Store, metric: str) -> None:
    """Raise if no finished run has the metric that the search chooses by, as where an experiment always measures on its
    test set."""
    runs = [store.get(id) for job in jobs for id in job.ids.values() if store.has(id)]
    measured = [run.record["metrics"] for run in runs if run.finished]
    if measured and not any(metric in metrics for metrics in measured):
        kind = type(jobs[0].experiment).__name__
        raise ValueError(f"{kind}.measure gave no {metric}, by which its search chooses: measure it on task.valid")


def _rates(text: str) -> tuple[float, ...]:
    """Learning rates to try."""
    rates = numbers(text, "--lr")
    if not all(0 < rate < float("inf") for rate in rates):
        raise ValueError(f"--lr {text}: learning rates must be greater than 0")
    return rates


def _given(
    asked: Request, tuned: Path | None, lr: str, options: CommandOptions
) -> Mapping[str, Mapping[str, Any]] | None:
    """What another search chose that comes before this one; None, if there is none."""
    from racecar_lab.experiments import experiment

    first = asked.experiment.builds_on
    if not first:
        if tuned is not None:
            raise ValueError("--tuned: this search chooses all by itself; it is `racecar run` that takes the file")
        return None
    if tuned is None:
        raise ValueError(
            f"learning rates and coefficients are taken as the search of {first} chose them: run `racecar search "
            f"{first}`, and give its file by --tuned"
        )
    for option, text in (("--coefficient", options.coefficient), ("--lr", lr)):
        if text:
            raise ValueError(f"{option}: the search of {first} chose them")
    return read_tuned(tuned, experiment(first), asked.config, asked.variants, options.settings or [])

"""``racecar run`` and ``racecar sweep``: an experiment once, or once for each value of a setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from racecar_lab.cli.options import CommandOptions, Name, Out, Over, Tuned, with_options
from racecar_lab.cli.perform import do
from racecar_lab.cli.request import Request, folder_of, read, split

if TYPE_CHECKING:
    from racecar_lab.config import Config


@with_options
def run_experiment(name: Name, options: CommandOptions, out: Out = None, tuned: Tuned = None) -> None:
    """Run an experiment: every variant, every seed, every stage. What is there already is skipped."""
    request = read(name, options)
    _run(request, [request.config], options, out, tuned)


@with_options
def sweep(name: Name, over: Over, options: CommandOptions, out: Out = None, tuned: Tuned = None) -> None:
    """Run an experiment once for each value of a setting; "weight" is λ of every regulariser."""
    from racecar_lab.config import override, parse

    request = read(name, options)
    field, _, text = over.partition("=")
    values = split(text)
    if not values:
        raise ValueError(f"--over {over!r}: write FIELD=a,b,c, for example weight=1e-3,1e-2,1e-1")
    if field != "weight":
        configs = [override(request.config, [f"{field}={value}"]) for value in values]
        _run(request, configs, options, out, tuned, over)
        return
    kinds = {name: request.experiment.variant(name).kind for name in request.variants}
    swept = [name for name, kind in kinds.items() if kind in ("reverse", "orthogonality", "decay")]
    if not swept:
        raise ValueError(f"--over {over!r}: none of {', '.join(request.variants)} has a weight")
    if repeated := [name for name in swept if name in request.weights]:
        raise ValueError(f"--over {over!r} and --weight both set that of {repeated[0]}: leave one of them out")
    weights = dict.fromkeys(swept, tuple(parse(value, float, field) for value in values))
    request = replace(request, weights={**request.weights, **weights})
    _run(request, [request.config], options, out, tuned, over)


def _run(
    request: Request,
    configs: Sequence[Config],
    options: CommandOptions,
    out: Path | None,
    tuned: Path | None,
    over: str = "",
) -> None:
    """Do the jobs of all configurations; ``over`` is the setting that is swept, if there is one."""
    from racecar_lab.running.jobs import make_jobs, refuse_too_many

    chosen = request.tuned(tuned, [*(options.settings or []), over])
    purpose, jobs = "quick" if options.quick else "", []
    for config in configs:
        jobs += make_jobs(
            request.experiment,
            config,
            request.variants,
            request.seeds,
            folder=options.data,
            weights=request.weights,
            tuned=chosen,
            purpose=purpose,
        )
        refuse_too_many(jobs)
    do(jobs, folder_of(out, request.experiment.name, jobs[0].purpose if jobs else purpose), options)

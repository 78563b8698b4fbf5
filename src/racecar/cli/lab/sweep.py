"""``racecar sweep``: an experiment once for each value of a setting."""

from __future__ import annotations

from racecar.cli.lab import options
from racecar.cli.lab.settings import config_of, folder_of, seeds_of, tuned_of, variants_of
from racecar.cli.lab.work import How, do
from racecar.lab.running.engines.processes import warm_up


def sweep(
    name: options.Name,
    over: options.Over,
    variants: options.Variants = "",
    seeds: options.Seeds = 0,
    first: options.First = 0,
    engine: options.Engine = "here",
    device: options.Device = "cpu",
    data: options.Data = None,
    out: options.Out = None,
    resume: options.Resume = False,
    quick: options.Quick = False,
    settings: options.Set = None,
    tuned: options.Tuned = None,
    workers: options.Workers = 0,
    compile_step: options.Compile = False,
    every: options.Every = 60.0,
    address: options.Address = None,
) -> None:
    """Run an experiment once for each value of a setting; "weight" is the coefficient of every regulariser."""
    warm_up(engine, device, workers)
    from racecar.lab.config import override, parse
    from racecar.lab.experiments import experiment
    from racecar.lab.running.jobs import make_jobs, refuse_too_many
    from racecar.lab.training.variants import variant

    one = experiment(name)
    config, chosen = config_of(one, quick, settings), variants_of(one, variants)
    field, equals, text = over.partition("=")
    values = [value.strip() for value in text.split(",") if value.strip()]
    if not equals or not values:
        raise ValueError(f"--over {over!r}: write FIELD=a,b,c, for example weight=1e-3,1e-2,1e-1")
    some, found = (
        seeds_of(one, quick, seeds, first),
        tuned_of(tuned, one, config, chosen, [*(settings or []), over]),
    )
    purpose = "quick" if quick else ""
    if field in ("weight", "coefficient"):
        numbers = tuple(parse(value, float, field) for value in values)
        given = {which: numbers for which in chosen if variant(which).kind in ("reverse", "orthogonality", "decay")}
        if not given:
            raise ValueError(f"--over {over!r}: none of {', '.join(chosen)} has a weight")
        jobs = make_jobs(one, config, chosen, some, data, given, found, purpose)
    else:
        jobs = []
        for value in values:
            changed = override(config, [f"{field}={value}"])
            jobs += make_jobs(one, changed, chosen, some, data, tuned=found, purpose=purpose)
            refuse_too_many(jobs)
    do(jobs, folder_of(out, name, purpose), How(engine, device, workers, address, resume, compile_step, every))

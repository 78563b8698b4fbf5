"""``racecar sweep``: an experiment once for each value of a setting."""

from __future__ import annotations

from racecar_lab.cli.options import CommandOptions, Name, Out, Over, Tuned, with_options
from racecar_lab.cli.perform import do
from racecar_lab.cli.settings import coefficients_of, config_of, folder_of, seeds_of, tuned_of, variants_of
from racecar_lab.running.engines.processes import warm_up


@with_options
def sweep(name: Name, over: Over, options: CommandOptions, out: Out = None, tuned: Tuned = None) -> None:
    """Run an experiment once for each value of a setting; "weight" is the coefficient of every regulariser."""
    warm_up(options.engine, options.device, options.workers)
    from racecar_lab.config import override, parse
    from racecar_lab.experiments import experiment
    from racecar_lab.running.jobs import make_jobs, refuse_too_many

    one = experiment(name)
    config, chosen = config_of(one, options), variants_of(one, options)
    field, equals, text = over.partition("=")
    values = [value.strip() for value in text.split(",") if value.strip()]
    if not equals or not values:
        raise ValueError(f"--over {over!r}: write FIELD=a,b,c, for example weight=1e-3,1e-2,1e-1")
    some, given = seeds_of(one, options), coefficients_of(one, options, chosen)
    found = tuned_of(tuned, one, config, chosen, [*(options.settings or []), over])
    purpose = "quick" if options.quick else ""
    configs = [config]
    if field in ("weight", "coefficient"):
        numbers = tuple(parse(value, float, field) for value in values)
        swept = [which for which in chosen if one.variant(which).kind in ("reverse", "orthogonality", "decay")]
        if not swept:
            raise ValueError(f"--over {over!r}: none of {', '.join(chosen)} has a weight")
        if twice := [which for which in swept if which in given]:
            raise ValueError(f"--over {over!r} and --coefficient both say that of {twice[0]}: leave one of them out")
        given |= dict.fromkeys(swept, numbers)
    else:
        configs = [override(config, [f"{field}={value}"]) for value in values]
    jobs = []
    for changed in configs:
        jobs += make_jobs(one, changed, chosen, some, options.data, given, found, purpose)
        refuse_too_many(jobs)
    do(jobs, folder_of(out, name, jobs[0].purpose if jobs else purpose), options)

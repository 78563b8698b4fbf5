"""``racecar search``: learning rate and coefficient of every variant, with one budget for all."""

from __future__ import annotations

from racecar.cli.console import command
from racecar.cli.lab import options
from racecar.cli.lab.settings import config_of, folder_of, seeds_of, sets, variants_of
from racecar.cli.lab.work import How, do, speaks
from racecar.lab.running.engines.processes import warm_up


def search(
    name: options.Name,
    variants: options.Variants = "",
    seeds: options.Seeds = 0,
    engine: options.Engine = "here",
    device: options.Device = "cpu",
    data: options.Data = None,
    out: options.SearchOut = None,
    quick: options.Quick = False,
    settings: options.Set = None,
    workers: options.Workers = 0,
    address: options.Address = None,
    graphs: options.Graphs = False,
) -> None:
    """Choose learning rate and coefficient of every variant on held-out training data, with one budget for all."""
    warm_up(engine, device, workers)
    from dataclasses import replace

    from racecar.lab.experiments import experiment
    from racecar.lab.running.results import Store
    from racecar.lab.running.search import best, trials
    from racecar.support.files import check_folder, write_json

    one = experiment(name)
    if one.search is None:
        raise ValueError(f"experiment {name!r} has no search")
    if sets(settings or [], "lr"):
        raise ValueError("--set lr: the search chooses the learning rate")
    config = config_of(one, quick, settings)
    if sets(settings or [], "valid") and not config.valid:
        raise ValueError("--set valid=0: the search needs training data that it holds out")
    config = replace(config, valid=config.valid or one.search.valid)
    what = replace(one.search, seeds=len(seeds_of(one, quick, seeds or one.search.seeds, 0)))
    jobs = trials(one, what, config, variants_of(one, variants), data)
    folder = folder_of(out, name, "search", "quick" if quick else "")
    if speaks():
        check_folder(folder, "--out")
    do(jobs, folder, How(engine, device, workers, address, graphs=graphs), quiet=True)
    if not speaks():
        return
    chosen = best(jobs, Store(folder), what)
    write_json(
        folder / "tuned.json",
        {
            "command": command(),
            "experiment": name,
            "config": jobs[0].base.to_dict(),
            "metric": what.metric,
            "stages": list(what.stages),
            "seeds": what.seeds,
            "variants": chosen,
        },
    )
    for which, found in chosen.items():
        coefficient = f", coefficient {found['coefficient']:g}" if "coefficient" in found else ""
        print(f"{which}: lr {found['lr']:.3g}{coefficient}, {what.metric} {found['score']:.4f}")
        if found["edge"]:
            print(f"  {' and '.join(found['edge'])}: a better one may lie beyond")
    print(folder / "tuned.json")

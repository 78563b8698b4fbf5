"""The table that a run ends with: what was measured, what its columns mean, and the verdict."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from statistics import mean, stdev
from typing import TYPE_CHECKING

from racecar.support.table import table

if TYPE_CHECKING:
    from racecar_lab.report.groups import Setting
    from racecar_lab.running.jobs import Job
    from racecar_lab.running.results import Store
    from racecar_lab.running.run import Run

WIDTH = 100
"""Columns that a screen has at least."""
LONG = 24
"""Settings that are longer get a number in the table, and stand above it."""

Key = tuple[str, ...]


def summary(jobs: Sequence[Job], store: Store) -> str:
    """Mean ± sd of every metric over the seeds, the coefficient as pages print it; or what an experiment of many
    settings says of itself."""
    from racecar_lab.report.groups import collect, telling

    found, _ = store.read()  # what cannot be read is the failure of its job
    known = {run.id: run for run in found if jobs and run.purpose == jobs[0].purpose}
    if jobs and jobs[0].experiment.tells:
        notes, _ = jobs[0].experiment.told(list(known.values()))
        return "\n".join(notes)
    told = telling([job.base.to_dict() for job in jobs], _clusters(jobs))
    settings = dict(zip(jobs, map(_written, told), strict=True))
    runs: dict[Key, list[Run]] = collect(
        ((settings[job], stage.name, job.variant, _coefficient(job), _tuned(job)), run)
        for job in jobs
        for stage in job.stages
        if (run := known.get(job.ids[stage.name])) is not None
    )
    legend: list[str] = []
    texts = list(dict.fromkeys(key[0] for key in runs))
    if max(map(len, texts), default=0) > LONG:
        legend = [f"settings {i}: {text}" for i, text in enumerate(texts, 1)]
        runs = {(str(texts.index(key[0]) + 1), *key[1:]): some for key, some in runs.items()}
    words = [_title(jobs), *_data(jobs), *legend]
    after = [*_explained(jobs), *_verdict(jobs, [run for some in runs.values() for run in some])]
    return "\n".join([*map(_wrap, filter(None, words)), *_blocks(runs), *map(_wrap, after)])


def _wrap(text: str) -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent="  ")


def _written(setting: Setting) -> str:
    texts = {name: ",".join(map(str, one)) if isinstance(one, tuple) else str(one) for name, one in setting}
    return ", ".join(f"{name}={text}" for name, text in texts.items())


def _title(jobs: Sequence[Job]) -> str:
    """The experiment, and what was changed of its settings in all jobs."""
    from racecar_lab.config import changed, guides

    if not jobs:
        return ""
    from racecar_lab.report.groups import telling

    left_out = {*dict(telling([job.base.to_dict() for job in jobs])[0]), *guides(type(jobs[0].base))}
    same = _written(tuple(one for one in changed(jobs[0].base).items() if one[0] not in left_out))
    return jobs[0].experiment.title + (f": {same}" if same else "")


def _data(jobs: Sequence[Job]) -> list[str]:
    """What the data are, where they are not those of the paper."""
    return list(dict.fromkeys(f"data: {text}" for job in jobs if (text := job.experiment.told_data(job.config))))


def _clusters(jobs: Sequence[Job]) -> tuple[str, ...]:
    """The field that tells clusters, which are shown together."""
    clusters = jobs[0].experiment.clusters if jobs else None
    return () if clusters is None else (clusters.field,)


def _coefficient(job: Job) -> str:
    if job.tuned and _clusters([job]):
        return ""
    return "" if job.coefficient is None else f"{job.coefficient:g}"


def _tuned(job: Job) -> str:
    if job.tuned and (field := _clusters([job])):
        return f"for each {field[0]}"
    return ", ".join(f"{name} {value:.3g}" for name, value in job.tuned.items() if name != "coefficient")


def _blocks(groups: Mapping[Key, Sequence[Run]]) -> Iterator[str]:
    """The table, in as many parts as it takes to fit."""
    metrics = list(dict.fromkeys(metric for runs in groups.values() for run in runs for metric in run.metrics))
    heads = ["settings", "stage", "variant", "coefficient", "tuned", "runs"]
    rows = [[*key, _count(runs)] for key, runs in groups.items()]
    needed = [i for i, head in enumerate(heads) if head not in ("settings", "tuned") or any(row[i] for row in rows)]
    keys = [[one[i] for i in needed] for one in (heads, *rows)]
    columns = [[metric, *(_value(runs, metric) for runs in groups.values())] for metric in metrics]
    used = sum(max(map(len, column)) + 2 for column in zip(*keys, strict=True))
    parts: list[list[list[str]]] = [[]]
    left = WIDTH + 2 - used
    for column in columns:
        width = max(map(len, column)) + 2
        if parts[-1] and width > left:
            parts.append([])
            left = WIDTH + 2 - used
        parts[-1].append(column)
        left -= width
    for part in parts:
        head, *body = [[*key, *(column[i] for column in part)] for i, key in enumerate(keys)]
        yield table(head, body)
        yield ""


def _count(runs: Sequence[Run]) -> str:
    counts = {"diverged": sum(not run.finished for run in runs), "dead": sum(run.dead for run in runs)}
    lost = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    return f"{len(runs)}" + (f" ({lost})" if lost else "")


def _value(runs: Sequence[Run], metric: str) -> str:
    values = [run.metrics[metric] for run in runs if run.finished and metric in run.metrics]
    if not values:
        return "-"
    digits = ".2g" if 0 < abs(mean(values)) < 0.001 else ".3f"  # which would be no digit of a small error
    return f"{mean(values):{digits}}" + (f" ± {stdev(values):{digits}}" if len(values) > 1 else "")


def _explained(jobs: Sequence[Job]) -> list[str]:
    """What the columns are."""
    from racecar_lab.training.variants import variant

    stages = {stage.name: stage for job in jobs for stage in job.stages}
    meanings = {job.variant: variant(job.variant).meaning for job in jobs if variant(job.variant).meaning}
    of = ", ".join(f"{meaning} for {name}" for name, meaning in meanings.items())
    return [
        f"Mean ± standard deviation over the runs, one for each {' and '.join((*_clusters(jobs), 'seed'))}.",
        "stage: " + "; ".join(f"{name}, {stage.told}" for name, stage in stages.items()) + ".",
        *([f"coefficient: {of}."] if of else []),
        *(["tuned: what a search chose for the variant."] if any(_tuned(job) for job in jobs) else []),
    ]


def _verdict(jobs: Sequence[Job], runs: Sequence[Run]) -> list[str]:
    """Of these runs alone, as their page would have it; none where they are no evidence."""
    from racecar_lab.report.section import findings_of, tally
    from racecar_lab.report.verdicts import overall

    findings = findings_of(jobs[0].experiment, runs) if runs and not jobs[0].purpose else []
    return [f"verdict: {overall([one.verdict for one in findings])}; {tally(findings)}"] if findings else []

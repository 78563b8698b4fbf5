"""The text that is printed after a run: a table of the metrics, the meaning of its columns, and the verdict."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from statistics import mean, stdev
from typing import TYPE_CHECKING

from racecar.support.table import table

if TYPE_CHECKING:
    from racecar_lab.report.settings import Setting
    from racecar_lab.running.job import Job
    from racecar_lab.running.results import Store
    from racecar_lab.running.run import Run

WIDTH = 100
"""Maximal width of the text, in characters."""
LONG = 24
"""Maximal number of letters of a setting in the table. If one is longer, all are numbered and listed above the table,
which then shows the numbers."""

Key = tuple[str, ...]
"""Identity of a row of the table: settings, stage, variant, λ and tuned settings, as texts."""


def summary(jobs: Sequence[Job], store: Store) -> str:
    """The text that is printed after a run: a table with mean ± standard deviation of every metric over the seeds, and
    explanations; or the sentences of an experiment that writes them itself."""
    from racecar_lab.report.groups import collect
    from racecar_lab.report.settings import differing

    all_runs, _ = store.read()  # a record that cannot be read has made its job fail already
    known = {run.id: run for run in all_runs if jobs and run.purpose == jobs[0].purpose}
    if jobs and (sentences_and_tables := jobs[0].experiment.reporting.sentences_and_tables):
        sentences, _ = sentences_and_tables(list(known.values()))
        return "\n".join(sentences)
    distinct = differing([job.base.to_dict() for job in jobs], _clusters(jobs))
    settings = dict(zip(jobs, map(_setting_text, distinct), strict=True))
    runs: dict[Key, list[Run]] = collect(
        ((settings[job], stage.name, job.variant, _weight(job), _tuned(job)), run)
        for job in jobs
        for stage in job.stages
        if (run := known.get(job.ids[stage.name])) is not None
    )
    legend: list[str] = []
    texts = list(dict.fromkeys(key[0] for key in runs))
    if max(map(len, texts), default=0) > LONG:
        legend = [f"settings {i}: {text}" for i, text in enumerate(texts, 1)]
        runs = {(str(texts.index(key[0]) + 1), *key[1:]): group for key, group in runs.items()}
    above = [_title(jobs), *_data(jobs), *legend]
    below = [*_explanations(jobs), *_verdict(jobs, [run for group in runs.values() for run in group])]
    return "\n".join([*map(_wrap, filter(None, above)), *_blocks(runs), *map(_wrap, below)])


def _wrap(text: str) -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent="  ")


def _setting_text(setting: Setting) -> str:
    """A setting as text, such as "net=linear, sizes=784,2"."""
    texts = {name: ",".join(map(str, value)) if isinstance(value, tuple) else str(value) for name, value in setting}
    return ", ".join(f"{name}={text}" for name, text in texts.items())


def _title(jobs: Sequence[Job]) -> str:
    """The title of the experiment, with those settings that are the same in all jobs and not the defaults."""
    from racecar_lab.config import changed, guides

    if not jobs:
        return ""
    from racecar_lab.report.settings import differing

    left_out = {*dict(differing([job.base.to_dict() for job in jobs])[0]), *guides(type(jobs[0].base))}
    same = _setting_text(tuple(item for item in changed(jobs[0].base).items() if item[0] not in left_out))
    return jobs[0].experiment.title + (f": {same}" if same else "")


def _data(jobs: Sequence[Job]) -> list[str]:
    """Lines that say which data the jobs use, if they are not those of the paper."""
    texts = (job.experiment.reporting.describe_data(job.config) for job in jobs)
    return list(dict.fromkeys(f"data: {text}" for text in texts if text))


def _clusters(jobs: Sequence[Job]) -> tuple[str, ...]:
    """The name of the configuration field by which clusters, such as folds, differ; empty if there are none. The table
    shows all clusters in one row."""
    clusters = jobs[0].experiment.clusters if jobs else None
    return () if clusters is None else (clusters.field,)


def _weight(job: Job) -> str:
    """λ of a job as text; empty if it has none, or if a search chose one for each cluster."""
    if job.tuned and _clusters([job]):
        return ""
    return "" if job.weight is None else f"{job.weight:g}"


def _tuned(job: Job) -> str:
    """The settings that a search chose for a job, without λ, as text; "for each …" if it chose for each cluster."""
    if job.tuned and (field := _clusters([job])):
        return f"for each {field[0]}"
    return ", ".join(f"{name} {value:.3g}" for name, value in job.tuned.items() if name != "weight")


def _blocks(groups: Mapping[Key, Sequence[Run]]) -> Iterator[str]:
    """The table, divided by columns into as many parts as the width of the text needs; each is followed by an empty
    line."""
    metrics = list(dict.fromkeys(metric for runs in groups.values() for run in runs for metric in run.metrics))
    heads = ["settings", "stage", "variant", "weight", "tuned", "runs"]
    rows = [[*key, _count(runs)] for key, runs in groups.items()]
    needed = [i for i, head in enumerate(heads) if head not in ("settings", "tuned") or any(row[i] for row in rows)]
    keys = [[row[i] for i in needed] for row in (heads, *rows)]
    columns = [[metric, *(_value(runs, metric) for runs in groups.values())] for metric in metrics]
    used = sum(max(map(len, column)) + 2 for column in zip(*keys, strict=True))
    parts: list[list[list[str]]] = [[]]
    free = WIDTH + 2 - used
    for column in columns:
        width = max(map(len, column)) + 2
        if parts[-1] and width > free:
            parts.append([])
            free = WIDTH + 2 - used
        parts[-1].append(column)
        free -= width
    for part in parts:
        head, *body = [[*key, *(column[i] for column in part)] for i, key in enumerate(keys)]
        yield table(head, body)
        yield ""


def _count(runs: Sequence[Run]) -> str:
    """The number of runs, as "5 (1 diverged)"."""
    counts = {"diverged": sum(not run.finished for run in runs), "dead": sum(run.dead for run in runs)}
    failed = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    return f"{len(runs)}" + (f" ({failed})" if failed else "")


def _value(runs: Sequence[Run], metric: str) -> str:
    """Mean ± standard deviation of a metric over the finished runs, as text; "-" if none has it."""
    values = [run.metrics[metric] for run in runs if run.finished and metric in run.metrics]
    if not values:
        return "-"
    digits = ".2g" if 0 < abs(mean(values)) < 0.001 else ".3f"  # .3f would show no digit of a small error
    return f"{mean(values):{digits}}" + (f" ± {stdev(values):{digits}}" if len(values) > 1 else "")


def _explanations(jobs: Sequence[Job]) -> list[str]:
    """Lines below the table that explain its columns."""
    stages = {stage.name: stage for job in jobs for stage in job.stages}
    variants = [job.experiment.variant(job.variant) for job in jobs]
    meanings = {variant.name: variant.meaning for variant in variants if variant.meaning}
    weights = ", ".join(f"{meaning} for {name}" for name, meaning in meanings.items())
    return [
        f"Mean ± standard deviation over the runs, one for each {' and '.join((*_clusters(jobs), 'seed'))}.",
        "stage: " + "; ".join(f"{name}, {stage.description}" for name, stage in stages.items()) + ".",
        *([f"weight: {weights}."] if weights else []),
        *(["tuned: what a search chose for the variant."] if any(_tuned(job) for job in jobs) else []),
    ]


def _verdict(jobs: Sequence[Job], runs: Sequence[Run]) -> list[str]:
    """A line with the verdict on the experiment's claims by these runs alone, as on their page; none if they are no
    evidence."""
    from racecar_lab.report.claim_words import tally
    from racecar_lab.report.section import findings_of
    from racecar_lab.report.verdicts import overall

    findings = findings_of(jobs[0].experiment, runs) if runs and not jobs[0].purpose else []
    return [f"verdict: {overall([finding.verdict for finding in findings])}; {tally(findings)}"] if findings else []

"""Texts of a page on how its runs were made: commands, versions, machines, settings, and the notes in records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from racecar_lab.report import words
from racecar_lab.report.groups import Group, collect
from racecar_lab.report.settings import label, plain
from racecar_lab.running.run import Run


def commands(runs: Sequence[Run]) -> list[str]:
    """Command lines that made these runs or, for runs that had been made before, asked for them under another setting;
    each once."""
    makers = (run.record["made"] for run in runs)
    lines = (str(maker.get("asked_by") or maker.get("command") or "") for maker in makers)
    return list(dict.fromkeys(filter(None, lines)))


def facts(runs: Sequence[Run], groups: Sequence[Group]) -> dict[str, str]:
    """Name → text on how runs were made: number of stages, time, device, versions and common settings. A run that two
    settings share is counted once, as it was trained."""
    runs = list({run.id: run for run in runs}.values())

    def all_of(name: str) -> str:
        counts = Counter(str(run.record["made"].get(name) or "") for run in runs)
        del counts[""]
        several = len(counts) > 1
        return ", ".join(f"{value} ({words.count(n, 'stage')})" if several else value for value, n in counts.items())

    finished = sorted(str(end) for run in runs if (end := run.record["made"].get("finished")))
    seconds = sum(run.record["cost"].get("wall_s") or 0.0 for run in runs)
    varying = _varying(groups)
    config = groups[0].config if groups else {}
    values = {
        "stages": str(len(runs)),
        "time": words.seconds(seconds) if seconds else "",
        "finished": " to ".join(dict.fromkeys((*finished[:1], *finished[-1:]))),
        **{name: all_of(name) for name in ("device", "engine", "racecar", "commit", "torch", "python")},
        "settings": label(tuple((name, plain(value)) for name, value in config.items() if name not in varying)),
    }
    return {name: text for name, text in values.items() if text}


def notes(runs: Sequence[Run], groups: Sequence[Group]) -> list[str]:
    """Sentences for the page: how many records were left out because newer ones replace them, and the notes in the
    records of runs. If a stage repeats the note of the one before, it is left out."""
    texts = []
    if replaced := len(runs) - sum(len(group.all_runs) for group in groups):
        texts.append(
            f"{words.count(replaced, 'record')} left out: a newer one has the same setting, stage, variant, λ and seed."
        )
    newest = [run for group in groups for run in group.all_runs.values()]
    diverged = [run for run in newest if not run.finished]
    noted = {run.id: run for run in newest if run.finished and run.record.get("note")}
    varying = _varying(groups)
    for what, members in (("Diverged", diverged), ("Finished, but", list(noted.values()))):
        ids = {run.id for run in members}
        first = [run for run in members if run.record.get("parent") not in ids]
        for text, seeds in collect((_note(run, varying), run.seed) for run in first).items():
            texts.append(f"{what}: {text} (seed {', '.join(map(str, sorted(set(seeds))))}).")
    return texts


def _varying(groups: Sequence[Group]) -> set[str]:
    """Names of the configuration fields that are not the same in all runs; the field of the clusters is one of them."""
    settings = {name for group in groups for name, _ in group.setting}
    return settings | {group.clusters.field for group in groups if group.clusters is not None}


def _note(run: Run, varying: set[str]) -> str:
    """A run and its note as a text, such as "RR (0.1), A, net = linear: the loss was not finite"."""
    whose = run.variant if run.weight is None else f"{run.variant} ({words.number(run.weight)})"
    setting = tuple((name, plain(value)) for name, value in run.config.items() if name in varying)
    parts = ", ".join(filter(None, (whose, run.stage, label(setting))))
    return f"{parts}: {run.record.get('note') or 'no reason given'}"

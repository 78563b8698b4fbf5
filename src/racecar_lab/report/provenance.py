"""How records were made, and what is noted of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from racecar_lab.report import words
from racecar_lab.report.groups import Groups, collect, label
from racecar_lab.running.run import Run


def commands(runs: Sequence[Run]) -> list[str]:
    """Command lines that made these runs, or that asked for them when they were there."""
    makers = (run.record["made"] for run in runs)
    return list(dict.fromkeys(filter(None, (str(how.get("asked_by") or how.get("command") or "") for how in makers))))


def facts(runs: Sequence[Run], groups: Groups) -> dict[str, str]:
    """How the records were made: versions, machines, settings. A run that two settings share was trained once."""
    runs = list({run.id: run for run in runs}.values())

    def all_of(name: str) -> str:
        counts = Counter(str(run.record["made"].get(name) or "") for run in runs)
        del counts[""]
        several = len(counts) > 1
        return ", ".join(f"{value} ({words.count(n, 'stage')})" if several else value for value, n in counts.items())

    finished = sorted(str(end) for run in runs if (end := run.record["made"].get("finished")))
    seconds = sum(run.record["cost"].get("wall_s") or 0.0 for run in runs)
    values = {
        "stages": str(len(runs)),
        "time": words.seconds(seconds) if seconds else "",
        "finished": " to ".join(dict.fromkeys((*finished[:1], *finished[-1:]))),
        **{name: all_of(name) for name in ("device", "engine", "racecar", "commit", "torch", "python")},
        "settings": label(tuple(groups.common.items())),
    }
    return {name: text for name, text in values.items() if text}


def notes(groups: Groups) -> list[str]:
    """Records that were left out, and what is noted of runs: a later stage only repeats it of the one before."""
    texts = []
    if groups.left_out:
        texts.append(
            f"{words.count(groups.left_out, 'record')} left out: a newer one has the same setting, stage, variant, "
            "λ and seed."
        )
    finished = {run.id: run for run in groups.runs if run.record.get("note")}
    for what, runs in (("Diverged", groups.diverged), ("Finished, but", list(finished.values()))):
        ids = {run.id for run in runs}
        first = [run for run in runs if run.record.get("parent") not in ids]
        for text, seeds in collect((_noted(run, groups), run.seed) for run in first).items():
            texts.append(f"{what}: {text} (seed {', '.join(map(str, sorted(set(seeds))))}).")
    return texts


def _noted(run: Run, groups: Groups) -> str:
    """As "RR (0.1), A, net = linear: the loss was not finite"."""
    whose = run.variant if run.weight is None else f"{run.variant} ({words.number(run.weight)})"
    which = ", ".join(filter(None, (whose, run.stage, label(groups.setting(run)))))
    return f"{which}: {run.record.get('note') or 'no reason given'}"

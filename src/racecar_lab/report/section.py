"""One experiment on the page: its verdict, tables, figures, and how it was made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from racecar_lab.experiment import Experiment, Incomplete, Stage
from racecar_lab.report import words
from racecar_lab.report.about import about
from racecar_lab.report.claim_tables import claims_table, unjudged_table
from racecar_lab.report.claims import claims_of, judge
from racecar_lab.report.findings import Finding
from racecar_lab.report.forest import forest
from racecar_lab.report.forest import title as forest_title
from racecar_lab.report.gallery import common_figures, draw, draw_common, main_and_more, own_pictures
from racecar_lab.report.glossary import glossary
from racecar_lab.report.groups import Groups, collect, gather, label, printed_value
from racecar_lab.report.page_table import Table
from racecar_lab.report.pictures import Picture
from racecar_lab.report.restate import config_of, restated, times
from racecar_lab.report.result_tables import cost_table, inner_tables, results_table
from racecar_lab.report.told import judged, sentence
from racecar_lab.report.verdicts import VERDICTS, overall
from racecar_lab.running.record import PURPOSES
from racecar_lab.running.run import Run

MOST = 6
"""Figures beside the forest that Markdown, which is a summary, shows."""


@dataclass(frozen=True, eq=False)
class Section:
    """All that the page says of an experiment."""

    name: str
    anchor: str
    title: str
    place: str
    """In the paper."""
    summary: str
    about: Mapping[str, str]
    """The loss, the first weights, what a step costs; said before the figures."""
    mark: str
    """What its runs are if they are no evidence; empty if they are."""
    findings: Sequence[Finding]
    finding: str
    """What was found, in one sentence."""
    forest: Sequence[Picture]
    """One picture of all claims that were judged; none if none was."""
    wide_forest: Sequence[Picture]
    """The same as a desktop shows it."""
    opening: Sequence[Table]
    """The experiment's own, of the paper and ours, beside the forest."""
    tables: Sequence[Table]
    more: Sequence[Table]
    """Long ones, folded away at first."""
    figures: Sequence[Picture]
    """The main ones, which Markdown shows, too: the experiment's own, or every run if it has none."""
    more_figures: Sequence[Picture]
    commands: Sequence[str]
    glossary: Mapping[str, str]
    """Variants, stages and metrics, with what they are."""
    facts: Mapping[str, str]
    notes: Sequence[str]
    problem: str
    """What went wrong while it was made; empty if nothing."""

    @property
    def shown(self) -> list[Picture]:
        """What Markdown shows."""
        return [*self.forest, *self.figures[:MOST]]

    @property
    def folded(self) -> dict[str, dict[str, list[Picture]]]:
        """Kind of figure → setting → the figures that are folded away at first."""
        kinds = collect((one.place[0], one) for one in self.more_figures)
        return {kind: collect((one.place[1], one) for one in some) for kind, some in kinds.items()}

    @property
    def verdict(self) -> str:
        """Of all claims together; empty if there are none."""
        return overall([found.verdict for found in self.findings]) if self.findings else ""

    @property
    def outcomes(self) -> list[tuple[str, str, str]]:
        """Of each configuration: what tells it from the others, its verdict, and how many claims became what."""
        families = collect((found.family, found) for found in self.findings)
        return [(str(one), overall([found.verdict for found in some]), tally(some)) for one, some in families.items()]


def tally(findings: Sequence[Finding]) -> str:
    """As "3 claims: 2 × supported, 1 × too few runs"."""
    counts = Counter(found.verdict for found in findings)
    said = ", ".join(f"{counts[name]} × {name}" for name in VERDICTS if counts[name])
    return f"{words.count(len(findings), 'claim')}: {said}"


def section(name: str, anchor: str, runs: Sequence[Run], experiment: Experiment | None, purpose: str = "") -> Section:
    """Judge and draw the runs of an experiment.

    Args:
        name: of the experiment.
        anchor: unlike that of every other section.
        runs: all of the experiment, diverged ones too.
        experiment: what it claims; None if nobody knows it, then nothing is claimed.
        purpose: what the runs were made for; nothing is judged by those that are no evidence.
    """
    shown = runs if experiment is None else [restated(run, experiment) for run in runs]
    groups = gather(shown, None if experiment is None else experiment.clusters)
    if experiment is not None and experiment.tells:
        return _told(experiment, anchor, runs, groups, purpose)
    claims = [] if experiment is None else claims_of(experiment.claims, groups)
    paper = () if experiment is None else experiment.paper
    named = {metric for one in claims for metric in one.metrics} | {one.metric for one in paper}
    if purpose:
        paper = ()
    findings = [] if purpose or experiment is None else _judged(experiment, groups)
    seen = dict.fromkeys((run.stage, metric) for run in groups.runs for metric in run.metrics)
    measured = [one for metric in dict.fromkeys(metric for _, metric in seen) for one in seen if one[1] == metric]
    main = [(stage, metric) for stage, metric in measured if metric in named] or measured
    rest = [one for one in measured if one not in main]
    printed = {
        (group, metric): value.value
        for metric in named
        for group in groups.groups
        if (value := printed_value(paper, group, metric)) is not None
    }
    own, problem = own_pictures(experiment, groups.runs, anchor)
    some = judged(findings)
    narrow, wide = (
        draw({forest_title(some): forest(some, wide)} if some else {}, f"{anchor}-claims{'-wide' * wide}")
        for wide in (False, True)
    )
    shared = common_figures(groups, main, printed, findings, experiment.shows_runs if own and experiment else ())
    figures, more_figures = main_and_more(own, draw_common(shared, anchor))
    beside = None if purpose or experiment is None else experiment.beside_paper(groups.runs)
    caption = "Paper and ours" if paper and beside is None else "Results"
    tables = [results_table(caption, groups, main, paper)]
    return Section(
        name=name,
        anchor=anchor,
        title=name if experiment is None else experiment.title,
        place="" if experiment is None else experiment.section,
        summary="" if experiment is None else experiment.summary,
        about=about(groups, experiment),
        mark=PURPOSES[purpose],
        findings=findings,
        finding=sentence(findings),
        forest=narrow,
        wide_forest=wide,
        opening=[] if beside is None else [beside],
        tables=tables,
        more=[
            claims_table(findings),
            unjudged_table(findings),
            *([results_table("All that was measured besides", groups, rest)] if rest else []),
            *inner_tables(groups),
            cost_table(groups),
        ],
        figures=figures,
        more_figures=more_figures,
        commands=_commands(runs),
        glossary=glossary(groups, _stages(groups, experiment), experiment is not None and experiment.joins),
        facts=_facts(runs, groups),
        notes=[*_notes(name, groups, experiment), *_conversions(runs, experiment)],
        problem=problem,
    )


def findings_of(experiment: Experiment, runs: Sequence[Run]) -> list[Finding]:
    """What becomes of an experiment's claims in some runs."""
    return _judged(experiment, gather([restated(run, experiment) for run in runs], experiment.clusters))


def _judged(experiment: Experiment, groups: Groups) -> list[Finding]:
    return judge(
        experiment.claims, groups, lambda config, variant: _usual(experiment, config, variant), experiment.paper
    )


def _told(experiment: Experiment, anchor: str, runs: Sequence[Run], groups: Groups, purpose: str) -> Section:
    """What an experiment of many settings says of itself."""
    newest = [*groups.runs, *groups.diverged]
    own, problem = own_pictures(experiment, newest, anchor)
    notes, tables = experiment.told(newest)
    return Section(
        name=experiment.name,
        anchor=anchor,
        title=experiment.title,
        place=experiment.section,
        summary=experiment.summary,
        about={},  # its tables name the losses
        mark=PURPOSES[purpose],
        findings=(),
        finding="" if purpose or not notes else notes[0],
        forest=(),
        wide_forest=(),
        opening=(),
        tables=tables,
        more=(),
        figures=own,
        more_figures=[],
        commands=_commands(runs),
        glossary=glossary(groups, _stages(groups, experiment), experiment.joins),
        facts=_facts(runs, groups),
        notes=notes if purpose else notes[1:],
        problem=problem,
    )


def _usual(experiment: Experiment, config: Mapping[str, Any], variant: str) -> float | None:
    """The coefficient that an experiment gives a variant; None if its records come from another version of it."""
    found = config_of(experiment, config)
    try:
        return None if found is None else experiment.coefficient(found, variant)
    except (KeyError, Incomplete):
        return None


def _made(run: Run, name: str) -> str:
    return str(run.record["made"].get(name) or "")


def _commands(runs: Sequence[Run]) -> list[str]:
    """All that led to these runs, or found them there."""
    also = [str(one.get("command") or "") for run in runs for one in run.record.get("also") or ()]
    return list(dict.fromkeys(filter(None, [*(_made(run, "command") for run in runs), *also])))


def _facts(runs: Sequence[Run], groups: Groups) -> dict[str, str]:
    """How the records were made: versions, machines, settings."""

    def all_of(name: str) -> str:
        counts = Counter(filter(None, (_made(run, name) for run in runs)))
        return ", ".join(one if len(counts) == 1 else f"{one} ({words.count(n, 'stage')})" for one, n in counts.items())

    times = sorted(filter(None, (_made(run, "finished") for run in runs)))
    seconds = sum(run.record["cost"].get("wall_s") or 0.0 for run in runs)
    facts = {
        "stages": str(len(runs)),
        "time": words.seconds(seconds) if seconds else "",
        "finished": " to ".join(dict.fromkeys((times[0], times[-1]))) if times else "",
        **{name: all_of(name) for name in ("device", "engine", "racecar", "commit", "torch", "python")},
        "settings": label(tuple(groups.common.items())),
    }
    return {name: text for name, text in facts.items() if text}


def _stages(groups: Groups, experiment: Experiment | None) -> list[Stage]:
    """All that the configurations have."""
    configs = [] if experiment is None else [config_of(experiment, group.config) for group in groups.groups]
    found = [stage for one in configs if one is not None and experiment is not None for stage in experiment.stages(one)]
    return list(dict.fromkeys(found))


def _conversions(runs: Sequence[Run], experiment: Experiment | None) -> list[str]:
    """How λ was converted, where it was."""
    found: dict[str, None] = {}
    for run in runs if experiment is not None else ():
        assert experiment is not None
        config = config_of(experiment, run.config)
        if config is not None and (factor := times(experiment, config, run.variant)) > 1:
            found[f"{run.variant} × {factor}"] = None
    if not found:
        return []
    return [
        "λ here is that of the mean over the constrained layers. These records hold the coefficient of their sum; it "
        f"was multiplied by the number of layers, which is the same loss: {', '.join(sorted(found))}."
    ]


def _notes(name: str, groups: Groups, experiment: Experiment | None) -> list[str]:
    notes = []
    if experiment is None:
        notes.append(f"No experiment is known by the name {name}, so nothing is claimed of these runs.")
    if groups.left_out:
        notes.append(
            f"{words.count(groups.left_out, 'record')} left out: a newer one has the same setting, stage, variant, "
            "coefficient and seed."
        )
    lost = {run.id for run in groups.diverged}
    noted = {run.id: run for group in groups.groups for run in group.runs.values() if run.record.get("note")}
    said = (
        ("Diverged", [run for run in groups.diverged if run.record.get("parent") not in lost]),
        ("Finished, but", [run for run in noted.values() if run.record.get("parent") not in noted]),
    )  # a later stage only repeats what was said of the one before
    return [*notes, *(one for what, runs in said for one in _said(what, runs, groups))]


def _said(what: str, runs: Iterable[Run], groups: Groups) -> list[str]:
    """A sentence for each kind of run and reason, with the seeds."""
    found = []
    for run in runs:
        whose = run.variant if run.coefficient is None else f"{run.variant} ({words.number(run.coefficient)})"
        which = ", ".join(filter(None, (whose, run.stage, label(groups.setting(run)))))
        found.append((f"{which}: {run.record.get('note') or 'no reason given'}", run.seed))
    said = {which: ", ".join(map(str, sorted(set(some)))) for which, some in collect(found).items()}
    return [f"{what}: {which} (seed {seeds})." for which, seeds in said.items()]

"""One experiment on the page: its verdict, tables, figures, and how it was made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from racecar_lab.experiment import Experiment, Incomplete
from racecar_lab.report import words
from racecar_lab.report.about import about
from racecar_lab.report.claim_tables import claims_table, unjudged_table
from racecar_lab.report.claims import claims_of, judge
from racecar_lab.report.findings import Finding
from racecar_lab.report.forest import forest
from racecar_lab.report.forest import title as forest_title
from racecar_lab.report.glossary import glossary
from racecar_lab.report.groups import Groups, collect, gather
from racecar_lab.report.loss import config_of
from racecar_lab.report.page_table import Table
from racecar_lab.report.pictures import Picture, picture
from racecar_lab.report.provenance import commands, facts, notes
from racecar_lab.report.result_tables import cost_table, inner_tables, results_table
from racecar_lab.report.run_figures import usual_figures
from racecar_lab.report.told import judged, sentence
from racecar_lab.report.verdicts import VERDICTS, overall
from racecar_lab.running.record import PURPOSES
from racecar_lab.running.run import Run


@dataclass(frozen=True, eq=False, kw_only=True)
class Section:
    """All that the page says of an experiment."""

    name: str
    anchor: str
    title: str
    place: str
    """In the paper."""
    summary: str
    mark: str
    """What its runs are if they are no evidence; empty if they are."""
    about: Mapping[str, str] = field(default_factory=dict)
    """The data, the loss, the first weights, what a step costs; said before the tables."""
    findings: Sequence[Finding] = ()
    finding: str = ""
    """What was found, in one sentence."""
    forest: Picture | None = None
    """One picture of all claims that were judged; None if none was."""
    opening: Table | None = None
    """The experiment's own, of the paper and ours, below the forest."""
    figures: Sequence[Picture] = ()
    tables: Sequence[Table] = ()
    more: Sequence[Table] = ()
    """Long ones, folded away at first."""
    notes: Sequence[str] = ()
    glossary: Mapping[str, str]
    """Variants, stages and metrics, with what they are."""
    commands: Sequence[str]
    facts: Mapping[str, str]
    problem: str = ""
    """What went wrong while it was made; empty if nothing."""

    @property
    def verdict(self) -> str:
        """Of all claims together; empty if there are none."""
        return overall([finding.verdict for finding in self.findings]) if self.findings else ""

    @property
    def outcomes(self) -> list[tuple[str, str, str]]:
        """Of each configuration: what tells it from the others, its verdict, and how many claims became what."""
        families = collect((str(finding.family), finding) for finding in self.findings)
        verdicts = {name: overall([finding.verdict for finding in members]) for name, members in families.items()}
        return [(name, verdict, tally(families[name])) for name, verdict in verdicts.items()]


def tally(findings: Sequence[Finding]) -> str:
    """As "3 claims: 2 × supported, 1 × too few runs"."""
    counts = Counter(finding.verdict for finding in findings)
    parts = ", ".join(f"{counts[name]} × {name}" for name in VERDICTS if counts[name])
    return f"{words.count(len(findings), 'claim')}: {parts}"


def section(name: str, anchor: str, runs: Sequence[Run], experiment: Experiment | None, purpose: str = "") -> Section:
    """Judge and draw the runs of an experiment.

    Args:
        name: of the experiment.
        anchor: unlike that of every other section.
        runs: all of the experiment, diverged ones too.
        experiment: what it claims; None if nobody knows it, then nothing is claimed.
        purpose: what the runs were made for; nothing is judged by those that are no evidence.
    """
    known: Experiment[Any] = experiment or Experiment()
    groups = gather(runs, known.clusters)
    parsed = [config_of(experiment, group.config) for group in groups.groups] if experiment else []
    configs = list(dict.fromkeys(config for config in parsed if config is not None))
    stages = dict.fromkeys(stage for config in configs for stage in known.stages(config))
    common = Section(
        name=name,
        anchor=anchor,
        title=experiment.title if experiment else name,
        place=known.section,
        summary=known.summary,
        mark=PURPOSES[purpose],
        glossary=glossary(groups, list(stages), known.joins),
        commands=commands(runs),
        facts=facts(runs, groups),
    )
    if known.tells:
        return _told(common, known, groups)
    unknown = [
        f"No experiment is known by the name {name}, so nothing is claimed of these runs. If it is one of your own, "
        "make the page with --experiment package.module:CLASS."
    ]
    texts = [*([] if experiment else unknown), *notes(groups)]
    return _measured(replace(common, about=about(groups, known, configs), notes=texts), known, groups)


def _told(common: Section, experiment: Experiment[Any], groups: Groups) -> Section:
    """The section of an experiment of many settings, which writes its notes and tables itself. Of runs that are
    evidence the first note is the finding."""
    newest = [*groups.runs, *groups.diverged]
    texts, tables = experiment.told(newest)
    first = 0 if common.mark else 1
    figures, problem = _pictures(experiment, newest)
    finding = "".join(texts[:first])
    return replace(common, finding=finding, notes=texts[first:], tables=tables, figures=figures, problem=problem)


def _measured(common: Section, experiment: Experiment[Any], groups: Groups) -> Section:
    """Claims with their verdicts, what was measured, and the figures."""
    claims, paper = claims_of(experiment.claims, groups), experiment.paper
    named = {metric for claim in claims for metric in claim.metrics} | {value.metric for value in paper}
    if common.mark:
        paper = ()
    findings = [] if common.mark else _judged(experiment, groups)
    stages = collect((metric, run.stage) for run in groups.runs for metric in run.metrics)
    measured = [(stage, metric) for metric in stages for stage in dict.fromkeys(stages[metric])]
    main = [(stage, metric) for stage, metric in measured if metric in named] or measured
    rest = [pair for pair in measured if pair not in main]
    with_verdict = judged(findings)
    figures, problem = _pictures(experiment, groups.runs)
    if not figures:
        usual = usual_figures(groups, main, paper)
        figures = [picture(figure, title) for title, figure in usual.items()]
    beside = None if common.mark else experiment.beside_paper(groups.runs)
    caption = "Paper and ours" if paper and beside is None else "Results"
    return replace(
        common,
        findings=findings,
        finding=sentence(findings),
        forest=picture(forest(with_verdict), forest_title(with_verdict)) if with_verdict else None,
        opening=beside,
        figures=figures,
        tables=[results_table(caption, groups, main, paper)],
        more=[
            claims_table(findings),
            unjudged_table(findings),
            *([results_table("All that was measured besides", groups, rest)] if rest else []),
            *inner_tables(groups),
            cost_table(groups),
        ],
        problem=problem,
    )


def findings_of(experiment: Experiment, runs: Sequence[Run]) -> list[Finding]:
    """What becomes of an experiment's claims in some runs."""
    return _judged(experiment, gather(runs, experiment.clusters))


def _judged(experiment: Experiment, groups: Groups) -> list[Finding]:
    def usual(config: Mapping[str, Any], variant: str) -> float | None:
        """The λ that it gives a variant; None if its records come from another version of it."""
        known = config_of(experiment, config)
        try:
            return None if known is None else experiment.weight(known, variant)
        except (KeyError, Incomplete):
            return None

    return judge(experiment.claims, groups, usual, experiment.paper)


def _pictures(experiment: Experiment, runs: Sequence[Run]) -> tuple[list[Picture], str]:
    """The figures that an experiment draws of its runs, and the error if they cannot be drawn: the rest of the page is
    made all the same."""
    try:
        return [picture(figure, title) for title, figure in experiment.figures(runs).items()] if runs else [], ""
    except Exception as error:
        return [], f"the figures of {experiment.name} could not be drawn: {type(error).__name__}: {error}"

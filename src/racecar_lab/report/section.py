"""One experiment's part of the report page: its verdict, tables, figures, and how its runs were made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from racecar_lab.experiment import Experiment, Incomplete
from racecar_lab.report.about import about, config_of, configs_of, glossary
from racecar_lab.report.claim_tables import claims_table, unjudged_table
from racecar_lab.report.claim_words import sentence, tally
from racecar_lab.report.claims import claims_of, judge
from racecar_lab.report.costs import cost_table
from racecar_lab.report.findings import Finding
from racecar_lab.report.forest import forest, forest_title
from racecar_lab.report.groups import Group, collect, gather
from racecar_lab.report.page_table import Table
from racecar_lab.report.pictures import Picture, picture
from racecar_lab.report.provenance import commands, facts, notes
from racecar_lab.report.result_tables import inner_tables, results_table
from racecar_lab.report.run_figures import usual_figures
from racecar_lab.report.verdicts import overall
from racecar_lab.running.record import PURPOSES
from racecar_lab.running.run import Run

UNKNOWN = (
    "No experiment is known by the name {}, so nothing is claimed of these runs. If it is one of your own, make the "
    "page with --experiment package.module:CLASS."
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Section:
    """All that the report page says of one experiment."""

    name: str
    anchor: str
    title: str
    place: str
    """Section of the paper that the experiment is from."""
    summary: str
    mark: str
    """Reason why the runs are no evidence, such as "quick runs: no evidence"; empty if they are evidence."""
    about: Mapping[str, str] = field(default_factory=dict)
    """Heading → text that is shown before the tables: on the data, the loss, the initial weights, the cost of a
    step."""
    findings: Sequence[Finding] = ()
    finding: str = ""
    """The outcome of the claims in one sentence; empty if there are none."""
    forest: Picture | None = None
    """Figure of all claims that have a verdict; None if there are none."""
    opening: Table | None = None
    """The experiment's own short table of the paper's results and ours, below the figure of all claims; None: it has
    none."""
    figures: Sequence[Picture] = ()
    tables: Sequence[Table] = ()
    more: Sequence[Table] = ()
    """Long tables, which the page shows only when they are unfolded."""
    notes: Sequence[str] = ()
    glossary: Mapping[str, str]
    """Name of a variant, stage or metric → its meaning."""
    commands: Sequence[str]
    facts: Mapping[str, str]
    problem: str = ""
    """Message of the error while the experiment's figures were drawn; empty if there was none."""

    @property
    def verdict(self) -> str:
        """The verdict on all claims of the experiment together; empty if there are none."""
        return overall([finding.verdict for finding in self.findings]) if self.findings else ""

    @property
    def outcomes(self) -> list[tuple[str, str, str]]:
        """For each configuration: text of its fields that differ from others, its verdict, and the number of claims
        with each verdict."""
        families = collect((str(finding.family), finding) for finding in self.findings)
        return [
            (name, overall([finding.verdict for finding in members]), tally(members))
            for name, members in families.items()
        ]


def section(name: str, anchor: str, runs: Sequence[Run], experiment: Experiment | None, purpose: str = "") -> Section:
    """The page's section on an experiment: its claims are judged by the runs, and its tables and figures made.

    Args:
        name: name of the experiment.
        anchor: the section's name in addresses; every section has another one.
        runs: all runs of the experiment, diverged ones too.
        experiment: the experiment; None if no experiment has this name, and then nothing is claimed.
        purpose: purpose of the runs, one of ``PURPOSES``; claims are judged only by evidence, which is "".
    """
    known: Experiment[Any] = experiment or Experiment()
    groups = gather(runs, known.clusters)
    configs = configs_of(experiment, groups) if experiment else []
    common = Section(
        name=name,
        anchor=anchor,
        title=experiment.title if experiment else name,
        place=known.reporting.section,
        summary=known.reporting.summary,
        mark=PURPOSES[purpose],
        glossary=glossary(known, configs, groups),
        commands=commands(runs),
        facts=facts(runs, groups),
    )
    if known.reporting.sentences_and_tables:
        return _written_by(known, common, groups)
    texts = [*([] if experiment else [UNKNOWN.format(name)]), *notes(runs, groups)]
    return _measured(known, replace(common, about=about(known, configs, groups), notes=texts), groups)


def _written_by(experiment: Experiment[Any], common: Section, groups: Sequence[Group]) -> Section:
    """The page's section on an experiment with too many settings for the usual tables, whose notes and tables its own
    function ``sentences_and_tables`` writes. Of runs that are evidence the first note is the outcome."""
    runs = sorted((run for group in groups for run in group.all_runs.values()), key=lambda run: not run.finished)
    assert experiment.reporting.sentences_and_tables is not None
    texts, tables = experiment.reporting.sentences_and_tables(runs)
    first = 0 if common.mark else 1
    figures, problem = _pictures(experiment, runs)
    finding = "".join(texts[:first])
    return replace(common, finding=finding, notes=texts[first:], tables=tables, figures=figures, problem=problem)


def _measured(experiment: Experiment[Any], common: Section, groups: Sequence[Group]) -> Section:
    """The page's section on an experiment in the usual form: claims with their verdicts, measurements and figures.
    Metrics that claims or the paper name come first."""
    runs = [run for group in groups for run in group.runs.values()]
    claims, paper = claims_of(experiment.claims, groups), experiment.reporting.paper
    named = {metric for claim in claims for metric in claim.metrics} | {value.metric for value in paper}
    paper = () if common.mark else paper
    stages = collect((metric, run.stage) for run in runs for metric in run.metrics)
    measured = [(stage, metric) for metric in stages for stage in dict.fromkeys(stages[metric])]
    main = [(stage, metric) for stage, metric in measured if metric in named] or measured
    rest = [pair for pair in measured if pair not in main]
    findings = [] if common.mark else _findings(experiment, groups)
    judged = [finding for finding in findings if finding.judged]
    paper_table = None if common.mark else experiment.reporting.paper_table
    opening = None if paper_table is None else paper_table(runs)
    figures, problem = _pictures(experiment, runs)
    if not figures:
        figures = [picture(figure, title) for title, figure in usual_figures(groups, main, paper).items()]
    return replace(
        common,
        findings=findings,
        finding=sentence(findings),
        forest=picture(forest(judged), forest_title(judged)) if judged else None,
        opening=opening,
        figures=figures,
        tables=[results_table("Paper and ours" if paper and opening is None else "Results", groups, main, paper)],
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
    """The findings on an experiment's claims, which are its claims with gains and verdicts, from some runs."""
    return _findings(experiment, gather(runs, experiment.clusters))


def _findings(experiment: Experiment, groups: Sequence[Group]) -> list[Finding]:
    def usual(config: Mapping[str, Any], variant: str) -> float | None:
        """The experiment's default λ of a variant; None if the records come from another version of the experiment."""
        known = config_of(experiment, config)
        try:
            return None if known is None else experiment.weight(known, variant)
        except (KeyError, Incomplete):
            return None

    return judge(experiment.claims, groups, usual, experiment.reporting.paper)


def _pictures(experiment: Experiment, runs: Sequence[Run]) -> tuple[list[Picture], str]:
    """The figures that an experiment draws of its runs, and the error if they cannot be drawn: the rest of the page is
    made all the same."""
    try:
        return [
            picture(figure, title) for title, figure in experiment.reporting.figures(runs).items()
        ] if runs else [], ""
    except Exception as error:
        return [], f"the figures of {experiment.name} could not be drawn: {type(error).__name__}: {error}"

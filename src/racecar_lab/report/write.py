"""Makes the report page of a results folder, and writes its files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from racecar.support.files import write_text
from racecar_lab.experiment import Experiment
from racecar_lab.report.page import Page, shown_figures, to_html, to_markdown
from racecar_lab.report.pictures import sheet
from racecar_lab.report.read_records import inside, read_runs
from racecar_lab.report.section import Section, section
from racecar_lab.running.record import PURPOSES
from racecar_lab.running.run import Run

TITLE = "Racecar laboratory"
FIGURES = "figures"


@dataclass(frozen=True)
class Report:
    """Paths of the files of a page, and the problems that it names."""

    html: Path
    markdown: Path
    problems: Sequence[str]
    """Messages about records that could not be read and figures that could not be drawn; the page has them, too."""


def write_report(folder: Path, experiments: Mapping[str, Experiment]) -> Report:
    """Write report.html and report.md, and the figures of the latter, into a results folder. In a folder of such
    folders they are one page of all, on which runs of different folders are not mixed. The same records make the same
    files.

    Args:
        folder: a results folder, as ``racecar run --out`` names it, or a folder of such folders.
        experiments: name → experiment, which says what is claimed and may draw figures.

    Raises:
        ValueError: there is no record that can be read.
    """
    parts, problems = {}, []
    for each in inside(folder) or [folder]:
        try:
            parts["" if each == folder else each.name], unread = read_runs(each)
            problems += unread
        except ValueError as error:  # the other folders are not lost
            problems.append(str(error))
    if not parts:
        raise ValueError(problems[0])
    page = build(parts, experiments, problems)
    for part in page.sections:
        if figures := shown_figures(part):
            write_text(folder / FIGURES / f"{part.anchor}.svg", sheet(figures))
    report = Report(folder / "report.html", folder / "report.md", page.problems)
    write_text(report.markdown, to_markdown(page, FIGURES))
    write_text(report.html, to_html(page))
    return report


def build(parts: Mapping[str, Sequence[Run]], experiments: Mapping[str, Experiment], problems: Sequence[str]) -> Page:
    """The page of the runs of some folders, each by itself; known experiments first, in their order. Runs that are no
    evidence have their own sections, so that they change nothing in those of the others."""
    sections: list[Section] = []
    for folder, runs in parts.items():
        for (name, purpose), members in _kinds(runs, experiments).items():
            anchor = _anchor(f"{folder or name} {purpose}", [part.anchor for part in sections])
            part = section(name, anchor, members, experiments.get(name), purpose)
            where = f" ({folder})" if folder not in ("", name) else ""
            sections.append(replace(part, name=f"{name}{where}", title=f"{part.title}{where}"))
    alone = sections[0] if len(sections) == 1 else None
    title = TITLE if alone is None else f"{alone.title} ({alone.mark})" if alone.mark else alone.title
    return Page(title, sections, [*problems, *(part.problem for part in sections if part.problem)])


def _kinds(runs: Sequence[Run], experiments: Mapping[str, Experiment]) -> dict[tuple[str, str], list[Run]]:
    """Divide runs by experiment and purpose: (name of the experiment, purpose) → runs, known experiments first."""
    kinds: dict[tuple[str, str], list[Run]] = {(name, purpose): [] for name in experiments for purpose in PURPOSES}
    for run in runs:
        kinds.setdefault((str(run.record["experiment"]), run.purpose), []).append(run)
    return {kind: members for kind, members in kinds.items() if members}


def _anchor(name: str, others: Sequence[str]) -> str:
    """A name as an HTML anchor, which is none of ``others``."""
    anchor = "in-" + (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "experiment")
    while anchor in others:
        anchor += "-again"
    return anchor

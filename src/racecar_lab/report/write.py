"""Make the page of a folder of records."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from racecar.support.files import write_atomically, write_text
from racecar_lab.experiment import Experiment
from racecar_lab.report.page import Page, overview, sheet_name, to_html, to_markdown
from racecar_lab.report.read_records import inside, read_runs
from racecar_lab.report.section import Section, section
from racecar_lab.report.sheet import sheet
from racecar_lab.running.record import PURPOSES
from racecar_lab.running.run import Run

TITLE = "Racecar laboratory"
FIGURES = "figures"


@dataclass(frozen=True)
class Report:
    """What was written, and what could not be."""

    html: Path
    markdown: Path
    problems: Sequence[str]
    """Records that could not be read and figures that could not be drawn; the page names them too."""


def write_report(folder: Path, experiments: Mapping[str, Experiment], made: datetime | None = None) -> Report:
    """Write report.html and report.md, and the figures of the latter, into a folder of records, or into one of such
    folders: then it is one page, and runs of different folders are not mixed.

    Args:
        folder: as ``racecar run --out`` names it, or the one above.
        experiments: by name; they say what is claimed, and draw figures of their own.
        made: the date on the page; now, if None.

    Raises:
        ValueError: there is no record that can be read.
    """
    parts, problems = {}, []
    for each in inside(folder) or [folder]:
        try:
            parts["" if each == folder else each.name], some = read_runs(each)
            problems += some
        except ValueError as error:  # the other folders are not lost
            problems.append(str(error))
    if not parts:
        raise ValueError(problems[0])
    page = build(parts, experiments, problems, made or datetime.now(UTC))
    for one in page.sections:
        if one.shown:
            with write_atomically(folder / FIGURES / sheet_name(one)) as file:
                file.write(sheet(one.shown))
    report = Report(folder / "report.html", folder / "report.md", page.problems)
    write_text(report.markdown, to_markdown(page, FIGURES))
    write_text(report.html, to_html(page))
    return report


def build(
    parts: Mapping[str, Sequence[Run]], experiments: Mapping[str, Experiment], problems: Sequence[str], made: datetime
) -> Page:
    """The page of the runs of some folders, each by itself; known experiments first, in their order. Runs that are no
    evidence have their own sections, so that they change nothing in those of the others."""
    sections: list[Section] = []
    for folder, runs in parts.items():
        for (name, purpose), members in _kinds(runs, experiments).items():
            anchor = _anchor(f"{folder or name} {purpose}", [one.anchor for one in sections])
            made_of = section(name, anchor, members, experiments.get(name), purpose)
            where = f" ({folder})" if folder not in ("", name) else ""
            sections.append(replace(made_of, name=f"{name}{where}", title=f"{made_of.title}{where}"))
    failed = [one.problem for one in sections if one.problem]
    title = _title(sections[0]) if len(sections) == 1 else TITLE
    return Page(title, made, overview(sections) if len(sections) > 1 else None, sections, [*problems, *failed])


def _title(one: Section) -> str:
    return f"{one.title} ({one.mark})" if one.mark else one.title


def _kinds(runs: Sequence[Run], experiments: Mapping[str, Experiment]) -> dict[tuple[str, str], list[Run]]:
    """Runs by experiment and purpose."""
    kinds: dict[tuple[str, str], list[Run]] = {(name, purpose): [] for name in experiments for purpose in PURPOSES}
    for run in runs:
        for purpose in PURPOSES:
            if (one := run.made_for(purpose)) is not None:
                kinds.setdefault((str(run.record["experiment"]), purpose), []).append(one)
    return {kind: some for kind, some in kinds.items() if some}


def _anchor(name: str, taken: Sequence[str]) -> str:
    plain = "in-" + (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "experiment")
    anchor, i = plain, 1
    while anchor in taken:
        anchor, i = f"{plain}-{i + 1}", i + 1
    return anchor

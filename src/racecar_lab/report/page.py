"""The report page, and how it is written as HTML and as Markdown."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from racecar.support.extras import need
from racecar_lab.report import words
from racecar_lab.report.claim_words import tally
from racecar_lab.report.pictures import Picture
from racecar_lab.report.section import Section
from racecar_lab.report.verdicts import SIGNS

LONGEST = 40
"""Maximal number of rows of a table in the Markdown page, which is a summary; the HTML page has all."""
MOST = 6
"""Maximal number of an experiment's own figures in the Markdown page; its figure of all claims comes in addition."""


@dataclass(frozen=True, eq=False)
class Page:
    """A page: its title, and a section for each experiment."""

    title: str
    sections: Sequence[Section]
    problems: Sequence[str]
    """Messages about records that cannot be read and figures that cannot be drawn."""

    @property
    def tally(self) -> str:
        """A line for the top of the page: number of experiments, number of claims with each verdict, and which runs are
        no evidence."""
        findings = [finding for section in self.sections for finding in section.findings]
        counted = words.count(len({section.name for section in self.sections}), "experiment")
        marks = dict.fromkeys(section.mark for section in self.sections if section.mark)
        return "; ".join([counted + (f", {tally(findings)}" if findings else ""), *marks])


def to_html(page: Page) -> str:
    """The page as one HTML file that needs no other file: style, script and figures are inside, and the browser is told
    to load no more."""
    folder = resources.files(__package__).joinpath("templates")
    style, script = (folder.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    template = _templates().get_template("page.html")
    return str(template.render(page=page, style=style, script=script, digest=digest, sign=SIGNS.get))


def to_markdown(page: Page, folder: str) -> str:
    """The page in Markdown, with the tables and verdicts of the HTML page. The main figures are linked: one SVG in
    ``folder`` for each section."""
    template = _templates().get_template("page.md")
    text = template.render(page=page, folder=folder, longest=LONGEST, shown=shown_figures)
    text = re.sub(r" +$", "", text, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def shown_figures(section: Section) -> list[Picture]:
    """The figures of a section that report.md links: the forest plot, and the first ones of the experiment."""
    return [*([section.forest] if section.forest else []), *section.figures[:MOST]]


def markdown(text: str) -> str:
    """Escape a text for Markdown, so that it is shown as it is, also in a table: special characters get a backslash,
    "<" before a tag becomes "&lt;", line breaks become spaces."""
    text = re.sub(r"([\\`*\[\]|])", r"\\\1", " ".join(text.split()))
    text = re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", text)
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text)


def fenced(text: str) -> str:
    """A text as a Markdown block of shell code; the fence of backticks is longer than any inside."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}sh\n{text}\n{fence}"


@cache
def _templates() -> Any:
    jinja2 = need("jinja2", "lab")
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("racecar_lab.report"),
        autoescape=jinja2.select_autoescape(["html"]),  # page.html; page.md has filters of its own
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {"md": markdown, "fenced": fenced}
    return templates

"""The page as HTML, and the same in Markdown."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import resources
from typing import Any

from racecar.inspect.style import look
from racecar.support.extras import need
from racecar_lab.report import words
from racecar_lab.report.how import HOW, OF_CLAIMS
from racecar_lab.report.page_table import Cell, Column, Table
from racecar_lab.report.section import MOST, Section, tally
from racecar_lab.report.verdicts import SIGNS, VERDICTS

LONGEST = 40
"""Rows of a table in Markdown, which is a summary; the HTML page has all."""
_SHAPES = {"o": "●", "s": "■", "P": "✚", "^": "▲", "v": "▼", "D": "◆"}


@dataclass(frozen=True, eq=False)
class Page:
    """All that is shown."""

    title: str
    made: datetime
    overview: Table | None
    """What each experiment found; None if there is one alone."""
    sections: Sequence[Section]
    problems: Sequence[str]
    """What could not be read or drawn."""

    @property
    def when(self) -> str:
        return words.day(self.made)

    @property
    def how(self) -> dict[str, str]:
        """What the words on the page mean."""
        claimed = any(one.findings for one in self.sections)
        return {name: text for name, text in HOW.items() if claimed or name not in OF_CLAIMS}

    @property
    def tally(self) -> str:
        """How many experiments and claims, what became of them, and what is no evidence."""
        findings = [found for one in self.sections for found in one.findings]
        counted = words.count(len({one.name for one in self.sections}), "experiment")
        marks = dict.fromkeys(one.mark for one in self.sections if one.mark)
        return "; ".join([counted + (f", {tally(findings)}" if findings else ""), *marks])


def overview(sections: Sequence[Section]) -> Table:
    """What each experiment found, with a link to it."""
    columns = [Column("experiment"), Column("verdict"), Column("finding")]
    rows = [
        [
            Cell(one.name, kind="word", link=one.anchor),
            Cell(one.verdict, VERDICTS.index(one.verdict), "verdict") if one.verdict else Cell(one.mark or words.NONE),
            Cell(one.finding or one.summary),
        ]
        for one in sections
    ]
    return Table.of("What was found", columns, rows)


def to_html(page: Page) -> str:
    """One file that needs nothing else: style, script, figures are inside, and the browser is told to load no more."""
    style, script = _file("page.css"), _file("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return str(_templates().get_template("page.html").render(page=page, style=style, script=script, digest=digest))


def to_markdown(page: Page, folder: str) -> str:
    """The same tables and verdicts; the main figures are linked from a folder beside it, a sheet for each section."""
    text = _templates().get_template("page.md").render(page=page, folder=folder, longest=LONGEST, most=MOST)
    text = re.sub(r" +$", "", text, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def sheet_name(section: Section) -> str:
    """File name of a section's figures."""
    return f"{section.anchor}.svg"


def markdown(text: str) -> str:
    """Text that Markdown takes as it stands, in a table too."""
    text = re.sub(r"([\\`*\[\]|])", r"\\\1", " ".join(text.split()))
    text = re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", text)
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text)


def fenced(text: str) -> str:
    """A block of code; its fence is longer than any inside."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}sh\n{text}\n{fence}"


def bar(ends: tuple[float, float, float]) -> dict[str, float]:
    """Where an interval is drawn on a line from −100 to 100, with 0 in its middle."""
    reach = max(map(abs, ends)) or 1.0
    return {name: round(100 * end / reach, 1) for name, end in zip(("low", "middle", "high"), ends, strict=True)}


def swatch(variant: str) -> dict[str, str]:
    """The mark of a variant, as in the figures."""
    style = look(variant)
    return {"colour": style["color"], "shape": _SHAPES.get(style["marker"], "✖")}


@cache
def _templates() -> Any:
    jinja2 = need("jinja2", "lab")
    templates = jinja2.Environment(
        loader=jinja2.FunctionLoader(_file),
        autoescape=jinja2.select_autoescape(["html"]),  # page.html; page.md has filters of its own
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {"md": markdown, "fenced": fenced, "bar": bar}
    templates.globals |= {"sheet_name": sheet_name, "sign": SIGNS.get, "swatch": swatch}
    return templates


def _file(name: str) -> str:
    return resources.files(__package__).joinpath("templates", name).read_text(encoding="utf-8")

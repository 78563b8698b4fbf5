"""The page: well-formed, closed to the network, escaped; and its twin in Markdown."""

import base64
import hashlib
import re
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from racecar_lab.report.page import fenced
from racecar_lab.report.page import markdown as escaped
from racecar_lab.report.write import write_report
from tests.lab.report.conftest import BAD
from tests.lab.report.records import Peaks

VOID = {"meta", "link", "img", "br", "hr", "input"}


class Reader(HTMLParser):
    """Elements of a page; refuses one that is not closed, or closed in the wrong place."""

    def __init__(self, page):
        super().__init__()
        self.open, self.elements, self.text = [], [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes), list(self.open)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes), list(self.open)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, self.getpos()

    def handle_data(self, data):
        if "script" not in self.open and "style" not in self.open:
            self.text.append(data)

    def all(self, *tags):
        return [attributes for tag, attributes, _ in self.elements if tag in tags]


@pytest.fixture(scope="module")
def page(html):
    return Reader(html)


def test_ids_and_what_refers_to_them(page):
    ids = [attributes["id"] for _, attributes, _ in page.elements if "id" in attributes]
    assert [id for id, n in Counter(ids).items() if n > 1] == []
    for _, attributes, _ in page.elements:
        targets = [attributes["href"][1:]] if attributes.get("href", "").startswith("#") else []
        targets += attributes.get("aria-labelledby", "").split()
        assert set(targets) <= set(ids)


def test_nothing_is_loaded(page, html):
    for _, attributes, _ in page.elements:
        for name in ("src", "href", "srcset", "xlink:href", "data", "action"):
            assert attributes.get(name, "#").startswith(("#", "data:"))
        assert not any(name.startswith("on") for name in attributes)
    assert "http://" not in html
    assert "https://" not in html
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)


def test_the_browser_is_told_to_run_our_script_alone(page, html):
    (policy,) = [one["content"] for one in page.all("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith("default-src 'none';")
    assert f"script-src 'sha256-{digest}'" in policy


def test_names_from_records_are_text(page):
    assert len(page.all("script")) == 1
    assert not [one for one in page.all("img") if one.get("src") == "x"]
    text = "".join(page.text)
    assert text.count(BAD) >= 8  # title, variant, stage, metric, command, device, notes, …


def test_for_those_who_listen(page):
    assert page.all("html") == [{"lang": "en"}]
    levels = [int(tag[1]) for tag, _, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    for tag, attributes, parents in page.elements:
        if tag == "img":
            assert attributes.get("alt")
        if tag == "th":
            assert attributes["scope"] == "col"
        if tag == "table":
            assert parents[-1] == "div"  # which scrolls
    assert {"main", "nav", "header"} <= {tag for tag, *_ in page.elements}


def test_markdown_has_the_same_tables(page, markdown, html):
    """Every number and verdict of the one is in the other."""
    cells = [" ".join(cell.split()) for cell in re.findall(r"<td[^>]*>([^<]+)</td>", html)]
    numbers = {cell for cell in cells if re.fullmatch(r"[−+\d.]+( ± [\d.]+)?", cell)}
    assert len(numbers) > 50
    lines = [line for line in markdown.splitlines() if line.startswith("| ")]
    in_markdown = {cell.strip() for line in lines for cell in re.split(r"(?<!\\)\|", line)}
    assert numbers <= in_markdown | {cell.split(" (")[0] for cell in in_markdown}
    verdicts = Counter(re.findall(r'(?:<td class="verdict">|</a> )<span[^>]*><span[^>]*>.</span> ([a-z ]+)<', html))
    assert verdicts == Counter(found for line in lines for found in re.findall(r"\*\*([a-z ]+)\*\*", line))


def test_markdown_tables_are_whole(markdown):
    """As many cells in every row as in its head, whatever the names are."""
    widths = {}
    for block in re.findall(r"(?:^\|.*\n)+", markdown, re.MULTILINE):
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(counts) == 1, block
        widths[block] = counts
    assert len(widths) > 6


def test_markdown_links_a_sheet_for_each_section(folder, markdown, page):
    """It shows the figures of the HTML page, whose own parts are as many."""
    linked = re.findall(r"^!\[.*\]\((figures/[^)]+)\)$", markdown, re.MULTILINE)
    assert len(linked) == len(set(linked)) == len(page.all("article")) == 2
    assert {f"figures/{path.name}" for path in (folder / "figures").iterdir()} == set(linked)
    sheets = [ElementTree.parse(folder / name).getroot() for name in linked]
    shown = sum(len(sheet.findall("{http://www.w3.org/2000/svg}svg")) for sheet in sheets)
    assert shown == len(page.all("figure"))


def test_the_forest_comes_first(page):
    """Of a page of several experiments, in the article of each that claims something."""
    classes = [attributes.get("class") for tag, attributes, _ in page.elements if tag in ("div", "figure")]
    assert classes.index("forest") < classes.index("scroll")


def test_a_page_made_twice_is_the_same(folder, html, markdown):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    write_report(folder, {"peaks": Peaks()})
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    "text, expected",
    [
        ("test_accuracy of A_", r"test_accuracy of A\_"),
        ("a | b\nc", r"a \| b c"),
        ("<b>*x*</b> < 0.001", r"&lt;b>\*x\*&lt;/b> < 0.001"),
        ("[x](y)", r"\[x\](y)"),
    ],
)
def test_markdown_escapes(text, expected):
    assert escaped(text) == expected


def test_fences_are_longer_than_what_they_hold():
    assert fenced("a ``` b") == "````sh\na ``` b\n````"

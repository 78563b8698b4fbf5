"""docs/experiments.md has every experiment, with what its records say."""

import re
from pathlib import Path

from benchmarks import experiments
from racecar_lab.experiments import EXPERIMENTS
from tests.pages import emptied

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "experiments.md").read_text()


def test_the_page_and_readme_are_up_to_date():
    """Else: python -m benchmarks.experiments"""
    assert experiments.page(emptied(PAGE), ROOT / "results") == PAGE
    readme = (ROOT / "README.md").read_text()
    assert experiments.readme(emptied(readme), ROOT / "results") == readme


def test_every_experiment_and_every_page_of_a_record_is_there():
    """In order, each sentence as the second line of text of its page."""
    assert re.findall(r"(?m)^`racecar run ([\w-]+)`, ", PAGE) == list(EXPERIMENTS)
    plain = " ".join(PAGE.split())
    reports = sorted(ROOT.glob("results/*/report.md"))
    assert sorted(re.findall(r"\.\./results/([\w-]+)/report\.md", PAGE)) == [one.parent.name for one in reports]
    for report in reports:
        assert report.read_text().split("\n\n")[1].strip("*") in plain

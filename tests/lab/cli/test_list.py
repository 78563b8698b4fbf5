"""``racecar list``, and the help of every command with its example."""

import re
import shlex

import pytest

from racecar_lab.experiments import EXPERIMENTS
from tests.lab.cli.commands import rows

pytestmark = pytest.mark.usefixtures("no_data")


DATA = ("list", "check", "fetch", "make")


@pytest.mark.parametrize(
    "command",
    ["list", "run", "sweep", "search", "report", "film", "explain", "inspect", *(f"data {one}" for one in DATA)],
)
def test_help_has_an_example(cli, command):
    result = cli(*command.split(), "--help")
    assert result.status == 0
    assert f"racecar {command}" in " ".join(result.out.split()).partition("Example: ")[2]


def test_examples_name_what_there_is(cli):
    """The options and settings of an example exist: it is parsed as far as anything can be without training."""
    for command in ("run", "sweep", "search"):
        text = " ".join(cli(command, "--help").out.split())
        words = shlex.split(re.search(r"Example: racecar (.*)$", text)[1])
        assert words[0] == command
        assert words[1] in EXPERIMENTS
        for option in (word for word in words if word.startswith("--")):
            assert f" {option} " in text.partition("Example")[0]


def test_list(cli):
    result = cli("list")
    assert (result.status, result.err) == (0, "")
    found = {row["name"]: row for row in rows(result.out)}
    assert list(found) == list(EXPERIMENTS)
    for name, one in EXPERIMENTS.items():
        assert found[name]["what"] == one.title
        assert found[name]["variants"].split(",") == list(one.variants)
        assert found[name]["seeds"] == str(one.seeds)
        needed = ", ".join(source.name for source in one.sources(one.Config()))
        assert found[name]["data"].partition(" (")[0] == (needed or "none")
    assert found["digits"]["data"] == "mnist (quick: none)"

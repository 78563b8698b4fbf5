"""An experiment of one's own: it is run from Python as the page says, and what it lacks is named before the work."""

import re
from pathlib import Path

import pytest

from racecar_lab.config import CONFIGS
from racecar_lab.experiment import Experiment, Stage
from racecar_lab.experiments import EXPERIMENTS
from tests.lab.cli.commands import records

PAGE = (Path(__file__).parents[3] / "docs" / "laboratory.md").read_text()
(CODE,) = [code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "class Mine" in code]
RUN = ("run", "mine", "--variants", "RR", "--seeds", "1", "--workers", "1", "--set", "epochs=1", "--out", "out")


@pytest.fixture(autouse=True)
def known_here_alone(monkeypatch):
    monkeypatch.setattr("racecar_lab.experiment.CONFIGS", dict(CONFIGS))


@pytest.fixture
def mine():
    """The class that the page defines."""
    made = {"__name__": "mine"}
    exec(CODE.partition("\nmine, folder")[0], made)
    return made["Mine"]


def test_as_the_page_has_it(cli, tmp_path):
    made = {"__name__": "mine"}
    cli("list")  # in a folder of its own from here on
    exec(CODE, made)
    assert made["failures"] == []
    trained = sorted((one["variant"], one["seed"]) for one in records("out/mine"))
    assert trained == [("RR", 0), ("RR", 1), ("Std", 0), ("Std", 1)]
    assert "Signs of numbers" in made["page"].html.read_text()


def test_the_command_says_how_it_is_run(refused):
    line = refused("run", "mine")
    assert all(name in line for name in EXPERIMENTS)
    assert "one of your own is run from Python" in line


LACKING = {
    "name": "give the class name = ",
    "title": "give the class title = ",
    "data": "define data(config, seed, folder), which returns a dict",
    "network": "define network(config, dropout=0.0), which returns the untrained torch.nn.Module",
    "coefficient": "define coefficient(config, variant), which returns",
}


@pytest.mark.parametrize("part", LACKING)
def test_what_is_missing_is_named(refused, monkeypatch, mine, tmp_path, part):
    delattr(mine, part)
    monkeypatch.setitem(EXPERIMENTS, "mine", mine())
    line = refused(*RUN)
    assert f"experiment Mine has no {part}: {LACKING[part]}" in line
    assert [one.name for one in tmp_path.iterdir()] == ["nets.py"]


@pytest.mark.parametrize(
    "part, other, words",
    [
        ("coefficient", lambda self, config, variant: None, "the coefficient of RR must be a number of at least 0"),
        ("coefficient", lambda self, config, variant: float("nan"), "the coefficient of RR must be a number of at"),
        (
            "stages",
            lambda self, config: (Stage("B", after="A"),),
            "stage B of mine is after 'A', which is none before it",
        ),
    ],
)
def test_what_cannot_be(refused, monkeypatch, mine, tmp_path, part, other, words):
    monkeypatch.setattr(mine, part, other)
    monkeypatch.setitem(EXPERIMENTS, "mine", mine())
    assert words in refused(*RUN)
    assert [one.name for one in tmp_path.iterdir()] == ["nets.py"]


@pytest.mark.parametrize("engine", ["here", "vmap"])
def test_a_task_that_is_missing(cli, monkeypatch, mine, engine):
    monkeypatch.setattr(mine, "stages", lambda self, config: (Stage("A"), Stage("B", task="B")))
    monkeypatch.setitem(EXPERIMENTS, "mine", mine())
    result = cli(*RUN, "--engine", engine)
    assert result.status == 2
    assert "Mine.data gave no task 'B', but A" in result.err
    assert [one["stage"] for one in records("out")] == ["A"]


def test_a_class_is_no_experiment(mine):
    from racecar_lab.running.jobs import make_jobs

    with pytest.raises(TypeError, match="give an instance of a subclass of Experiment"):
        make_jobs(mine, mine.Config(), ["Std"], [0], None)


def test_parts_that_are_needed_later():
    """By the pages of some experiments alone."""
    with pytest.raises(TypeError, match=r"has no layers: define layers\(config\), which returns the number of layers"):
        Experiment().layers(Experiment.Config())
    with pytest.raises(TypeError, match=r"has no told: define told\(runs\), which returns sentences and tables"):
        Experiment().told([])

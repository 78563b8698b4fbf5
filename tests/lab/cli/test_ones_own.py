"""An experiment of one's own: it runs by its name as package.module:CLASS, in every process, and what is wrong with it
is named before the work."""

import pickle
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from racecar_lab.experiment import Experiment
from racecar_lab.experiments import experiment
from racecar_lab.running.jobs import make_jobs
from tests.lab.cli.commands import records

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "own_experiment.py"
PAGE = ROOT / "docs" / "own-experiment.md"
MINE = """
import torch
from torch import nn
from racecar_lab.experiment import Experiment, Split, Stage, Task


class Mine(Experiment):
    name, variants = "mine", ("Std", "RR")

    def data(self, config, seed, folder):
        x = torch.randn(200, 8, generator=torch.Generator().manual_seed(seed))
        y = (x[:, 0] > 0).long()
        return {"A": Task(Split(x[:100], y[:100]), Split(x[100:], y[100:]))}

    def network(self, config, dropout=0.0):
        return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))

    def weight(self, config, variant):
        return 0.001


class Clash(Mine):
    name = "peaks"


class Path(Mine):
    name = "../mine"


class Needy(Mine):
    def __init__(self, more):
        pass


number = 7
"""
RUN = ("run", "mine:Mine", "--variants", "RR", "--seeds", "1", "--workers", "1", "--set", "epochs=1", "--out", "out")


@pytest.fixture(autouse=True)
def known_here_alone(monkeypatch):
    monkeypatch.setattr("racecar_lab.own.NAMES", {})
    yield
    for name in ("mine", "broken", "own_experiment"):
        sys.modules.pop(name, None)


@pytest.fixture
def write(cli, tmp_path):
    """Put the module mine.py into the current folder, with more lines at its end."""

    def write(more=""):
        (tmp_path / "mine.py").write_text(MINE + more)

    write()
    return write


@pytest.fixture
def rings(cli, tmp_path):
    """The example, in the current folder."""
    shutil.copy(EXAMPLE, tmp_path)
    return "own_experiment:Rings"


def test_the_example(rings, cli, undrawn):
    """As its page has it: a claim, and a page with the verdict."""
    result = cli("run", rings, "--engine", "vmap")
    assert (result.status, result.err) == (0, "")
    assert "verdict: supported; 1 claim: 1 × supported" in result.out
    assert result.out.splitlines()[-1].endswith(f"page: racecar report out/rings --experiment={rings}")
    assert cli("report", "out/rings", "--experiment", rings).status == 0
    claim = "RR leads back to the input better than Std: supported"
    assert claim in Path("out/rings/report.md").read_text()
    assert claim in Path("out/rings/report.html").read_text()
    assert cli("report", "out/rings").status == 0
    assert "No experiment is known by the name rings" in Path("out/rings/report.md").read_text()


def test_search_and_sweep(rings, cli):
    short = ("--set", "epochs=1", "--seeds", "1", "--engine", "vmap")
    assert cli("search", rings, *short).status == 0
    tuned = "out/rings-search/tuned.json"
    assert {tuple(one["metrics"]) for one in records("out/rings-search")} == {("valid_accuracy",)}
    assert cli("run", rings, *short, "--tuned", tuned).status == 0
    assert cli("sweep", rings, *short, "--over", "noise=0.1,0.2", "--out", "swept").status == 0
    assert {one["config"]["noise"] for one in records("swept")} == {0.1, 0.2}


def test_the_page_shows_the_example():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text().partition("## In several")[0], re.DOTALL)
    assert len(blocks) == 5
    assert [block for block in blocks if bare(block) not in bare(EXAMPLE.read_text())] == []
    commands = re.findall(r"racecar (?:run|report|search|sweep) [^#\n]+", PAGE.read_text())
    assert len(commands) == 5
    assert all("own_experiment:Rings" in one for one in commands)


def bare(code):
    """Code without indentation and empty lines."""
    return "\n".join(filter(None, map(str.strip, code.splitlines())))


def python(folder, *arguments):
    """A Python that does not import from the current folder."""
    command = [sys.executable, "-P", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT / "src")})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_another_process_imports_it_from_the_same_folder(write, tmp_path, tmp_path_factory):
    """Also where an installed module has its name; what it imports itself comes from where it always does."""
    (tmp_path / "mine.py").rename(tmp_path / "this.py")
    (tmp_path / "colorsys.py").touch()
    sys.modules.pop("this", None)
    jobs = make_jobs(mine := experiment("this:Mine"), mine.Config(), ["RR"], [0, 1], None)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "jobs").write_bytes(pickle.dumps(jobs))
    code = """
        import pickle, colorsys
        jobs = pickle.load(open("jobs", "rb"))
        print([job.label for job in jobs], colorsys.hsv_to_rgb(0, 0, 1))
        import this
        print(this.__file__)
    """
    said = python(elsewhere, "-c", textwrap.dedent(code)).splitlines()
    assert said == [f"{[job.label for job in jobs]} (1, 1, 1)", str(tmp_path / "this.py")]
    sys.modules.pop("this")


@pytest.mark.parametrize("engine", ["here", *(pytest.param(name, marks=pytest.mark.soak) for name in ("vmap", "ray"))])
def test_worker_processes(write, tmp_path, engine):
    """As the command has them."""
    if engine == "ray":
        pytest.importorskip("ray")
    arguments = ("--engine", engine, "--workers", "2", "--set", "epochs=1", "--seeds", "2", "--set", "batch=50")
    python(tmp_path, "-m", "racecar.cli", "run", "mine:Mine", *arguments)
    assert len(records(tmp_path / "out" / "mine")) == 4


REFUSED = {
    "mine": "one of your own is package.module:CLASS",
    "mine:": "unknown experiment 'mine:': one of your own is package.module:CLASS",
    "mines:Mine": "unknown experiment 'mines:Mine': there is no module 'mines'",
    "mine:Mime": "unknown experiment 'mine:Mime': mine has no 'Mime'",
    "mine:number": "mine:number is no class that inherits from racecar_lab.experiment.Experiment, but int",
    "mine:nn.Module": "mine:nn.Module is no class that inherits from racecar_lab.experiment.Experiment, but type",
    "mine:Experiment": "experiment Experiment has no name: give the class name = ",
    "mine:Clash": "mine:Clash has name = 'peaks', as an experiment of racecar: give it another one",
    "mine:Path": "mine:Path has name = '../mine': its folder is called so, use letters, digits and hyphens",
    "mine:Needy": "mine:Needy() failed: TypeError: ",
    "broken:Mine": "importing broken failed: ZeroDivisionError: division by zero",
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("command", ["run", "report"])
def test_what_cannot_be_opened(write, refused, tmp_path, command, name):
    (tmp_path / "broken.py").write_text("1 / 0")
    assert REFUSED[name] in refused(*(("run", name) if command == "run" else ("report", ".", "--experiment", name)))
    assert not (tmp_path / "out").exists()


LACKING = {
    "name": "give the class name = ",
    "data": "define data(config, seed, folder), which returns a dict",
    "network": "define network(config, dropout=0.0), which returns the untrained torch.nn.Module",
    "weight": "define weight(config, variant), which returns",
}


@pytest.mark.parametrize("part", LACKING)
def test_what_is_missing_is_named(write, refused, tmp_path, part):
    write(f"del Mine.{part}")
    assert f"experiment Mine has no {part}: {LACKING[part]}" in refused(*RUN)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "more, words",
    [
        ("Mine.weight = lambda *_: None", "the weight of RR must be a number of at least 0"),
        ("Mine.weight = lambda *_: float('nan')", "the weight of RR must be a number of at"),
        ("Mine.stages = lambda *_: (Stage('B', after='A'),)", "stage B of mine is after 'A', which is none before it"),
    ],
)
def test_what_cannot_be(write, refused, tmp_path, more, words):
    write(more)
    assert words in refused(*RUN)
    assert not (tmp_path / "out").exists()


def test_a_search_without_its_metric(write, refused):
    """Which is not called diverged."""
    write("""
from racecar_lab.experiment import Measured
from racecar_lab.search_space import Search
Mine.search = Search(lrs={"adam": (1e-3,)}, weights={"RR": (0.1,)}, seeds=1)
Mine.measure = lambda *_: Measured({"size": 1.0})
""")
    line = refused("search", "mine:Mine", "--set", "epochs=1", "--workers", "1")
    assert "Mine.measure gave no valid_accuracy, by which its search chooses: measure it on task.valid" in line


@pytest.mark.parametrize("engine", ["here", "vmap"])
def test_a_task_that_is_missing(write, cli, engine):
    write("Mine.stages = lambda *_: (Stage('A'), Stage('B', task='B'))")
    result = cli(*RUN, "--engine", engine)
    assert result.status == 2
    assert "Mine.data gave no task 'B', but A" in result.err
    assert [one["stage"] for one in records("out")] == ["A"]


def test_a_class_is_no_experiment():
    with pytest.raises(TypeError, match="give an instance of a subclass of Experiment"):
        make_jobs(Experiment, Experiment.Config(), ["Std"], [0], None)


def test_a_page_without_any_reporting(write, cli):
    """Its heading is the name, and every run is drawn."""
    write()
    assert cli(*RUN).status == 0
    assert cli("report", "out", "--experiment", "mine:Mine").status == 0
    page = Path("out/report.md").read_text()
    assert page.startswith("# mine")
    assert "test_accuracy" in page
    assert list(Path("out/figures").iterdir())

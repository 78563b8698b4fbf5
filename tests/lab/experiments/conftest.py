"""Figures are made, and not laid out, which takes most of the time; and what several tests need."""

import pytest
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from racecar_lab.experiments import experiment
from racecar_lab.running.jobs import make_jobs
from racecar_lab.running.record_writer import Maker
from racecar_lab.running.results import Store
from racecar_lab.running.run import Run
from racecar_lab.running.work import do
from racecar_lab.training.spec import TrainingOptions
from tests.lab.experiments.paper_figure_cases import SMALL, draw, other

LAY_OUT = ConstrainedLayoutEngine.execute


@pytest.fixture(scope="module", autouse=True)
def no_layout():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConstrainedLayoutEngine, "execute", lambda layout, figure: None)
        yield


@pytest.fixture
def layout(monkeypatch, no_layout):
    """For a test of where things stand."""
    monkeypatch.setattr(ConstrainedLayoutEngine, "execute", LAY_OUT)


@pytest.fixture
def no_data(tmp_path, monkeypatch):
    """What runs without a data folder runs without any."""
    monkeypatch.setenv("RACECAR_DATA", str(tmp_path / "nothing"))


@pytest.fixture(scope="session")
def real(tmp_path_factory) -> dict[str, list[Run]]:
    """Every experiment run for an epoch or two; information's second seed is made from the first."""
    found = {}
    for name, (config, variants, seeds) in SMALL.items():
        one, store = experiment(name), Store(tmp_path_factory.mktemp(name))
        for job in make_jobs(one, one.Config(**config), variants, range(seeds), None):
            do(job, store, TrainingOptions(), Maker("test", "here"))
        found[name] = list(store.runs())
    found["information"] += [other(run, seed=1) for run in found["information"]]
    return found


@pytest.fixture(scope="module")
def all_drawn(real) -> dict[str, dict[str, Figure]]:
    """The figures of all that was run, where no test changes them."""
    return {name: draw(name, runs) for name, runs in real.items()}

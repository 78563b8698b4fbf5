"""Figures are made, and not laid out, which takes most of the time; and what several tests need."""

import gc

import pytest
from matplotlib.layout_engine import ConstrainedLayoutEngine

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


@pytest.fixture(scope="module")
def frozen():
    """All that was imported is looked through for garbage once, and not again whenever many records were made."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()

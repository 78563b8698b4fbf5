"""Fixtures of the tests of figures."""

import sys
from collections.abc import Iterator

import pytest

from tests.inspect.figure_cases import settings


@pytest.fixture
def nothing_of_the_user_s(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No figure may load pyplot, with its windows and its list of open figures, or change a setting."""
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    before = settings()
    yield
    assert settings() == before


@pytest.fixture
def no_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the layout of figures, which takes most of the time."""
    monkeypatch.setattr("matplotlib.layout_engine.ConstrainedLayoutEngine.execute", lambda layout, figure: None)

"""What several tests of running need."""

import pytest

from racecar_lab.running.engines import processes


@pytest.fixture
def forked(monkeypatch):
    """Workers as a command has them: forked from a process that has imported all, which is started once."""
    monkeypatch.setattr(processes, "_warm", False)
    processes.warm_up("here", "cpu", 2)

"""Which commit of the source runs, for records."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def commit() -> str | None:
    """The commit of the source that runs, if it is a checkout; with a + if it was changed since."""
    if given := os.environ.get("RACECAR_COMMIT"):  # for copies of the source without its history
        return given
    here = Path(__file__).parent
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"],
            cwd=here, capture_output=True, text=True, check=True, timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None

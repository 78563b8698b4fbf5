"""The commit of the source code, for records."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def commit() -> str | None:
    """The commit of the source code that runs, with a + if files were changed since; None outside a checkout."""
    if given := os.environ.get("RACECAR_COMMIT"):  # for copies of the source without its history
        return given
    here = Path(__file__).parent
    try:
        result = subprocess.run(
            ["git", "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"],
            cwd=here, capture_output=True, text=True, check=True, timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip() or None

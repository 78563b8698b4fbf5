"""Records of runs: what a reader needs to make them again, written atomically."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import torch

from racecar import files


def circumstances(module: str, device: str) -> dict[str, object]:
    """The command, the versions and the machine of this run. The seed is 0 in every benchmark."""
    return {
        "command": " ".join(["python", "-m", module, *sys.argv[1:]]),
        "seed": 0,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else f"CPU {platform.machine()}",
        "threads": torch.get_num_threads(),
    }


def write_json(path: Path, record: dict[str, object]) -> None:
    files.write_json(path, record)
    print(f"wrote {path}", file=sys.stderr)


def write_text(path: Path, text: str) -> None:
    files.write_text(path, text)
    print(f"wrote {path}", file=sys.stderr)
